"""Real clusters for tests: nodes as processes, on free ports, in temporary directories, ended by pid.

`shared_cluster` serves all tests of a worker: they make topics and groups of their own, and leave the nodes
as they found them. Who kills nodes asks for `cluster`, which is the same one, and is made whole afterwards.
Who needs other settings makes one with `running_cluster`; that costs a second and more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from kraft.peers.blocking_client import out_of_sync
from tests.support.waiting import wait_until

NO_SWEEP = {"log.retention.check.interval.ms": str(24 * 3600 * 1000)}
"""Tests send records with times of 1970, which a sweep would rightly delete from under them."""
FEW_COORDINATORS = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"}
"""Kafka has 50 of each: to make their logs is most of what a cluster's first group costs."""
PROMPT_GROUPS = {"group.consumer.min.heartbeat.interval.ms": "100"}
"""A group may be set to hear of a rebalance soon."""


@contextlib.contextmanager
def running_cluster(
    directory: Path, ports: list[int], settings: Mapping[str, str] | None = None
) -> Iterator[LocalCluster]:
    """Combined nodes, as many as a third of the ports, registered and unfenced."""
    settings = {**FEW_COORDINATORS, **NO_SWEEP, **(settings or {})}
    made = LocalCluster.create(directory, nodes=len(ports) // 3, ports=ports, settings=settings)
    with ended_at_once(made) as running:
        running.start()
        yield running


@contextlib.contextmanager
def ended_at_once(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """Nobody reads what a shutdown in order would write, and the last node of one waits for a quorum."""
    try:
        yield cluster
    finally:
        cluster.close(patience_s=0)


@pytest.fixture(scope="session")
def shared_cluster(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    """Three combined nodes for all tests of this worker, registered and unfenced."""
    with running_cluster(tmp_path_factory.mktemp("shared"), free_ports(9), PROMPT_GROUPS) as running:
        yield running


@pytest.fixture
def cluster(shared_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The same, for a test that kills nodes: after it they run again."""
    yield shared_cluster
    make_whole(shared_cluster)


def make_whole(cluster: LocalCluster) -> None:
    """Every node runs, and every partition has all its replicas in sync."""
    for node in cluster.nodes.values():
        if node.process() is None:
            cluster.start_node(node.id, wait=False)
        else:
            cluster.resume(node.id)
    cluster.wait_ready()
    for node in cluster.nodes.values():
        wait_until(lambda port=node.client_port: not out_of_sync(HOST, port), "all replicas are in sync")
