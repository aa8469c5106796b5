"""Nodes with two log directories each, of which one fails."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.live.disk_switch import DiskSwitch
from kraft.config.node_config import Config
from kraft.config.properties import parse_properties
from kraft.local.local_cluster import LocalCluster
from kraft.storage.formatter import format_storage
from metadata_quorum.foundation.disk import OsDisk
from tests.robustness.traffic import QUIET, isrs, leaders, produced
from tests.support.nodes.cluster import ended_at_once
from tests.support.waiting import wait_until

NODES = {1, 2, 3}
PARTITIONS = 4
SECOND = "second"


def format_dirs(cluster: LocalCluster, node: int) -> None:
    properties = parse_properties((cluster.home(node) / "server.properties").read_text())
    config, rng = Config.from_properties(properties), random.SystemRandom()
    format_storage(OsDisk(), config, cluster.cluster_id, rng, ignore_formatted=True)


@pytest.fixture
def cluster(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Iterator[LocalCluster]:
    cluster = LocalCluster.create(tmp_path, ports=free_ports(9), program=("chaos.live.process",))
    for node in NODES:
        home = cluster.home(node)
        cluster.configure(node, {"log.dirs": f"{home / 'data'},{home / SECOND}"})
        format_dirs(cluster, node)
    with ended_at_once(cluster):
        cluster.start()
        yield cluster


def new_topic(cluster: LocalCluster, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    config = {"min.insync.replicas": "2"}
    admin.create_topics([NewTopic(name, PARTITIONS, 3, config=config)])[name].result(60)
    all_in_sync(cluster, name)
    return name


def all_in_sync(cluster: LocalCluster, topic: str) -> None:
    wait_until(lambda: all(set(isr) == NODES for isr in isrs(cluster, topic).values()), "all are in sync")


def in_second(cluster: LocalCluster, node: int, topic: str) -> set[int]:
    """The partitions that a node keeps in its second directory."""
    return {n for n in range(PARTITIONS) if (cluster.home(node) / SECOND / f"{topic}-{n}").exists()}


def kept(cluster: LocalCluster, node: int, topic: str) -> dict[int, bytes]:
    found = {}
    for n in range(PARTITIONS):
        (log,) = cluster.home(node).glob(f"*/{topic}-{n}/00000000000000000000.log")
        found[n] = log.read_bytes()
    return found


@pytest.mark.heavy
@pytest.mark.row("L8", "C1")
@pytest.mark.parametrize("replaced", [False, True])
def test_one_failed_directory_takes_only_its_own_along(cluster: LocalCluster, replaced: bool) -> None:
    topic = new_topic(cluster, "two-dirs")
    assert produced(cluster, topic, 40, partitions=PARTITIONS) == 40
    victim = next(node for p, node in leaders(cluster, topic).items() if p in in_second(cluster, node, topic))
    lost = in_second(cluster, victim, topic)
    assert 0 < len(lost) < PARTITIONS
    before = leaders(cluster, topic)

    DiskSwitch(cluster.home(victim)).error(SECOND, reads=False)
    assert produced(cluster, topic, 40, partitions=PARTITIONS) == 40  # which meets the fault
    wait_until(
        lambda: all((victim in isr) == (p not in lost) for p, isr in isrs(cluster, topic).items()),
        "the lost replicas have left, and no other",
    )
    wait_until(
        lambda: all((node != victim) if p in lost else (node == before[p])
                    for p, node in leaders(cluster, topic).items()),
        "the lost ones have other leaders, and no other",
    )  # fmt: skip
    assert cluster.nodes[victim].process() is not None
    assert produced(cluster, topic, 40, partitions=PARTITIONS) == 40

    cluster.stop(victim)
    DiskSwitch(cluster.home(victim)).heal()
    if replaced:
        shutil.rmtree(cluster.home(victim) / SECOND)
        format_dirs(cluster, victim)
    cluster.start_node(victim)
    all_in_sync(cluster, topic)
    assert produced(cluster, topic, 40, partitions=PARTITIONS) == 40
    other = next(iter(NODES - {victim}))
    wait_until(
        lambda: kept(cluster, victim, topic) == kept(cluster, other, topic), "the replicas are the same"
    )
