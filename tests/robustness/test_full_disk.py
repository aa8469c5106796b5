"""Disks that fill up, and disks that go away, under nodes at work.

A full disk is made by RLIMIT_FSIZE, which can be set on a process that runs and needs no root: from then
on a write beyond that size of any file fails as on a full disk (with EFBIG for ENOSPC). A disk that
goes away is a directory that is renamed under the node.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.local_cluster import LocalCluster
from metadata_quorum.foundation.errors import ExitCode
from tests.robustness.conftest import MakeNode
from tests.robustness.traffic import QUIET, isrs, leaders, produced
from tests.support.nodes.cluster import running_cluster
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of others need Linux"),
]

VICTIM = 1
ROOM = 256 * 1024


def full_from(pid: int, size: int) -> None:
    """No file of that process grows beyond `size` any longer."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def pid_of(cluster: LocalCluster, node: int) -> int:
    pid = cluster.node(node).pid
    assert pid is not None
    return pid


@pytest.fixture
def three_nodes(tmp_path: Path, free_ports: Callable[[int], list[int]]):
    with running_cluster(tmp_path, free_ports(9)) as cluster:
        yield cluster


def make_topic(cluster: LocalCluster, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    settings = {"min.insync.replicas": "2"}
    admin.create_topics([NewTopic(name, partitions, 3, config=settings)])[name].result()


@pytest.mark.row("R4")
@pytest.mark.row("L8")
def test_a_full_disk_ends_its_node_and_nothing_else(three_nodes: LocalCluster):
    make_topic(three_nodes, "full", 3)
    assert produced(three_nodes, "full", 30, partitions=3) == 30
    full_from(pid_of(three_nodes, VICTIM), ROOM)
    count = 4 * ROOM // 1024 * 3
    assert produced(three_nodes, "full", count, partitions=3) == count
    [ended] = wait_until(three_nodes.reap, "the node with the full disk ends")
    assert ended == (f"node {VICTIM}", ExitCode.DISK_FAILED)
    said = (three_nodes.home(VICTIM) / "node.log").read_text()
    data = three_nodes.home(VICTIM) / "data"
    assert said.strip().splitlines()[-1] == (
        f"kraft: every log directory has failed; the last was {data}: File too large"
    )
    assert "Traceback" not in said
    wait_until(lambda: VICTIM not in leaders(three_nodes, "full").values(), "others lead")
    assert produced(three_nodes, "full", 30, partitions=3) == 30

    three_nodes.start_node(VICTIM)  # there is room again
    wait_until(lambda: all(VICTIM in isr for isr in isrs(three_nodes, "full").values()), "it is in sync")


@pytest.mark.row("Q9")
def test_a_full_metadata_disk_ends_the_node(make_node: MakeNode):
    node = make_node()
    node.format()
    with node.running() as process:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{node.client_port}", **QUIET})
        full_from(process.pid, (node.data / "raft" / "journal").stat().st_size)

        reasons: list[str] = []

        def refused_and_ended() -> bool:
            """Whoever asked for what could not be written is not answered that it was. A node that stood
            still may not have heard it in time."""
            topic = NewTopic("one-too-many", 1, 1)
            wanted = admin.create_topics([topic], operation_timeout=2, request_timeout=5)
            with pytest.raises(KafkaException) as refused:
                wanted["one-too-many"].result()
            reasons.append(str(refused.value))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            return process.poll() is not None

        wait_until(refused_and_ended, "the node ends", on_failure=lambda: (reasons, node.said))
        assert process.wait(180) == ExitCode.DISK_FAILED
    assert "Traceback" not in node.said, node.said
    assert node.last_line.startswith("kraft: the metadata log's disk failed: ")
    node.run_and_stop()


@pytest.mark.row("L8")
def test_a_lost_log_dir_is_offline_and_the_node_continues(make_node: MakeNode, tmp_path: Path):
    dirs = [tmp_path / "first", tmp_path / "second"]
    node = make_node(log_dirs=",".join(map(str, dirs)), replica_high_watermark_checkpoint_interval_ms="100")
    node.format()
    with node.running() as process:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{node.client_port}", **QUIET})
        admin.create_topics([NewTopic("spread", 2, 1)])["spread"].result()
        wait_until(lambda: all(list(d.glob("spread-*")) for d in dirs), "one partition in each directory")
        dirs[1].rename(tmp_path / "gone")
        admin.create_topics([NewTopic("more", 2, 1)])["more"].result()
        wait_until(lambda: f"Log directory {dirs[1]} goes offline" in node.said, "the directory is offline")
        assert process.poll() is None
        wait_until(lambda: len(list(dirs[0].glob("more-*"))) == 2, "new partitions go where there is a disk")
        assert not dirs[1].exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0
    assert "Traceback" not in node.said


@pytest.mark.row("L8")
def test_what_lay_in_a_directory_that_cannot_be_read_is_not_started_over(make_node: MakeNode, tmp_path: Path):
    dirs = [tmp_path / "first", tmp_path / "second"]
    node = make_node(log_dirs=",".join(map(str, dirs)))
    node.format()
    where = {"bootstrap.servers": f"127.0.0.1:{node.client_port}", **QUIET}
    with node.running() as process:
        admin = AdminClient(where)
        admin.create_topics([NewTopic("old", 2, 1)])["old"].result()
        wait_until(lambda: all(list(d.glob("old-*")) for d in dirs), "one partition in each directory")
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0
    unread = dirs[1] / "replication-offset-checkpoint"
    unread.unlink()
    unread.mkdir()  # stands for a sector that cannot be read
    with node.running():
        [lost] = dirs[1].glob("old-*")
        said = f"{lost.name} stays offline: it may lie in {dirs[1]}"
        wait_until(lambda: said in node.said, "the partition stays offline")
        admin.create_topics([NewTopic("new", 2, 1)])["new"].result()
        wait_until(lambda: len(list(dirs[0].glob("new-*"))) == 2, "new partitions go where there is a disk")
        assert not (dirs[0] / lost.name).exists()
    assert "Traceback" not in node.said
