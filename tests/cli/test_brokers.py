"""`kraft broker`, `kraft features`, records that are deleted, and the doctor on a cluster that is well."""

from __future__ import annotations

import json

import pytest

from kraft.local.local_cluster import LocalCluster
from tests.cli.shell import Shell
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def shell(shared_cluster: LocalCluster) -> Shell:
    return Shell(shared_cluster.bootstrap)


@pytest.mark.row("U2")
def test_what_brokers_there_are(shell: Shell, shared_cluster: LocalCluster) -> None:
    listed = json.loads(shell("broker", "list", "--output", "json"))
    assert listed["ClusterId"] == shared_cluster.cluster_id
    assert [(row["broker"], row["state"]) for row in listed["rows"]] == [(n, "active") for n in (1, 2, 3)]
    assert listed["rows"][1]["address"] == f"127.0.0.1:{shared_cluster.nodes[2].client_port}"
    assert shell.refused("broker", "unregister", "77").startswith("BROKER_ID_NOT_REGISTERED")


@pytest.mark.row("U2")
def test_what_a_broker_speaks(shell: Shell) -> None:
    rows = [line.split() for line in shell("broker", "api-versions", "2").splitlines()]
    assert rows[:2] == [["key", "api", "from", "to"], ["0", "Produce", "0", "13"]]
    assert shell.refused("broker", "api-versions", "77").startswith("77: no such broker is up")


@pytest.mark.row("L8")
def test_what_is_on_the_disks(shell: Shell) -> None:
    shell("topic", "create", "on-disk", "--partitions", "2", "--replication-factor", "3")
    shell("produce", "on-disk", "-p", "1", stdin="a line\n")
    dirs = json.loads(shell("broker", "log-dirs", "--topic", "on-disk", "--output", "json"))
    assert [(row["broker"], row["state"], row["replicas"]) for row in dirs] == [
        (node, "online", 2) for node in (1, 2, 3)
    ]
    assert all(0 < row["usable bytes"] <= row["total bytes"] for row in dirs)

    def replicas() -> list[dict[str, object]]:
        printed = shell("broker", "log-dirs", "--replicas", "--topic", "on-disk", "--output", "json")
        return [row for row in json.loads(printed) if row["partition"] == 1 and row["bytes"]]

    assert len(wait_until(lambda: len(found := replicas()) == 3 and found, "followers have the line")) == 3
    absent = shell.run("broker", "log-dirs", "--topic", "on-no-disk")
    assert (absent.returncode, absent.stderr) == (1, "kraft: on-no-disk: no broker has a replica of it\n")


@pytest.mark.row("L3")
def test_records_are_deleted(shell: Shell) -> None:
    shell("topic", "create", "beheaded", "--partitions", "2", "--replication-factor", "3")
    shell("produce", "beheaded", "-p", "1", stdin="1\n2\n3\n")
    _, row = shell("topic", "delete-records", "beheaded", "-p", "1", "--before-offset", "2").splitlines()
    assert row.split() == ["1", "2"]
    assert shell("consume", "beheaded", "--from-beginning", "-e") == "3\n"
    assert (
        "(OFFSET_OUT_OF_RANGE)"
        in shell.run("topic", "delete-records", "beheaded", "--before-offset", "9").stderr
    )
    _, *rows = shell("topic", "delete-records", "beheaded", "--before-offset", "-1").splitlines()
    assert [row.split() for row in rows] == [["0", "0"], ["1", "3"]]


@pytest.mark.row("Q3")
def test_levels_of_features(shell: Shell) -> None:
    def levels() -> dict[str, int]:
        described = json.loads(shell("features", "describe", "--output", "json"))
        return {row["feature"]: row["level"] for row in described["rows"]}

    assert levels()["metadata.version"] == 27
    assert shell("features", "downgrade", "--feature", "group.version=0", "--dry-run") == (
        "group.version could be at level 0.\n"
    )
    assert (
        shell("features", "upgrade", "--feature", "metadata.version=27")
        == "metadata.version is at level 27.\n"
    )
    assert levels()["group.version"] == 1
    assert "INVALID_UPDATE_VERSION" in shell.refused(
        "features", "upgrade", "--feature", "metadata.version=99"
    )
    for unknown in ("nope=0", "nope=1"):
        refused = shell.refused("features", "downgrade", "--feature", unknown)
        assert refused.startswith("nope: there is no such feature")
    assert shell.refused("features", "upgrade", "--feature", "metadata.version=new").startswith(
        "metadata.version=new: a level is a number"
    )


@pytest.mark.row("U6")
def test_the_doctor_asks_everything(shell: Shell, shared_cluster: LocalCluster) -> None:
    def asked() -> dict[str, dict[str, str]] | None:
        """Clocks have whole seconds here: where the machine stands still they seem to differ."""
        done = shell.run("doctor", "--watch", "0", "--output", "json")
        findings = {each["check"]: each for each in json.loads(done.stdout)}
        return findings if findings["clocks"]["found"] == "3 agree with ours" else None

    findings = wait_until(asked, "the clocks are compared")
    assert [*findings] == [
        "brokers", "registrations", "metadata quorum", "leaders", "acks=all", "replicas", "copies", "balance",
        "log dirs", "transactions", "hanging", "groups", "progress", "certificates", "clocks",
    ]  # fmt: skip
    del findings["hanging"]  # other tests leave such ones
    assert not [each for each in findings.values() if each["state"] == "error"], findings
    assert "GET /" not in (shared_cluster.home(1) / "node.log").read_text(), "a line per scrape is no event"
