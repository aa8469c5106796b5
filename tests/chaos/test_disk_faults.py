"""Real nodes on disks that fail, files that were damaged, and clocks that were set."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.live.clock import ClockSwitch
from chaos.live.damage import flip_bit, tear_journal, tear_tail
from chaos.live.disk_switch import DiskSwitch
from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from kraft.peers.blocking_client import describe_quorum
from metadata_quorum.foundation.errors import BrokerError, ExitCode
from tests.robustness.traffic import QUIET, isrs, leaders, produced
from tests.support.nodes.cluster import ended_at_once
from tests.support.waiting import wait_until

pytestmark = pytest.mark.heavy

NODES = {1, 2, 3}
LOG = "00000000000000000000.log"


@pytest.fixture
def cluster(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Iterator[LocalCluster]:
    """Three nodes, to be broken at will."""
    cluster = LocalCluster.create(tmp_path, ports=free_ports(9), program=("chaos.live.process",))
    with ended_at_once(cluster):
        cluster.start()
        yield cluster


def new_topic(cluster: LocalCluster, name: str, partitions: int = 1, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    settings = {"min.insync.replicas": "2", **{key.replace("_", "."): value for key, value in config.items()}}
    admin.create_topics([NewTopic(name, partitions, 3, config=settings)])[name].result(60)
    all_in_sync(cluster, name)
    return name


def all_in_sync(cluster: LocalCluster, topic: str) -> None:
    wait_until(lambda: all(set(isr) == NODES for isr in isrs(cluster, topic).values()), "all are in sync")


def ends_with_failed_disk(cluster: LocalCluster, node: int) -> None:
    """Wait for the node to end on its own."""
    [ended] = wait_until(cluster.reap, "a node ends")
    assert ended == (f"node {node}", ExitCode.DISK_FAILED)


def said(cluster: LocalCluster, node: int) -> str:
    return (cluster.home(node) / "node.log").read_text()


def controller(cluster: LocalCluster) -> tuple[int, int]:
    """Who is active, and in which term. While one is elected nobody is."""

    def found() -> tuple[int, int] | None:
        port = next(node.client_port for node in cluster.nodes.values() if node.process() is not None)
        with contextlib.suppress(OSError, BrokerError):
            partition = describe_quorum(HOST, port).topics[0].partitions[0]
            if partition.leader_id > 0:
                return int(partition.leader_id), int(partition.leader_epoch)
        return None

    return wait_until(found, "a controller is active")


def leads_no_longer(cluster: LocalCluster, topic: str, node: int) -> None:
    """Whoever is asked may learn of it a moment later."""
    wait_until(lambda: leaders(cluster, topic)[0] != node, "another node leads")


@pytest.mark.row("C1", "R4")
def test_a_leader_whose_disk_is_full_makes_way(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, "full")
    assert produced(cluster, topic, 10) == 10
    victim = leaders(cluster, topic)[0]
    disk = DiskSwitch(cluster.home(victim))
    disk.full(f"data/{topic}-0", lasting=True)
    assert produced(cluster, topic, 10) == 10
    ends_with_failed_disk(cluster, victim)
    assert said(cluster, victim).rstrip().endswith("No space left on device")
    leads_no_longer(cluster, topic, victim)
    log = cluster.home(victim) / "data" / f"{topic}-0" / LOG
    torn = log.read_bytes()

    cluster.start_node(victim, wait=False)  # and its disk is still full
    assert produced(cluster, topic, 10) == 10
    ends_with_failed_disk(cluster, victim)
    disk.heal()
    cluster.start_node(victim)
    all_in_sync(cluster, topic)
    other = cluster.home(leaders(cluster, topic)[0]) / "data" / f"{topic}-0" / LOG
    wait_until(lambda: log.read_bytes() == other.read_bytes(), "the replicas are the same")
    assert log.read_bytes() != torn


@pytest.mark.row("C1")
def test_a_failed_fsync_is_not_tried_again(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, "synced", flush_messages="1")
    assert produced(cluster, topic, 10) == 10
    victim = leaders(cluster, topic)[0]
    # Once: a node that tried again would go on.
    DiskSwitch(cluster.home(victim)).fail_sync(f"data/{topic}-0", times=1)
    assert produced(cluster, topic, 10) == 10
    ends_with_failed_disk(cluster, victim)
    leads_no_longer(cluster, topic, victim)
    cluster.start_node(victim)
    all_in_sync(cluster, topic)


@pytest.mark.row("C1")
def test_a_controller_that_cannot_sync_its_journal_makes_way(cluster: LocalCluster) -> None:
    victim, term = controller(cluster)
    DiskSwitch(cluster.home(victim)).fail_sync("data/raft", times=1)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    admin.create_topics([NewTopic("judged", 1, 3)])  # its answer may be lost with the victim
    ends_with_failed_disk(cluster, victim)
    wait_until(lambda: controller(cluster)[0] != victim, "another is active")
    assert controller(cluster)[1] > term
    cluster.start_node(victim)
    new_topic(cluster, "judged-by-another")


@pytest.mark.row("C1")
def test_a_leader_that_cannot_read_makes_way(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, "unread")
    assert produced(cluster, topic, 10) == 10
    victim = leaders(cluster, topic)[0]
    DiskSwitch(cluster.home(victim)).error(f"data/{topic}-0", writes=False)
    assert produced(cluster, topic, 10) == 10  # the followers cannot get them from the victim
    ends_with_failed_disk(cluster, victim)
    cluster.start_node(victim)
    all_in_sync(cluster, topic)


@pytest.mark.row("C1")
def test_slow_disks_slow_things_down_and_no_more(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, "slow")
    numbers = count(1)

    def nobody_moves() -> bool:
        """Where the machine itself stands still, somebody does."""
        before, victim = controller(cluster), leaders(cluster, topic)[0]
        DiskSwitch(cluster.home(victim)).slow(40, f"data/{topic}-0")
        DiskSwitch(cluster.home(before[0])).slow(40, "data/raft")
        started = time.monotonic()
        assert produced(cluster, topic, 25) == 25
        is_slow = time.monotonic() - started >= 1.0
        new_topic(cluster, f"slowly-made-{next(numbers)}")
        for node in NODES:
            DiskSwitch(cluster.home(node)).heal()
        return is_slow and controller(cluster) == before and leaders(cluster, topic)[0] == victim

    wait_until(nobody_moves, "it takes longer, and leader and controller stay what they are")
    all_in_sync(cluster, topic)


@pytest.mark.row("L7", "C1")
def test_a_torn_tail_is_cut_at_the_last_whole_batch_and_fetched_again(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, "torn", partitions=3)
    assert produced(cluster, topic, 90, partitions=3) == 90
    victim, data = 2, cluster.home(2) / "data"
    cluster.kill(victim)
    random = Random(5)
    for number in range(3):
        tear_tail(data / f"{topic}-{number}", random, batches=5)
    tear_journal(data / "raft", random)
    cluster.start_node(victim)
    all_in_sync(cluster, topic)
    for number in range(3):
        mine, whole = (cluster.home(n) / "data" / f"{topic}-{number}" / LOG for n in (victim, 1))
        assert mine.read_bytes() == whole.read_bytes()


@pytest.mark.row("L7", "C1")
def test_a_flipped_bit_costs_one_replica_and_no_data(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, "flipped", partitions=2)
    assert produced(cluster, topic, 60, partitions=2) == 60
    victim = leaders(cluster, topic)[0]
    partition = cluster.home(victim) / "data" / f"{topic}-0"
    cluster.kill(victim)
    flip_bit(partition, 15, Random(3))
    damaged = (partition / LOG).read_bytes()
    cluster.start_node(victim)
    wait_until(lambda: victim in isrs(cluster, topic)[1], "the other partition is in sync")
    assert f"{topic}-0 stays offline: {partition / LOG} is corrupt at byte" in said(cluster, victim)
    assert "(offset 15)" in said(cluster, victim)
    assert victim not in isrs(cluster, topic)[0]
    leads_no_longer(cluster, topic, victim)
    assert produced(cluster, topic, 20, partitions=2) == 20
    assert (partition / LOG).read_bytes() == damaged


@pytest.mark.row("C1")
def test_clocks_that_are_set_move_nobody(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, "clocks", partitions=3)
    assert produced(cluster, topic, 30, partitions=3) == 30
    numbers = count()

    def places() -> tuple[dict[int, int], tuple[int, int]]:
        return leaders(cluster, topic), controller(cluster)

    def nobody_moves() -> bool:
        """Where the machine itself stands still, somebody does."""
        before = places()
        marks = {node: len(said(cluster, node)) for node in NODES}
        number = next(numbers)
        for node, hours in ((1, 1), (2, -1), (3, 0)):
            ClockSwitch(cluster.home(node)).shift((-1) ** number * hours * 3_600_000)
        assert produced(cluster, topic, 300, partitions=3) == 300
        new_topic(cluster, f"made-then-{number}")
        news = [line for node in NODES for line in said(cluster, node)[marks[node] :].splitlines()]
        warnings = [line for line in news if "WARNING" in line and "the loop stood still" not in line]
        return places() == before and not warnings and not any("fenced" in line for line in news)

    wait_until(nobody_moves, "everybody stays what he is")
    cluster.kill(1)
    assert produced(cluster, topic, 30, partitions=3) == 30
    cluster.start_node(1)
    all_in_sync(cluster, topic)
    for node in NODES:
        ClockSwitch(cluster.home(node)).shift(0)

    def nobody_moves_back() -> bool:
        now = places()
        assert produced(cluster, topic, 30, partitions=3) == 30
        return places() == now

    wait_until(nobody_moves_back, "everybody stays what he is")
