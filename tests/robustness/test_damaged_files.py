"""Files that were damaged while a node was down: what can be made again is, good data is never truncated."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.local_cluster import LocalCluster
from tests.robustness.traffic import QUIET, isrs, produced
from tests.support.nodes.cluster import running_cluster
from tests.support.waiting import wait_until

TOPIC = "damaged"
VICTIM = 2
FLIPPED, NO_INDEX, TORN, NO_EPOCHS, WRONG_INDEX, NO_IDENTITY = range(6)
RECORDS = 600
LOG = "00000000000000000000.log"


def flip_in_the_middle(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)


def damage_everything(data: Path) -> None:
    """A different damage in each partition, and in all checkpoints."""
    flip_in_the_middle(data / f"{TOPIC}-{FLIPPED}" / LOG)
    for index in (data / f"{TOPIC}-{NO_INDEX}").glob("*index"):
        index.unlink()
    torn = data / f"{TOPIC}-{TORN}" / LOG
    os.truncate(torn, torn.stat().st_size - 7)
    (data / f"{TOPIC}-{NO_EPOCHS}" / "leader-epoch-checkpoint").write_bytes(bytes(range(99, 140)))
    (data / f"{TOPIC}-{NO_EPOCHS}" / "00000000000000000001.snapshot").write_bytes(bytes(range(50)))
    for index in (data / f"{TOPIC}-{WRONG_INDEX}").glob("*index"):
        index.write_bytes(bytes(range(100)))
    (data / f"{TOPIC}-{NO_IDENTITY}" / "partition.metadata").write_text("version: 0\ntopic_id: ???\n")
    for name in ("replication-offset", "recovery-point-offset", "log-start-offset"):
        (data / f"{name}-checkpoint").write_bytes(bytes(range(128, 190)))


@pytest.fixture(scope="module")
def damaged(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    """Three nodes; one was killed, its files damaged, and it runs again."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), free_ports(9)) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        settings = {"min.insync.replicas": "2"}
        admin.create_topics([NewTopic(TOPIC, 6, 3, config=settings)])[TOPIC].result()
        assert produced(cluster, TOPIC, RECORDS, partitions=6) == RECORDS
        cluster.kill(VICTIM)
        data = cluster.home(VICTIM) / "data"
        damage_everything(data)
        (data / "before").write_bytes((data / f"{TOPIC}-{FLIPPED}" / LOG).read_bytes())
        cluster.start_node(VICTIM)
        yield cluster


def partition_dir(cluster: LocalCluster, number: int, node: int = VICTIM) -> Path:
    return cluster.home(node) / "data" / f"{TOPIC}-{number}"


@pytest.mark.row("L7", "R8")
@pytest.mark.parametrize("number", [NO_INDEX, TORN, NO_EPOCHS, WRONG_INDEX])
def test_what_can_be_made_again_is(damaged: LocalCluster, number: int):
    wait_until(lambda: VICTIM in isrs(damaged, TOPIC)[number], "the replica is in sync again")
    whole = partition_dir(damaged, number, node=1) / LOG
    mine = partition_dir(damaged, number) / LOG
    wait_until(lambda: mine.read_bytes() == whole.read_bytes(), "the replicas are the same")


@pytest.mark.row("L7")
@pytest.mark.parametrize("number", [FLIPPED, NO_IDENTITY])
def test_what_cannot_is_taken_offline_alone(damaged: LocalCluster, number: int):
    wait_until(
        lambda: all(VICTIM in isrs(damaged, TOPIC)[n] for n in (NO_INDEX, TORN, NO_EPOCHS, WRONG_INDEX)),
        "the rest of the node works",
    )
    assert VICTIM not in isrs(damaged, TOPIC)[number]
    said = (damaged.home(VICTIM) / "node.log").read_text()
    assert f"{TOPIC}-{number} stays offline: " in said
    assert "Traceback" not in said


@pytest.mark.row("L7")
def test_good_data_behind_the_damage_is_not_truncated(damaged: LocalCluster):
    before = (damaged.home(VICTIM) / "data" / "before").read_bytes()
    assert (partition_dir(damaged, FLIPPED) / LOG).read_bytes() == before


@pytest.mark.row("L7")
def test_the_partition_is_served_by_the_others(damaged: LocalCluster):
    assert produced(damaged, TOPIC, 60, partitions=6) == 60
