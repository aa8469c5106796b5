"""Real clusters for tests: nodes as processes, on free ports, in temporary directories, ended by pid.

`cluster` is a module's own, to be broken at will. `shared_cluster` serves all tests of a worker that only
want to use one: they make topics of their own, and leave the nodes as they found them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kraft.local_cluster import LocalCluster

NO_SWEEP = {"log.retention.check.interval.ms": str(24 * 3600 * 1000)}
"""Tests send records with times of 1970, which a sweep would rightly delete from under them."""
PROMPT_GROUPS = {"group.consumer.min.heartbeat.interval.ms": "100"}
"""A group may be set to hear of a rebalance soon."""


@contextlib.contextmanager
def running_cluster(
    directory: Path, ports: list[int], settings: Mapping[str, str] | None = None
) -> Iterator[LocalCluster]:
    """Combined nodes, as many as a third of the ports, registered and unfenced."""
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


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    """Three combined nodes, registered and unfenced; ended by pid whatever the tests did."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), free_ports(9)) as running:
        yield running


@pytest.fixture(scope="session")
def shared_cluster(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    """Three combined nodes for all tests of this worker."""
    with running_cluster(
        tmp_path_factory.mktemp("shared"), free_ports(9), NO_SWEEP | PROMPT_GROUPS
    ) as running:
        yield running
