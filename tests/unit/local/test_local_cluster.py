"""The bookkeeping of a local cluster, without nodes; with nodes: tests/cli."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from kraft.config.node_config import Config
from kraft.local import local_cluster
from kraft.local.local_cluster import LocalCluster
from kraft.storage.formatter import format_storage, read_storage
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


def test_whoever_is_interrupted_while_it_is_made_goes_on_the_next_time(tmp_path, monkeypatch):
    """Else what is formatted already belongs to a cluster that nobody knows."""
    new_clusters = []

    def interrupted(*arguments, **options):
        if len(new_clusters) == 1:
            raise KeyboardInterrupt
        new_clusters.append(options["new_cluster"])
        return format_storage(*arguments, **options)

    monkeypatch.setattr(local_cluster, "format_storage", interrupted)
    with pytest.raises(KeyboardInterrupt):
        LocalCluster.create(tmp_path, port=20_000, sasl=True)
    half_made = LocalCluster.attach(tmp_path)
    new_clusters.append(True)
    cluster = LocalCluster.create(tmp_path, port=20_000, sasl=True)
    assert cluster.security == half_made.security
    for node_id in cluster.nodes:
        config = Config.load(str(cluster.home(node_id) / "server.properties"))
        assert read_storage(OsDisk(), config).cluster_id == cluster.cluster_id
    assert all(new_clusters), "no voter waits for one that ran before"
    LocalCluster.create(tmp_path, port=20_000)
    assert not any(new_clusters[-3:]), "of a cluster that may have run, they do"


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
    node.began(os.getpid())
    assert node.process() is not None
    node.created -= 60
    assert node.process() is None
    node.began(os.getpid())
    node.boot = "an earlier one"
    assert node.process() is None
    with pytest.raises(FatalError, match="node 1 is not running"):
        cluster.kill(1)
    with pytest.raises(FatalError, match="there is no node 7; the nodes are 1"):
        cluster.pause(7)


@pytest.mark.skipif(not psutil.LINUX, reason="elsewhere a process's creation does not move with the clock")
def test_a_clock_that_is_set_makes_nobody_a_stranger(tmp_path, monkeypatch):
    cluster = LocalCluster.create(tmp_path, nodes=1)
    cluster.node(1).began(os.getpid())
    booted = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: booted + 3600)
    assert psutil.Process().create_time() > booted + 3600
    assert cluster.node(1).process() is not None


class Sleepers(LocalCluster):
    """Their nodes do nothing."""

    def launch(self, module: str, arguments: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
        return self.run_in_background([sys.executable, "-c", "import time; time.sleep(600)"], output)


def test_of_two_that_make_a_cluster_at_once_one_takes_up_the_others(tmp_path, monkeypatch):
    """Else the directories of one would be formatted for the other's."""
    directory, write_it, alone_in = tmp_path / "new", LocalCluster.save, local_cluster.alone_in
    waits = threading.Event()
    made = []
    second = threading.Thread(target=lambda: made.append(LocalCluster.create(directory, port=21_000)))

    def announced(place):
        if threading.current_thread() is second:
            waits.set()
        return alone_in(place)

    def overtaken(cluster):
        if second.ident is None:
            second.start()
            while second.is_alive() and not waits.wait(0.01):
                pass
        write_it(cluster)

    monkeypatch.setattr(local_cluster, "alone_in", announced)
    monkeypatch.setattr(LocalCluster, "save", overtaken)
    first = LocalCluster.create(directory, port=20_000)
    second.join()
    assert [each.cluster_id for each in made] == [first.cluster_id]
    for node_id in first.nodes:
        config = Config.load(str(first.home(node_id) / "server.properties"))
        assert config.kraft_http_port >= 21_200
        assert read_storage(OsDisk(), config).cluster_id == first.cluster_id


def test_of_two_that_have_taken_a_directory_up_at_once_one_starts_its_nodes(tmp_path):
    """And the other one's end takes nothing away from it."""
    first, second = (Sleepers.create(tmp_path, nodes=2, port=port) for port in (20_000, 21_000))
    try:
        with pytest.raises(FatalError, match="another command has taken up") as refused:
            first.start_all()
        assert refused.value.exit_code == ExitCode.REFUSED
        first.close()
        for node_id in (1, 2):
            second.start_node(node_id, wait=False)
        first.close()
        known = Sleepers.attach(tmp_path)
        assert known.bootstrap == second.bootstrap
        assert all(node.process() for node in known.nodes.values())
    finally:
        second.close(patience_s=0)


def test_what_cannot_be_made_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FatalError, match=r"cannot write to .*/file: File exists") as refused:
        LocalCluster.create(tmp_path / "file")
    assert refused.value.exit_code == ExitCode.LOG_DIR_UNUSABLE
    with pytest.raises(FatalError, match="must be a whole number"):
        LocalCluster.create(tmp_path / "new", tls=True, settings={"num.partitions": "none"})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a,b", "with a comma, log.dirs would be two directories"),
        ("a\nb", "log.dirs: this value cannot stand in a properties file"),
        ("a\x85b", "log.dirs: this value cannot stand in a properties file"),
        ("\udcff", "log.dirs: this value cannot stand in a properties file"),
    ],
)
def test_a_directory_that_server_properties_cannot_name_is_refused(tmp_path, name, why):
    with pytest.raises(FatalError, match=why):
        LocalCluster.create(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_an_unusual_name(tmp_path):
    for name in ("a b", "a#b", "a=b:c", "back\\", "$HOME", "\u4e2d", "x" * 200):
        cluster = LocalCluster.create(tmp_path / name, nodes=1, port=20_000)
        config = Config.load(str(cluster.home(1) / "server.properties"))
        assert config.log_dirs == (str(cluster.home(1) / "data"),)


def test_a_directory_on_nfs(tmp_path, monkeypatch):
    """Which locks nothing that is open for reading alone."""
    lock = fcntl.flock

    def lock_of_nfs(fd, operation):
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", lock_of_nfs)
    cluster = Sleepers.create(tmp_path, nodes=1)
    cluster.start_node(1, wait=False)
    cluster.close(patience_s=0)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("raise SystemExit(3)", "ended with code 3"),
        ("import os; print('a word', flush=True); os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("import os; os.kill(os.getpid(), 40)", "was ended by signal 40"),
        ("print('kraft: a new reason'); raise SystemExit(10)", "a new reason"),
    ],
)
def test_a_node_that_ends_at_once_is_not_told_by_what_an_earlier_one_said(tmp_path, free_ports, program, why):
    class Ending(LocalCluster):
        def launch(self, module: str, arguments: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
            return self.run_in_background([sys.executable, "-c", program], output)

    cluster = Ending.create(tmp_path, nodes=1, ports=free_ports(3))
    (cluster.home(1) / "node.log").write_text("kraft: an old reason\n")
    with pytest.raises(FatalError) as failed:
        cluster.start()
    assert failed.value.reason == f"node 1: {why}"
    cluster.close()


def test_a_child_of_which_nothing_is_written_down_ends_all_the_same(tmp_path):
    """As if something came between its start and the note: it is not waited for in vain."""
    cluster = Sleepers.create(tmp_path, nodes=1)
    cluster.start_node(1, wait=False)
    node = cluster.node(1).process()
    assert node is not None
    cluster.node(1).pid = None
    cluster.save()
    cluster.close()
    assert not runs(node)


def test_two_commands_at_once_write_down_what_each_has_done(tmp_path):
    """Each with what it read at its beginning: `kraft node start 1 & kraft node start 2`."""
    Sleepers.create(tmp_path, nodes=3, detached=True)
    first, second = Sleepers.attach(tmp_path), Sleepers.attach(tmp_path)
    first.start_node(1, wait=False)
    second.start_node(2, wait=False)
    first.accompany("beside", [sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with pytest.raises(FatalError, match="node 1 is running already"):
            second.start_node(1, wait=False)
        known = Sleepers.attach(tmp_path)
        assert [known.node(n).process() is not None for n in (1, 2, 3)] == [True, True, False]
        second.kill(2)
        known = Sleepers.attach(tmp_path)
        assert [known.node(n).process() is not None for n in (1, 2, 3)] == [True, False, False]
        assert known.companions.keys() == {"beside"}
    finally:
        Sleepers.attach(tmp_path).close(patience_s=0)
        first.close(patience_s=0)
        second.close(patience_s=0)


def test_a_paused_node_can_be_stopped(tmp_path):
    cluster = Sleepers.create(tmp_path, nodes=1)
    cluster.start_node(1, wait=False)
    cluster.pause(1)
    cluster.stop(1)
    assert cluster.node(1).pid is None
    cluster.close()


def test_what_cannot_be_written_down_does_not_stay(tmp_path, monkeypatch):
    """A full disk: no `kraft down` would find it."""
    cluster = Sleepers.create(tmp_path, nodes=2)
    started = []

    def full(_: LocalCluster) -> None:
        started.extend(psutil.Process(node.pid) for node in cluster.nodes.values())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LocalCluster, "save", full)
    with pytest.raises(OSError, match="No space left"):
        cluster.start_all()
    assert len(started) == 2
    assert not any(map(runs, started))
    assert [node.pid for node in cluster.nodes.values()] == [None, None]


def test_nodes_are_ended_though_nothing_can_be_written(tmp_path, monkeypatch):
    """`kraft node kill` and `kraft down`, on a disk that is full or has become read-only."""
    cluster = Sleepers.create(tmp_path, nodes=2)
    for node_id in (1, 2):
        cluster.start_node(node_id, wait=False)

    def full(self: OsDisk, path: str, data: bytes, may_block: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(OsDisk, "write_atomic", full)
    cluster.kill(1)
    assert LocalCluster.attach(tmp_path).node(1).process() is None
    cluster.close(patience_s=0)
    assert LocalCluster.attach(tmp_path).node(2).process() is None
    with pytest.raises(OSError, match=r"No space left on device: '.*cluster\.json'"):
        cluster.save()


def test_no_node_is_started_for_an_owner_that_has_ended(tmp_path):
    """It would end at once, without a word."""
    program = f"""
from pathlib import Path
from kraft.local.local_cluster import LocalCluster
LocalCluster.create(Path({str(tmp_path)!r}), nodes=1)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)
    cluster = LocalCluster.attach(tmp_path)
    with pytest.raises(FatalError, match="has ended; `kraft up --dir") as refused:
        cluster.start_node(1, wait=False)
    assert refused.value.exit_code == ExitCode.REFUSED
    assert cluster.node(1).pid is None


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
