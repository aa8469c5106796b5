"""flush.messages=1: a follower asks for more only behind what it has on disk, whatever makes it ask; and who
waits for a flush gets one."""

from __future__ import annotations

import pytest

from data_plane.log.flush import FlushWork
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.records import ConfigRecord
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


@in_loop
async def test_who_waits_for_a_flush_gets_one_though_the_topic_is_configured_otherwise_meanwhile():
    """A produce with acks=1 has no deadline, and every answer behind it on its connection waits for it."""
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]], flush_messages="1")
        held = cluster.brokers[1].executor = HeldExecutor()

        def is_flushing() -> bool:
            return any(isinstance(getattr(work, "__self__", None), FlushWork) for work, _ in held.waiting)

        cluster.produce(b"a", acks=1)
        await until(is_flushing)
        cluster.produce(b"b", acks=1)  # too late for that flush
        flushed: list[ErrorCode] = []
        cluster.leader().when_flushed(flushed.append)
        cluster.commit(
            ConfigRecord(
                resource_type=ResourceType.TOPIC, resource_name="t", name="flush.messages", value="1000"
            )
        )
        held.release()
        await turns()
        assert flushed == [ErrorCode.NONE]
        assert cluster.leader().log.recovery_point == 2
