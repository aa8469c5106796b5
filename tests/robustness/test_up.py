"""`kraft up` when something is wrong, or when it is stopped while it starts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kraft.local.local_cluster import LocalCluster
from metadata_quorum.foundation.errors import ExitCode
from tests.support.nodes.processes import runs
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.row("U1")]


@contextmanager
def up(directory: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "kraft", "up", "--dir", str(directory), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def nodes_of(directory: Path) -> list[int]:
    """The pids of the nodes, as far as they are known and run."""
    try:
        found = json.loads((directory / "cluster.json").read_text())["nodes"]
    except FileNotFoundError:
        return []
    return [node["pid"] for node in found if node["pid"] and lives(node["pid"])]


def lives(pid: int) -> bool:
    """What nobody has waited for is only a name in the table of processes."""
    try:
        return runs(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def port(free_row: Callable[[], int]) -> int:
    return free_row()


def test_a_node_that_fails_is_named_with_its_reason(tmp_path: Path, port: int):
    LocalCluster.create(tmp_path, port=port)
    journal = tmp_path / "node-2" / "data" / "raft" / "journal"
    journal.write_bytes(b"this is no journal")
    with up(tmp_path, port) as process:
        printed, said = process.communicate(timeout=600)
    assert (process.returncode, printed) == (ExitCode.QUORUM_DISK_LOST, "")
    assert said.startswith(f"kraft: node 2: {journal} is damaged at 0")
    assert said.count("\n") == 1
    wait_until(lambda: nodes_of(tmp_path) == [], "no node is left")


def test_two_at_once_in_a_new_directory(tmp_path: Path, free_row: Callable[[], int]):
    """One of them serves, and the other one says why it does not."""
    directory = tmp_path / "new"
    with up(directory, free_row()) as first, up(directory, free_row()) as second:
        wait_until(lambda: first.poll() is not None or second.poll() is not None, "one is refused")
        refused, serving = (first, second) if first.poll() is not None else (second, first)
        printed, said = refused.communicate(timeout=600)
        assert (printed, said.count("\n")) == ("", 1)
        assert said.startswith("kraft: a")  # "a cluster is running", "another command has taken up"
        assert serving.stdout is not None
        assert serving.stdout.readline().startswith("bootstrap.servers=")
        assert len(nodes_of(directory)) == 3
        serving.send_signal(signal.SIGINT)
        assert serving.wait(600) == 0
    assert nodes_of(directory) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("children", [1, 3])
def test_stopped_while_it_starts(tmp_path: Path, port: int, number: signal.Signals, children: int):
    with up(tmp_path, port) as process:
        itself = psutil.Process(process.pid)
        wait_until(lambda: len(itself.children()) >= children, "nodes are being started")
        nodes = itself.children()
        process.send_signal(number)
        _, said = process.communicate(timeout=600)
    assert process.returncode in (0, 130)
    assert "Traceback" not in said
    wait_until(lambda: not any(map(runs, nodes)), "the nodes have ended")
    assert nodes_of(tmp_path) == []


def test_a_signal_during_an_import_is_dealt_with_after_it():
    # What an import of dataclasses does, with the signal in its midst: CPython would end by SIGINT.
    program = """
import os, signal
from kraft.peers.held_signals import signals_wait
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    with signals_wait():
        exec("os.kill(os.getpid(), signal.SIGTERM)\\nfor _ in range(1000): pass\\nprint('imported')")
    print("not interrupted")
except KeyboardInterrupt:
    print("stopped")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout.split()) == (0, ["imported", "stopped"])


def test_a_signal_between_a_nodes_start_and_its_note(tmp_path: Path, free_ports: Callable[[int], list[int]]):
    """Else the command does not know whom to stop, and waits for its child for good."""
    program = f"""
import os, signal
from pathlib import Path
from kraft.local.local_cluster import LocalCluster
from kraft.local.processes import LocalProcess
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
note = LocalProcess.began
def interrupted(process, pid):
    os.kill(os.getpid(), signal.SIGINT)
    note(process, pid)
cluster = LocalCluster.create(Path({str(tmp_path)!r}), nodes=1, ports={free_ports(3)})
LocalProcess.began = interrupted
try:
    cluster.start_node(1, wait=False)
except KeyboardInterrupt:
    print(cluster.node(1).process().pid)
    cluster.close()
    print("stopped")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    pid, stopped = done.stdout.split()
    assert (done.returncode, stopped, done.stderr) == (0, "stopped", "")
    assert not lives(int(pid))


def test_a_signal_between_a_nodes_note_and_cluster_json(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
):
    """Else `kraft down` does not know whom to stop, where a detached cluster's node is started again."""
    program = f"""
import json, os, signal, subprocess, sys
from pathlib import Path
from kraft.local.local_cluster import LocalCluster
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
directory, write_it = Path({str(tmp_path)!r}), LocalCluster.save
def interrupted(cluster):
    os.kill(os.getpid(), signal.SIGINT)
    write_it(cluster)
cluster = LocalCluster.create(directory, nodes=1, ports={free_ports(3)}, detached=True)
LocalCluster.save = interrupted
try:
    cluster.start_node(1, wait=False)
except KeyboardInterrupt:
    written = json.loads((directory / "cluster.json").read_text())["nodes"][0]["pid"]
    print(written == cluster.node(1).process().pid)
finally:
    LocalCluster.save = write_it
    cluster.close(patience_s=0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_nodes_are_stopped_in_order_though_nobody_reads_it(tmp_path: Path, port: int, number: signal.Signals):
    """`kraft up 2>&1 | tee log`: Ctrl-C ends the reader, too. And a terminal may be closed."""
    with up(tmp_path, port) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("bootstrap.servers=")
        process.stdout.close()
        process.stderr.close()
        process.send_signal(number)
        assert process.wait(600) == 0
    for node_id in (1, 2, 3):
        assert f"node {node_id} is stopping" in (tmp_path / f"node-{node_id}" / "node.log").read_text()


def test_signals_wait_leaves_the_handlers_and_the_children_as_they_were():
    program = """
import signal, subprocess, sys, threading
from kraft.peers.held_signals import HELD, signals_wait
signal.signal(signal.SIGINT, signal.SIG_IGN)
before = [signal.getsignal(number) for number in HELD]
show = "from signal import *; print(pthread_sigmask(SIG_BLOCK, []), getsignal(SIGINT).name)"
with signals_wait():
    signal.raise_signal(signal.SIGINT)
    subprocess.run([sys.executable, "-c", show], check=True)
def elsewhere():
    with signals_wait():
        print([signal.getsignal(number) for number in HELD] == before)
thread = threading.Thread(target=elsewhere)
thread.start(), thread.join()
print([signal.getsignal(number) for number in HELD] == before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.stderr) == ("set() SIG_IGN\nTrue\nTrue\n", "")


def test_a_signal_while_an_event_loop_is_made_leaves_no_half_of_it():
    # Collected half made, it would complain behind the command's last words.
    program = """
import os, signal, socket
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from kraft.net.client import Address
from kraft.peers.blocking_client import first_to_answer
make = socket.socketpair
def interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    return make()
socket.socketpair = interrupted
try:
    first_to_answer([Address("127.0.0.1", 1)], 1.0)
except KeyboardInterrupt:
    print("stopped")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")
