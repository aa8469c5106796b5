"""A real cluster for tests: three nodes as processes, on free ports, in a temporary directory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from kraft.local_cluster import LocalCluster


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    """Three combined nodes, registered and unfenced; ended by pid whatever the tests did."""
    directory = tmp_path_factory.mktemp("cluster")
    with contextlib.closing(LocalCluster.create(directory, ports=free_ports(9))) as running:
        running.start()
        yield running
