"""What keeps a node from starting: one plain sentence on standard error, an exit code, no traceback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from data_plane.log.checkpoints import CLEAN_SHUTDOWN, UNKNOWN_RUN, BrokerRun
from data_plane.log_manager.log_dirs import LogDir
from kraft.local.free_ports import HOST
from kraft.node.process import run_node
from kraft.node.serve import SIGNALS
from kraft.storage.formatter import boot_id, which_copy
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.errors import ExitCode
from tests.robustness.conftest import MakeNode
from tests.robustness.nodes import NODE_ID, UP, NodeFiles
from tests.support.may_block import MAY_BLOCK
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.row("U1")]


def refused(node: NodeFiles, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The start in this process, which is enough for what is refused before the loop runs. By `capsys`: to
    the descriptor another test's client may write, too, until it is collected."""
    code = run_node(str(node.properties))
    sentence = capsys.readouterr().err
    assert sentence.startswith("kraft: ")
    assert sentence.count("\n") == 1
    return code, sentence


@pytest.fixture(autouse=True)
def own_signals():
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"node_id": None}, "node.id is not set"),
        ({"log_dirs": None}, "log.dirs is not set"),
        ({"num_partitions": "many"}, "num.partitions=many: must be a whole number"),
        ({"process_roles": "king"}, "process.roles=king: must be one of broker, controller"),
        ({"listeners": "PLAINTEXT://h:99999"}, "each listener is NAME://HOST:PORT"),
    ],
)
def test_a_wrong_configuration(make_node: MakeNode, capsys, changes, sentence):
    code, said = refused(make_node(**changes), capsys)
    assert code == ExitCode.BAD_CONFIG
    assert sentence in said


@pytest.mark.parametrize("content", [None, bytes(range(128, 256)), b"these are just words\n"])
def test_a_file_that_is_no_configuration(make_node: MakeNode, capsys, content):
    node = make_node()
    node.properties.unlink()
    if content is not None:
        node.properties.write_bytes(content)
    assert refused(node, capsys)[0] == ExitCode.BAD_CONFIG


def test_an_unknown_key_is_reported_with_the_nearest_one(make_node: MakeNode):
    node = make_node(num_partitons="3")
    code, last = node.start_and_fail()
    assert code == ExitCode.LOG_DIR_UNUSABLE
    assert "unknown key num.partitons is ignored; did you mean num.partitions?" in node.said
    assert last == f"kraft: {node.data} is not formatted: `kraft storage format` does that"


def _noise(node: NodeFiles) -> None:
    (node.data / "meta.properties").write_bytes(os.urandom(300))


def _folder(node: NodeFiles) -> None:
    (node.data / "meta.properties").unlink()
    (node.data / "meta.properties").mkdir()


def _other_cluster(node: NodeFiles) -> None:
    meta = node.data / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=c", "cluster.id=d"))


def _other_node(node: NodeFiles) -> None:
    meta = node.data / "meta.properties"
    meta.write_text(meta.read_text().replace(f"node.id={NODE_ID}", "node.id=8"))


def _no_directory(node: NodeFiles) -> None:
    shutil.rmtree(node.data)
    node.data.touch()


def _lock_is_a_folder(node: NodeFiles) -> None:
    (node.data / ".lock").unlink(missing_ok=True)
    (node.data / ".lock").mkdir()


def _flipped(path: Path, place: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1
    path.write_bytes(data)


def _flip_journal(node: NodeFiles) -> None:
    _flipped(node.data / "raft" / "journal", 0.4)


def _empty_journal(node: NodeFiles) -> None:
    (node.data / "raft" / "journal").write_bytes(b"")


def _no_journal(node: NodeFiles) -> None:
    (node.data / "raft" / "journal").unlink()


def _no_voter(node: NodeFiles) -> None:
    shutil.rmtree(node.data / "raft")


def _damaged_voter(node: NodeFiles) -> None:
    (node.data / "raft" / "voter.properties").write_bytes(os.urandom(50))


def _metadata_log_is_a_file(node: NodeFiles) -> None:
    shutil.rmtree(node.data / "__cluster_metadata-0")
    (node.data / "__cluster_metadata-0").touch()


BEFORE_THE_LOOP = {
    _noise: (ExitCode.LOG_DIR_UNUSABLE, "is damaged: it names no cluster and node"),
    _folder: (ExitCode.LOG_DIR_UNUSABLE, "Is a directory"),
    _other_node: (ExitCode.WRONG_CLUSTER, "belongs to node 8, not to node 7"),
    _no_directory: (ExitCode.LOG_DIR_UNUSABLE, "is not formatted"),
    _lock_is_a_folder: (ExitCode.LOG_DIR_UNUSABLE, "cannot use"),
}
AT_THE_QUORUMS_START = {
    _other_cluster: (ExitCode.WRONG_CLUSTER, "belongs to voter 7 of cluster"),
    _flip_journal: (ExitCode.QUORUM_DISK_LOST, "is damaged at"),
    _empty_journal: (ExitCode.QUORUM_DISK_LOST, "is damaged at"),
    _no_journal: (ExitCode.QUORUM_DISK_LOST, "is missing although this voter was formatted"),
    _no_voter: (ExitCode.QUORUM_DISK_LOST, "is not formatted as a voter's directory"),
    _damaged_voter: (ExitCode.QUORUM_DISK_LOST, "is damaged: it does not say whose it is"),
    _metadata_log_is_a_file: (ExitCode.DISK_FAILED, "cannot start:"),
}


@pytest.mark.row("Q9")
@pytest.mark.parametrize("damage", [*BEFORE_THE_LOOP, *AT_THE_QUORUMS_START])
def test_damaged_directories(lived: Callable[[], NodeFiles], capsys, damage):
    node = lived()
    damage(node)
    expected, sentence = (BEFORE_THE_LOOP | AT_THE_QUORUMS_START)[damage]
    code, said = refused(node, capsys)
    assert code == expected
    assert sentence in said


@pytest.mark.row("Q9")
def test_a_lost_voter_is_formatted_again_and_keeps_its_partitions(lived: Callable[[], NodeFiles]):
    node = lived()
    _no_journal(node)
    code, said = node.start_and_fail()
    assert code == ExitCode.QUORUM_DISK_LOST
    assert f"Remove {node.data / 'raft'} and format it again" in said
    shutil.rmtree(node.data / "raft")
    kept = (node.data / "meta.properties").read_text()
    node.format()
    assert (node.data / "meta.properties").read_text() == kept
    node.run_and_stop()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_an_unwritable_directory(lived: Callable[[], NodeFiles], capsys):
    node = lived()
    (node.data / ".lock").unlink()
    node.data.chmod(0o500)
    try:
        code, said = refused(node, capsys)
    finally:
        node.data.chmod(0o700)
    assert code == ExitCode.LOG_DIR_UNUSABLE
    assert "Permission denied" in said


def test_a_port_in_use(lived: Callable[[], NodeFiles]):
    node = lived()
    with socket.create_server((HOST, node.client_port)):
        code, said = node.start_and_fail()
    assert code == ExitCode.PORT_IN_USE
    assert said == f"kraft: cannot listen on {HOST}:{node.client_port}: Address already in use"


def test_two_processes_on_one_directory(lived: Callable[[], NodeFiles], capsys):
    node = lived()
    with node.running() as process:
        capsys.readouterr()
        code, said = refused(node, capsys)
        assert code == ExitCode.LOG_DIR_UNUSABLE
        assert said == f"kraft: cannot use {node.data}: another node is running on it\n"
        assert process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("cpu_seconds", [0.1, 0.2, 0.3])
def test_a_signal_at_any_moment_of_the_start(lived: Callable[[], NodeFiles], number, cpu_seconds):
    """Moments are counted by the work that the process has done, so that a busy machine changes nothing; on a
    fast one the last of them may be after the start."""
    node = lived()
    with node.started() as process:

        def worked() -> bool:
            times = psutil.Process(process.pid).cpu_times()
            return times.user + times.system >= cpu_seconds or UP in node.said

        wait_until(worked, "the process has come that far")
        process.send_signal(number)
        assert process.wait(180) in (0, -number)
        # On a slow machine Python is still about to import our first module, and says so of Ctrl-C.
        assert "Traceback" not in node.said or "in run_node" not in node.said
    node.run_and_stop()  # and whatever it left behind is good for a start


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_logs_are_opened_is_answered_at_once(lived: Callable[[], NodeFiles], number):
    """After a crash that may take minutes."""
    node = lived()
    slow = """
import sys, threading
from kraft.node.broker_role import BrokerRole
def load(role, may_block):
    print("opening logs", file=sys.stderr, flush=True)
    threading.Event().wait()
BrokerRole.load = load
"""
    with node.started(slow) as process:
        wait_until(lambda: "opening logs" in node.said, "the logs are being opened")
        process.send_signal(number)
        assert process.wait(180) == -number
    node.run_and_stop()


def test_a_closed_terminal_stops_a_node_in_order(lived: Callable[[], NodeFiles]):
    node = lived()
    with node.running() as process:
        process.send_signal(signal.SIGHUP)
        assert process.wait(180) == 0
    assert (node.data / CLEAN_SHUTDOWN).exists()


@pytest.mark.skipif(not psutil.LINUX, reason="only there a process's signals can be seen")
def test_under_nohup_a_closed_terminal_is_nothing_to_a_node(lived: Callable[[], NodeFiles]):
    node = lived()
    with node.running("import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)") as process:
        told = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        (ignored,) = (int(line.split()[1], 16) for line in told if line.startswith("SigIgn:"))
        assert ignored & 1 << (signal.SIGHUP - 1)


def test_ctrl_c_twice_ends_a_running_node(lived: Callable[[], NodeFiles]):
    node = lived()
    with node.running() as process:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(180) == 0
    assert "Traceback" not in node.said


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_behind_the_end_of_a_node_changes_nothing(lived: Callable[[], NodeFiles], number: str):
    """Its loop is closed then, and Python's own handlers are back."""
    node = lived()
    at_the_end = f"import atexit, os, signal\natexit.register(os.kill, os.getpid(), signal.{number})"
    with node.running(at_the_end) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0
    assert "Traceback" not in node.said


@pytest.mark.pure
def test_what_fails_at_the_end_of_a_node_does_not_keep_its_logs_from_it(lived: Callable[[], NodeFiles]):
    node = lived()
    failing = """
from kraft.http.listener import HttpPort
async def fail(port):
    raise RuntimeError("this part does not end")
HttpPort.close = fail
"""
    with node.running(failing) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0
    assert "this part does not end" in node.said
    assert (node.data / CLEAN_SHUTDOWN).exists()


def test_a_directory_that_was_copied_under_a_running_node_is_not_taken_for_whole(
    lived: Callable[[], NodeFiles], tmp_path: Path
):
    """It names the present run, and the machine has not been booted since. What was acknowledged behind the
    copy is not there: the broker must not register as one that has lost nothing."""
    node = lived()
    with node.running() as process:
        wait_until(lambda: _last_run(node).broker_epoch >= 0, "the broker is registered")
        shutil.copytree(node.data, tmp_path / "copy")
        process.kill()
    assert _last_run(node).broker_epoch >= 0
    shutil.rmtree(node.data)
    shutil.copytree(tmp_path / "copy", node.data)
    assert _last_run(node) == UNKNOWN_RUN
    with node.running() as process:
        wait_until(lambda: _last_run(node).broker_epoch >= 0, "it goes on from there")
    assert "Traceback" not in node.said


def _last_run(node: NodeFiles) -> BrokerRun:
    data = str(node.data)
    return LogDir(OsDisk(), data, boot_id=boot_id() + which_copy(data)).look_up_last_run(MAY_BLOCK)
