"""What is in deploy/, looked at without a container runtime, a cluster or an init system: does it agree with
the code and with itself? Schemas and systemd say more where they are installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kraft.config.environment import properties_of_environment
from kraft.config.node_config import Config
from kraft.config.properties import parse_properties
from kraft.http.server import PATHS
from metadata_quorum.foundation.errors import ExitCode

yaml: Any = pytest.importorskip("yaml", reason="no PyYAML: an environment older than the lock file")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONTAINER = DEPLOY / "container"
IN_EVERY_IMAGE = parse_properties((CONTAINER / "server.properties").read_text())
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "kraft.yaml").read_text()))
COMPOSE = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
NODES = ("kraft-1", "kraft-2", "kraft-3")


def config_of(environment: dict[str, str]) -> Config:
    return Config.from_properties({**IN_EVERY_IMAGE, **properties_of_environment(environment)})


# ---- the image ----------------------------------------------------------------------------------------


def instructions() -> list[str]:
    text = (CONTAINER / "Dockerfile").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_image_copies_what_is_there_and_all_packages() -> None:
    copied = [
        source
        for line in instructions()
        if line.startswith("COPY") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    assert [source for source in copied if not (ROOT / source).exists()] == []
    sent = (CONTAINER / "Dockerfile.dockerignore").read_text().splitlines()
    assert {f"!{source}" for source in copied} == {line for line in sent if line.startswith("!")}
    packages = {each.parent.name for each in ROOT.glob("*/py.typed")}
    assert packages <= set(copied)


def test_the_image_runs_as_nobody_in_particular_and_is_looked_at() -> None:
    last_stage = instructions()[max(i for i, line in enumerate(instructions()) if line.startswith("FROM")) :]
    text = "\n".join(last_stage)
    assert "\nUSER 1000:1000\n" in text
    assert IN_EVERY_IMAGE["log.dirs"] in text
    (probe,) = [line for line in last_stage if line.startswith("HEALTHCHECK")]
    assert f"127.0.0.1:{IN_EVERY_IMAGE['kraft.http.port']}/ready" in probe
    assert "/ready" in PATHS
    assert json.loads(last_stage[-1].removeprefix("CMD ")) == [
        "start", "--environment", "/etc/kraft/server.properties"
    ]  # fmt: skip


def test_the_single_node_of_the_image_needs_no_other() -> None:
    config = config_of(dict(re.findall(r"-e (KAFKA_\w+)=(\S+)", (CONTAINER / "Dockerfile").read_text())))
    assert [voter.node_id for voter in config.voters] == [config.node_id]
    assert config.broker_listeners[0].host == ""  # a published port comes in from outside
    copies = (config.offsets_topic_replication_factor, config.transaction_state_log_replication_factor)
    assert {*copies, config.transaction_state_log_min_isr} == {1}


# ---- compose ------------------------------------------------------------------------------------------


def test_the_nodes_of_compose_are_one_cluster() -> None:
    services = COMPOSE["services"]
    configs = {name: config_of(services[name]["environment"]) for name in NODES}
    assert [each.node_id for each in configs.values()] == [1, 2, 3]
    assert len({each.voters for each in configs.values()}) == 1
    assert {(each.node_id, each.host) for each in configs["kraft-1"].voters} == {
        (config.node_id, name) for name, config in configs.items()
    }
    for name, config in configs.items():
        (between,) = [e for e in config.advertised_endpoints if e.name == config.inter_broker_listener]
        assert between.host == name
        (outside,) = [e for e in config.advertised_endpoints if e.name == "HOST"]
        published = {each.rpartition(":")[0]: each.rpartition(":")[2] for each in services[name]["ports"]}
        assert published[f"{outside.host}:{outside.port}"] == "19092"
        assert services[name]["volumes"][0].endswith(f":{IN_EVERY_IMAGE['log.dirs']}")


def test_prometheus_and_grafana_find_what_they_show() -> None:
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (CONTAINER / source).exists() if source.startswith("./") else source in COMPOSE["volumes"]
    (job,) = yaml.safe_load((CONTAINER / "prometheus.yml").read_text())["scrape_configs"]
    port = IN_EVERY_IMAGE["kraft.http.port"]
    assert job["static_configs"][0]["targets"] == [f"{name}:{port}" for name in NODES]
    (source,) = yaml.safe_load((CONTAINER / "grafana" / "datasources.yml").read_text())["datasources"]
    panels = json.loads((CONTAINER / "grafana" / "kraft.json").read_text())["panels"]
    assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}
    known = (ROOT / "docs" / "METRICS.md").read_text()
    for panel in panels:
        for name in re.findall(r"kafka_\w+", panel["targets"][0]["expr"]):
            assert name in known, name


# ---- Kubernetes ---------------------------------------------------------------------------------------


def of_kind(kind: str) -> list[Any]:
    return [each for each in KUBERNETES if each["kind"] == kind]


def test_the_pods_are_one_cluster() -> None:
    (stateful,), (config_map,) = of_kind("StatefulSet"), of_kind("ConfigMap")
    voters = config_of(config_map["data"] | {"KAFKA_NODE_ID": "0"}).voters
    name, service = stateful["metadata"]["name"], stateful["spec"]["serviceName"]
    pods = range(stateful["spec"]["replicas"])
    assert [(each.node_id, each.host) for each in voters] == [(i, f"{name}-{i}.{service}") for i in pods]
    assert stateful["spec"]["podManagementPolicy"] == "Parallel"
    (headless,) = [each for each in of_kind("Service") if each["metadata"]["name"] == service]
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"] is True


def test_a_pods_command_makes_its_id_and_its_name() -> None:
    (container,) = of_kind("StatefulSet")[0]["spec"]["template"]["spec"]["containers"]
    script = container["args"][0].replace("exec kraft start", "env; exec echo start")
    environment = {"HOSTNAME": "kraft-2", "NAMESPACE": "ours", "PATH": "/usr/bin:/bin"}
    shown = subprocess.run(
        [*container["command"], script], env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    made = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    assert made["KAFKA_NODE_ID"] == "2"
    config = config_of({**of_kind("ConfigMap")[0]["data"], **made})
    assert [each.host for each in config.advertised_endpoints] == ["kraft-2.kraft-nodes.ours.svc"]
    assert shown.splitlines()[-1] == "start --environment /etc/kraft/server.properties"


def test_probes_ask_for_what_is_there_and_labels_select_the_pods() -> None:
    (stateful,) = of_kind("StatefulSet")
    template = stateful["spec"]["template"]
    (container,) = template["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert str(ports["http"]) == IN_EVERY_IMAGE["kraft.http.port"]
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in PATHS
        assert container[probe]["httpGet"]["port"] == "http"
    assert container["startupProbe"]["tcpSocket"]["port"] == "http"
    labels = template["metadata"]["labels"]
    (budget,) = of_kind("PodDisruptionBudget")
    selectors = [stateful["spec"]["selector"]["matchLabels"], budget["spec"]["selector"]["matchLabels"]]
    selectors += [each["spec"]["selector"] for each in of_kind("Service")]
    assert all(each == labels for each in selectors)
    assert budget["spec"]["maxUnavailable"] == 1
    (data, _) = container["volumeMounts"]
    assert data["mountPath"] == IN_EVERY_IMAGE["log.dirs"]
    assert stateful["spec"]["volumeClaimTemplates"][0]["metadata"]["name"] == data["name"]


def test_kubernetes_own_schemas() -> None:
    schemas = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is 100 MB: not in the lock"
    )
    for each in KUBERNETES:
        schemas.validate(each, "1.33", strict=True)


# ---- systemd ------------------------------------------------------------------------------------------

UNIT = (DEPLOY / "systemd" / "kraft.service").read_text()


def test_the_unit_does_not_repeat_what_ends_the_same_again() -> None:
    (codes,) = re.findall(r"^RestartPreventExitStatus=(.*)$", UNIT, re.MULTILINE)
    assert {ExitCode(int(each)) for each in codes.split()} == {
        ExitCode.USAGE, ExitCode.BAD_CONFIG, ExitCode.LOG_DIR_UNUSABLE, ExitCode.WRONG_CLUSTER,
        ExitCode.QUORUM_DISK_LOST,
    }  # fmt: skip


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze on PATH")
    unit = tmp_path / "kraft.service"
    unit.write_text(UNIT.replace("/opt/kraft/bin/kraft", sys.executable))
    verified = subprocess.run([program, "verify", unit], capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stderr
    assert "kraft.service" not in verified.stderr
    rated = subprocess.run(
        [program, "security", "--offline=yes", "--threshold=15", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert rated.returncode == 0, rated.stdout[-300:]
