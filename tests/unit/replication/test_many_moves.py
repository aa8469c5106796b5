"""Replicas whose copies are complete at the same moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.virtual_loop import run_virtually
from tests.unit.replication.cluster import Cluster, until

DIRECTORIES = ("/data/a", "/data/b")


@pytest.mark.row("L8", "P7")
def test_no_two_moves_end_in_one_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the names of its files: hundreds of them made turns of a tenth of a second."""

    async def test() -> None:
        async with Cluster(1, directories=DIRECTORIES) as cluster:
            cluster.create_topic("t", [[1]] * 8)
            partitions, ends = cluster.brokers[1].partitions, [0]
            replace, loop = partitions.logs.replace, asyncio.get_running_loop()

            def noted(*move: Any) -> None:
                ends[-1] += 1
                loop.call_soon(ends.append, 0)
                replace(*move)

            monkeypatch.setattr(partitions.logs, "replace", noted)
            for replica in partitions:
                here = partitions.logs.dir_of(replica).path
                partitions.move(replica.tp, next(path for path in DIRECTORIES if path != here))
            await until(lambda: sum(ends) == len(partitions))
            assert max(ends) == 1

    run_virtually(test())
