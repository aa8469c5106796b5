"""Cuts of a follower's log, beside all that may happen to the replica meanwhile."""

from __future__ import annotations

import asyncio
import errno

import pytest

from metadata_quorum.foundation.errors import BrokerError
from tests.unit.replication.cluster import Cluster, batch, boundary_of, in_loop, until
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
    broker.executor = executor
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


@pytest.mark.parametrize("flush_messages", ["1", str(2**63 - 1)])
@pytest.mark.parametrize("operation", ["append", "sync"])
@in_loop
async def test_what_lies_in_a_failed_directory_is_followed_no_longer(operation, flush_messages):
    """Not the replica whose disk has failed, nor its neighbour: acks=all is not answered on their word."""
    async with Cluster(2) as cluster:
        boundary_of(cluster)
        configs = {"min_insync_replicas": "2", "flush_messages": flush_messages}
        cluster.create_topic("t", [[1, 2], [1, 2]], **configs)
        followers = [cluster.replica(2, number=number) for number in (0, 1)]
        for number in (0, 1):
            cluster.produce(b"x", number=number)
        await until(lambda: [f.log.log_end_offset for f in followers] == [1, 1])
        await until(lambda: [cluster.leader(number=n).high_watermark for n in (0, 1)] == [1, 1])
        cluster.disks[2].fail(operation, errno.EIO, path_part="t-0", count=1)
        cluster.produce(b"y")
        if operation == "sync":
            await until(lambda: followers[0].log.log_end_offset == 2)
            cluster.brokers[2].partitions.executor.flush(followers[0])
        await until(lambda: followers[0].offline and followers[1].offline)
        assert len(cluster.brokers[2].fetchers) == 0
        ends = [f.log.log_end_offset for f in followers]
        for _ in range(3):
            for number in (0, 1):
                cluster.produce(b"z", number=number)
            await asyncio.sleep(0.02)
        assert [f.log.log_end_offset for f in followers] == ends
        assert cluster.leader(number=1).high_watermark == 1
        if flush_messages == "1":
            assert cluster.leader().high_watermark == 1


@in_loop
async def test_a_replica_that_is_offline_takes_nothing_from_its_leader():
    async with Cluster(2) as cluster:
        boundary_of(cluster)
        follower = await follower_with_three_durable_records(cluster)
        broker = cluster.brokers[2]
        broker.partitions.log_dir_failures.fail(broker.dirs[0], OSError(errno.EIO, "broken"))
        outcomes: list[bool] = []
        follower.truncate_to(1, outcomes.append)
        assert outcomes == [False]
        for change in (
            lambda: follower.restart_at(7),
            lambda: follower.append_as_follower(memoryview(batch(b"z")), 3, 0, cluster.now_ms),
        ):
            with pytest.raises(BrokerError):
                change()
        assert follower.log.log_end_offset == 3
