"""flush.messages=1: a follower asks for more only behind what it has on disk, whatever makes it ask."""

from __future__ import annotations

import pytest

from metadata_quorum.foundation.errors import ErrorCode
from tests.unit.replication.cluster import Cluster, in_loop, produce_outcome, turns, until
from tests.unit.replication.held_executor import HeldExecutor

pytestmark = pytest.mark.row("R4")


async def unflushed_on_the_follower(cluster: Cluster) -> HeldExecutor:
    """Two records on broker 2, of which the second one is not durable."""
    cluster.create_topic("t", [[1, 2]], flush_messages="1")
    cluster.create_topic("u", [[1, 2]])
    assert await produce_outcome(cluster, b"a") is ErrorCode.NONE
    held = cluster.brokers[2].executor = HeldExecutor()
    cluster.produce(b"b")
    follower = cluster.replica(2).log
    await until(lambda: follower.log_end_offset == 2)
    await until(lambda: cluster.leader().log.recovery_point == 2)
    assert follower.recovery_point == 1
    return held


async def fetched_again(cluster: Cluster) -> None:
    """Twice, for another partition."""
    for _ in range(2):
        offset = cluster.produce(b"x", topic="u")
        await until(lambda offset=offset: cluster.leader("u").high_watermark == offset)


@in_loop
async def test_over_a_new_connection():
    async with Cluster(2) as cluster:
        held = await unflushed_on_the_follower(cluster)
        cluster.cuts.add((2, 1))
        await turns()
        cluster.cuts.clear()
        await fetched_again(cluster)
        seen = cluster.leader().high_watermark
        held.release()
        assert seen == 1, "only one copy of the second record is on disk"
        await until(lambda: cluster.leader().high_watermark == 2)


@in_loop
async def test_in_a_new_leader_epoch():
    async with Cluster(2) as cluster:
        held = await unflushed_on_the_follower(cluster)
        before = cluster.leader().leader_epoch
        cluster.elect("t", 0, 1)  # again
        assert cluster.leader().leader_epoch == before + 1
        await fetched_again(cluster)
        seen = cluster.leader().high_watermark
        held.release()
        assert seen == 1, "only one copy of the second record is on disk"
        await until(lambda: cluster.leader().high_watermark == 2)
