"""The bookkeeping of a local cluster, without nodes; with nodes: tests/cli."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys

import psutil
import pytest

from kraft.config.node_config import Config
from kraft.local.local_cluster import LocalCluster
from kraft.storage.formatter import read_storage
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.errors import ExitCode, FatalError
from tests.support.nodes.processes import runs


def test_create_formats_every_node(tmp_path):
    cluster = LocalCluster.create(tmp_path, nodes=3, port=20_000, settings={"num.partitions": "4"})
    assert cluster.bootstrap == "127.0.0.1:20000,127.0.0.1:20001,127.0.0.1:20002"
    for node_id in (1, 2, 3):
        config = Config.load(str(cluster.home(node_id) / "server.properties"))
        assert config.node_id == node_id
        assert config.num_partitions == 4
        assert config.kraft_http_port == 20_200 + node_id - 1
        assert [v.port for v in config.voters] == [20_100, 20_101, 20_102]
        assert read_storage(OsDisk(), config).cluster_id == cluster.cluster_id
    found = json.loads((tmp_path / "cluster.json").read_text())
    assert found["bootstrap"] == cluster.bootstrap
    assert [n["id"] for n in found["nodes"]] == [1, 2, 3]
    assert {"pid", "client_port", "controller_port", "http_port"} <= found["nodes"][0].keys()


def test_what_it_writes_is_its_owners_alone(tmp_path):
    """A password in a setting, also where an earlier run or the umask lets everybody read."""
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required username=a password=b;"
    settings = {"listener.name.plaintext.plain.sasl.jaas.config": jaas}
    before = os.umask(0)
    try:
        for _ in range(2):
            cluster = LocalCluster.create(tmp_path / "c", nodes=1, port=20_000, settings=settings)
            home = cluster.home(1)
            cluster.configure(1, {"num.partitions": "4"})
            cluster.run_in_background(["true"], home / "node.log").wait()
            made = [home, *home.iterdir(), *(home / "data").rglob("*"), tmp_path / "c" / "cluster.json"]
            assert {path.name for path in made} >= {"server.properties", "node.log", "meta.properties"}
            for path in made:
                mode = stat.S_IMODE(path.stat().st_mode)
                assert mode == (0o700 if path.is_dir() else 0o600), path
            for name in (".", "server.properties", "node.log"):  # as an earlier version left them
                (home / name).chmod(0o777)
    finally:
        os.umask(before)


def test_a_directory_is_taken_up_again_with_other_ports(tmp_path):
    first = LocalCluster.create(tmp_path, port=20_000)
    second = LocalCluster.create(tmp_path, port=21_000)
    assert second.cluster_id == first.cluster_id
    assert LocalCluster.attach(tmp_path).bootstrap == second.bootstrap
    with pytest.raises(FatalError, match="holds a cluster of 3 nodes, not 1"):
        LocalCluster.create(tmp_path, nodes=1)


def test_a_port_in_use_is_reported_before_anything_starts(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        cluster = LocalCluster.create(tmp_path, nodes=1, ports=[port, 20_001, 20_002])
        with pytest.raises(FatalError, match=f"port {port} of node 1 is in use") as refused:
            cluster.start()
    assert refused.value.exit_code == ExitCode.PORT_IN_USE


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "no cluster in"), ("{", "cannot read"), ('{"nodes": [{}]}', "cannot read")],
)
def test_attach_to_nothing(tmp_path, content, sentence):
    if content is not None:
        (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(FatalError, match=sentence):
        LocalCluster.attach(tmp_path)


def test_a_pid_that_came_again_is_not_ours(tmp_path):
    cluster = LocalCluster.create(tmp_path, nodes=1)
    node = cluster.node(1)
    node.pid, node.created = os.getpid(), psutil.Process().create_time()
    assert node.process() is not None
    node.created -= 60
    assert node.process() is None
    with pytest.raises(FatalError, match="node 1 is not running"):
        cluster.kill(1)
    with pytest.raises(FatalError, match="there is no node 7; the nodes are 1"):
        cluster.pause(7)


def test_what_runs_beside_the_nodes_ends_with_the_cluster(tmp_path):
    cluster = LocalCluster.create(tmp_path, nodes=1)
    cluster.accompany("proxy", [sys.executable, "-c", "import time; time.sleep(600)"])
    beside = LocalCluster.attach(tmp_path).companions["proxy"].process()
    assert beside is not None
    LocalCluster.attach(tmp_path).close()
    assert cluster.reap() == [("proxy", -15)]
    assert not runs(beside)
    assert LocalCluster.attach(tmp_path).companions == {}


def test_a_paused_node_is_silent_at_once(tmp_path):
    """All of its threads: one that is in a system call stops later than the signal comes back."""
    cluster = LocalCluster.create(tmp_path, nodes=1)
    syncing = (
        "import os, threading\n"
        "def sync(n):\n"
        "    fd = os.open(str(n), os.O_CREAT | os.O_WRONLY)\n"
        "    while True: os.pwrite(fd, bytes(4096), 0); os.fsync(fd)\n"
        "for n in range(4): threading.Thread(target=sync, args=(n,)).start()\n"
        "print('go', flush=True)"
    )
    command = [sys.executable, "-c", syncing]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        try:
            assert busy.stdout.readline() == b"go\n"
            cluster.node(1).began(busy.pid)
            for _ in range(20):
                cluster.pause(1)
                states = {psutil.Process(each.id).status() for each in psutil.Process(busy.pid).threads()}
                assert states == {psutil.STATUS_STOPPED}
                cluster.resume(1)
        finally:
            busy.kill()


def test_properties_can_be_added_to_and_are_checked(tmp_path):
    cluster = LocalCluster.create(tmp_path, nodes=1, port=20_000)
    cluster.configure(1, {"num.partitions": "7"})
    config = Config.load(str(cluster.home(1) / "server.properties"))
    assert (config.num_partitions, config.node_id) == (7, 1)
    with pytest.raises(FatalError, match=r"num\.partitions=none"):
        cluster.configure(1, {"num.partitions": "none"})
    assert Config.load(str(cluster.home(1) / "server.properties")).num_partitions == 7


def test_a_node_can_be_another_program(tmp_path, free_ports):
    """Its module is given what kraft.node.process is given, and options of its own."""
    program = ("tests.unit.no_such_module", "--more")
    cluster = LocalCluster.create(tmp_path, nodes=1, ports=free_ports(3), program=program)
    assert LocalCluster.attach(tmp_path).program == program
    with pytest.raises(FatalError, match=r"No module named '?tests\.unit.no_such_module"):
        cluster.start()
    cluster.close()


def test_a_node_ends_with_its_owner():
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    code = f"from kraft.node.process import end_with; print('watching', flush=True); end_with({owner.pid})"
    with owner, subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as node:
        assert node.stdout is not None
        assert node.stdout.readline() == b"watching\n"
        assert node.poll() is None
        owner.kill()
        assert node.wait(180) == -9
