"""`kraft up`, `kraft node`, `kraft down` with real processes: what starts nodes, starts by itself."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from kraft.peers.blocking_client import live_brokers
from metadata_quorum.foundation.errors import ExitCode
from tests.support.nodes.forks import run_kraft
from tests.support.nodes.processes import runs
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.heavy

KRAFT = (sys.executable, "-m", "kraft")


@contextmanager
def up(directory: Path, port: int, *more: str) -> Iterator[subprocess.Popen[str]]:
    """`kraft up` in the foreground; whatever the test does, nothing is left running."""
    command = [*KRAFT, "up", "--dir", str(directory), "--port", str(port), *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        with process:
            try:
                yield process
            finally:
                process.kill()
    finally:
        if (directory / "cluster.json").exists():
            LocalCluster.attach(directory).close(patience_s=0)


@pytest.fixture
def port(free_row: Callable[[], int]) -> int:
    return free_row()


def running(directory: Path) -> dict[int, psutil.Process]:
    """Node id -> process, of those that run."""
    nodes = LocalCluster.attach(directory).nodes.values()
    return {node.id: process for node in nodes if (process := node.process()) is not None}


@pytest.mark.row("U1")
def test_up_prints_one_line_and_ctrl_c_stops_all(tmp_path, port):
    with up(tmp_path, port) as process:
        assert process.stdout is not None
        servers = [f"{HOST}:{port + i}" for i in range(3)]
        assert process.stdout.readline() == f"bootstrap.servers={','.join(servers)}\n"
        found = json.loads((tmp_path / "cluster.json").read_text())
        assert found["bootstrap"] == ",".join(servers)
        assert [node["client_port"] for node in found["nodes"]] == [port, port + 1, port + 2]
        assert all(live_brokers(HOST, port + i, PATIENCE_S) == {1, 2, 3} for i in range(3))
        nodes = running(tmp_path)
        assert nodes.keys() == {1, 2, 3}
        process.send_signal(signal.SIGINT)
        assert process.wait(180) == 0
        assert process.stdout.read() == ""
        assert running(tmp_path) == {}
        assert not any(map(runs, nodes.values()))


@pytest.mark.row("U1")
def test_nodes_die_with_a_killed_up(tmp_path, port):
    with up(tmp_path, port, "--nodes", "2") as process:
        assert process.stdout is not None
        process.stdout.readline()
        nodes = running(tmp_path)
        assert len(nodes) == 2
        process.kill()
        wait_until(lambda: not any(map(runs, nodes.values())), "the nodes end, too")
        assert running(tmp_path) == {}


@pytest.mark.row("U1")
def test_one_node_at_a_time(tmp_path, port):
    where = ("--dir", str(tmp_path))
    with up(tmp_path, port) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert run_kraft("node", "kill", "2", *where).returncode == 0
        assert running(tmp_path).keys() == {1, 3}
        again = run_kraft("node", "kill", "2", *where)
        assert (again.returncode, again.stderr) == (ExitCode.REFUSED, "kraft: node 2 is not running\n")
        wait_until(lambda: live_brokers(HOST, port) == {1, 3}, "the killed node is fenced")

        assert run_kraft("node", "start", "2", *where).returncode == 0
        assert live_brokers(HOST, port + 1, PATIENCE_S) == {1, 2, 3}

        assert run_kraft("node", "pause", "3", *where).stdout == "Paused node 3.\n"
        listed = json.loads(run_kraft("node", "list", *where, "--output", "json").stdout)
        assert listed["directory"] == str(tmp_path)
        assert [node["state"] for node in listed["rows"]] == ["running", "running", "paused"]
        assert listed["rows"][1]["clients"] == f"{HOST}:{port + 1}"
        assert running(tmp_path)[3].status() == psutil.STATUS_STOPPED
        assert run_kraft("node", "resume", "3", *where).returncode == 0
        assert running(tmp_path)[3].status() != psutil.STATUS_STOPPED

        assert run_kraft("node", "stop", "1", *where).returncode == 0
        assert running(tmp_path).keys() == {2, 3}
        unknown = run_kraft("node", "kill", "9", *where)
        assert unknown.returncode == ExitCode.REFUSED
        assert unknown.stderr == "kraft: there is no node 9; the nodes are 1, 2, 3\n"

        assert run_kraft("down", *where).returncode == 0
        assert process.wait(180) == 0  # nothing left to watch


@pytest.mark.row("U1")
def test_detached_nodes_outlive_up(tmp_path, port):
    try:
        command = [*KRAFT, "up", "--nodes", "1", "--detach", "--dir", str(tmp_path), "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert (done.returncode, done.stdout) == (0, f"bootstrap.servers={HOST}:{port}\n")
        assert live_brokers(HOST, port, PATIENCE_S) == {1}
        second = run_kraft("up", "--nodes", "1", "--dir", str(tmp_path), "--port", str(port))
        assert second.returncode == ExitCode.LOG_DIR_UNUSABLE
        assert "a cluster is running in" in second.stderr
        assert run_kraft("down", "--dir", str(tmp_path)).returncode == 0
        assert running(tmp_path) == {}
    finally:
        LocalCluster.attach(tmp_path).close(patience_s=0)


@pytest.mark.row("U1")
def test_one_node_by_its_own_properties(tmp_path, port):
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters=7@{HOST}:{port + 100}\n"
        f"listeners=PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{port + 100}\nlog.dirs={tmp_path}/data\n"
    )
    refused = run_kraft("start", str(properties))
    assert refused.returncode == ExitCode.LOG_DIR_UNUSABLE
    assert "is not formatted" in refused.stderr
    assert "Traceback" not in refused.stderr
    cluster_id = run_kraft("storage", "random-uuid").stdout.strip()
    assert run_kraft("storage", "format", "-t", cluster_id, "-c", str(properties)).returncode == 0
    with subprocess.Popen([*KRAFT, "start", str(properties)], stderr=subprocess.DEVNULL) as node:
        try:
            wait_until(lambda: live_brokers(HOST, port) == {7}, "the node is unfenced")
            second = run_kraft("start", str(properties))
            assert second.returncode in (ExitCode.PORT_IN_USE, ExitCode.LOG_DIR_UNUSABLE)
            assert "Traceback" not in second.stderr
            node.terminate()
            assert node.wait(180) == 0
        finally:
            node.kill()


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            ["--set", "num.partitions=none"],
            ExitCode.BAD_CONFIG,
            "kraft: num.partitions=none: must be a whole number\n",
        ),
        (["--set", "oops"], ExitCode.USAGE, "kraft: oops: a configuration is given as KEY=VALUE\n"),
        (
            ["--set", "kraft.http.port=8080"],
            ExitCode.USAGE,
            "kraft: kraft.http.port is each node's own: `kraft up` counts ports from --port, "
            "and ids from 1\n",
        ),
    ],
)
def test_what_up_refuses(tmp_path, port, arguments, code, sentence):
    done = run_kraft("up", "--dir", str(tmp_path / "new"), "--port", str(port), *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", sentence)


def test_a_port_in_use(tmp_path, port):
    with socket.create_server((HOST, port)):
        done = run_kraft("up", "--dir", str(tmp_path), "--port", str(port))
    assert (done.returncode, done.stdout) == (ExitCode.PORT_IN_USE, "")
    assert done.stderr == f"kraft: port {port} of node 1 is in use; choose others with --port\n"
    assert not list(tmp_path.iterdir()), "nothing is left"
