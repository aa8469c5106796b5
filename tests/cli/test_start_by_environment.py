"""A node that has its configuration from the environment, as in a container."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from metadata_quorum.foundation.errors import ExitCode
from tests.support.waiting import wait_until

pytestmark = pytest.mark.row("U1")

KRAFT = (sys.executable, "-m", "kraft", "start", "--environment")
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"


def ready(port: int, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/ready", headers={"Host": host})
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def test_a_node_of_the_environment_formats_its_directory_and_gets_ready(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    clients, controllers, http_port = free_ports(3)
    common = tmp_path / "server.properties"
    common.write_text(f"log.dirs={tmp_path}/data\nnode.id=1\n")
    environment = os.environ | {
        "CLUSTER_ID": CLUSTER_ID,
        "KAFKA_NODE_ID": "7",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controllers}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://node-7:{clients}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"7@127.0.0.1:{controllers}",
        "KAFKA_KRAFT_HTTP_PORT": str(http_port),
        "KAFKA_HEAP_OPTS": "-Xmx1g",
    }
    with subprocess.Popen([*KRAFT, str(common)], env=environment, stderr=subprocess.DEVNULL) as node:
        try:
            wait_until(lambda: ready(http_port, "node-7") == 200, "the broker is unfenced")
            assert ready(http_port, f"localhost:{http_port}") == 200
            assert ready(http_port, "node-8") == 421, "a name that is not its own"
        finally:
            node.kill()
    identity = (tmp_path / "data" / "meta.properties").read_text()
    assert f"cluster.id={CLUSTER_ID}" in identity
    assert "node.id=7" in identity

    other = subprocess.run(
        [*KRAFT, str(common)], env=environment | {"CLUSTER_ID": "AAAAAAAAAAAAAAAAAAAAAA"},
        capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip
    assert other.returncode in (ExitCode.WRONG_CLUSTER, ExitCode.LOG_DIR_UNUSABLE)
    assert "Traceback" not in other.stderr
    assert "AAAAAAAAAAAAAAAAAAAAAA" in other.stderr
