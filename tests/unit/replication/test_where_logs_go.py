"""In which log directory a new log is made."""

from __future__ import annotations

from collections import Counter

import pytest

from data_plane.log_manager.log_dirs import LogDir
from tests.support.virtual_loop import run_virtually
from tests.unit.replication.cluster import Cluster, until

pytestmark = pytest.mark.row("L8")

A, B = "/data/a", "/data/b"


def _held(cluster: Cluster) -> dict[str, int]:
    return Counter(directory.path for directory in cluster.brokers[1].partitions.logs.replicas.values())


def test_a_new_log_goes_where_the_fewest_are_whatever_has_come_moved_or_gone() -> None:
    async def run() -> None:
        async with Cluster(1, directories=(A, B)) as cluster:
            cluster.create_topic("t", [[1]] * 6)
            assert _held(cluster) == {A: 3, B: 3}
            partitions, moved = cluster.brokers[1].partitions, cluster.replica(1)
            source = partitions.logs.dir_of(moved).path
            target = B if source == A else A
            partitions.move(moved.tp, target)
            await until(lambda: partitions.logs.dir_of(moved).path == target)
            assert _held(cluster) == {source: 2, target: 4}
            added = cluster.create_topic("u", [[1]] * 4)
            assert _held(cluster) == {source: 5, target: 5}
            cluster.delete_topic(added)
            cluster.create_topic("v", [[1]] * 3)
            assert abs(_held(cluster)[source] - _held(cluster)[target]) == 1

    run_virtually(run())


def test_where_a_log_goes_costs_the_same_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def counted(directory: LogDir) -> int:
        nonlocal looked_at
        looked_at += 1
        return id(directory)

    async def cost_of_one_more(logs: int) -> int:
        nonlocal looked_at
        async with Cluster(1, directories=(A, B)) as cluster:
            cluster.create_topic("many", [[1]] * logs)
            looked_at = 0
            cluster.create_topic("one", [[1]])
            return looked_at

    async def run() -> None:
        assert await cost_of_one_more(100) == await cost_of_one_more(10)

    monkeypatch.setattr(LogDir, "__hash__", counted)
    run_virtually(run())
