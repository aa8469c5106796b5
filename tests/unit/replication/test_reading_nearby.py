"""Consumers that read from a replica in their rack: which one, what they are answered, and what it learns."""

from __future__ import annotations

import pytest

from data_plane.replication.partition import Partition
from fetch.follower_session import FetchLimits
from fetch.replica_selector import STAY, nearest_replica
from metadata_quorum.foundation.errors import ErrorCode
from tests.unit.replication.cluster import Cluster, in_loop, until
from tests.unit.replication.fetch_session import Consumer, want

pytestmark = pytest.mark.row("R11")

RACKS = {1: "a", 2: "b", 3: "b", 4: None}


def nearest(replica: Partition, offset: int, rack: str) -> int:
    return nearest_replica(replica, offset, rack, RACKS.get)


@in_loop
async def test_the_furthest_replica_in_sync_in_the_rack_is_named() -> None:
    async with Cluster(4) as cluster:
        cluster.create_topic("t", [[1, 2, 3, 4]])
        cluster.produce(b"a", b"b")
        leader = cluster.replica(1)
        await until(lambda: leader.high_watermark == 2)
        assert leader.leader is not None
        behind, ahead = leader.leader.followers[2], leader.leader.followers[3]
        behind.log_end_offset, ahead.log_end_offset = 1, 2
        assert nearest(leader, 0, "b") == 3
        assert nearest(leader, 2, "b") == 3
        assert nearest(leader, 3, "b") == STAY  # nobody has it yet
        ahead.log_start_offset = 1
        assert nearest(leader, 0, "b") == 2  # the other one has thrown it away
        leader.leader.isr = (1, 3, 4)
        assert nearest(leader, 0, "b") == STAY
        assert nearest(leader, 0, "a") == STAY  # the leader's own
        assert nearest(leader, 0, "c") == STAY
        assert nearest(cluster.replica(2), 0, "b") == STAY  # only a leader knows


@in_loop
async def test_who_is_sent_elsewhere_gets_no_records_and_does_not_wait() -> None:
    async with Cluster(2) as cluster:
        topic_id = cluster.create_topic("t", [[1, 2]])
        cluster.produce(b"a")
        await until(lambda: cluster.replica(2).high_watermark == 1)
        consumer = Consumer(cluster, max_wait_ms=60_000, preferred_replica_of=lambda replica, offset: 2)
        (partition,) = (await consumer.fetch(want(topic_id))).partitions
        assert (partition.error, partition.preferred_read_replica, partition.slice) == (
            ErrorCode.NONE,
            2,
            None,
        )
        assert partition.high_watermark == 1
        # The follower has no leader's knowledge, so it serves: the one that sent them does not matter.
        there = Consumer(cluster, broker_id=2, preferred_replica_of=lambda replica, offset: 1)
        (found,) = (await there.fetch(want(topic_id))).partitions
        assert (found.preferred_read_replica, found.slice is not None) == (-1, True)


@in_loop
async def test_a_follower_that_serves_hears_of_a_high_watermark_at_once() -> None:
    """Not with its next fetch, which would be answered in a minute."""
    async with Cluster(2, limits=FetchLimits(max_wait_ms=60_000)) as cluster:
        service = cluster.brokers[1].fetches
        cluster.create_topic("t", [[1, 2]])
        await until(lambda: service.parked == 1)
        cluster.produce(b"a")
        await until(lambda: cluster.replica(1).high_watermark == 1 and service.parked == 1)
        assert cluster.replica(2).high_watermark == 0
    async with Cluster(2, limits=FetchLimits(max_wait_ms=60_000)) as cluster:
        service = cluster.brokers[1].fetches
        service.sessions.prompt = True
        cluster.create_topic("t", [[1, 2]])
        await until(lambda: service.parked == 1)
        cluster.produce(b"a")
        await until(lambda: cluster.replica(2).high_watermark == 1, "it hears of it")
        await until(lambda: service.parked == 1, "and waits again, with nothing to tell")
