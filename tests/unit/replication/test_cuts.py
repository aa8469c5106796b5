"""Cuts of a follower's log, beside all that may happen to the replica meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.replication.cluster import Cluster
from tests.unit.replication.test_following import in_loop
from tests.unit.replication.test_incarnations import Executor
from tests.unit.replication.test_replica_manager import follower_with_three_durable_records

CLEAN = "/data/.kafka_cleanshutdown"


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 5])
@in_loop
async def test_a_clean_stop_ends_wherever_a_cut_has_got_to(steps):
    cluster = Cluster(2)
    follower = await follower_with_three_durable_records(cluster)
    broker = cluster.brokers[2]
    executor = Executor()
    broker.partitions._blocking = executor
    follower.truncate_to(2, lambda done: None)
    for _ in range(steps):
        await executor.run_next()
    stop = asyncio.ensure_future(broker.close())
    await turns()
    executor.release()
    try:
        async with asyncio.timeout(10):
            await stop
    finally:
        await cluster.brokers[1].close()
    assert cluster.disks[2].exists(CLEAN)
