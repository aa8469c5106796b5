"""When a produce is acknowledged: by which replicas, after which fsync, and what it hears instead."""

from __future__ import annotations

import asyncio

import pytest

from data_plane.log.append import AppendInfo
from data_plane.purgatory.purgatory import DelayedOperation
from data_plane.replication.delayed_produce import add_deletion, await_replication
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.metadata.records import ConfigRecord
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster, in_loop, produce_outcome, turns, until


@pytest.mark.row("R1", "R2", "R4")
@in_loop
async def test_acks_all_is_answered_when_all_in_sync_replicas_have_the_record():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        for i in range(20):
            assert await produce_outcome(cluster, b"value %d" % i) == ErrorCode.NONE
            assert cluster.leader().high_watermark == i + 1
            assert all(cluster.replica(b).log.log_end_offset == i + 1 for b in (2, 3))
        # Followers learn the high watermark one fetch later: with the next append at the latest.
        await until(lambda: all(cluster.replica(b).high_watermark >= 19 for b in (2, 3)))
        data = [bytes(cluster.replica(b).log.read(0, 1 << 20).read(MAY_BLOCK)) for b in (1, 2, 3)]
        assert data[0] == data[1] == data[2]


@pytest.mark.row("R4")
@in_loop
async def test_below_min_insync_replicas_a_produce_is_refused_before_and_after_the_append():
    async with Cluster(lag_time_max=0.02) as cluster:
        cluster.create_topic("t", [[1, 2, 3]], min_insync_replicas="2")
        assert await produce_outcome(cluster, b"a") == ErrorCode.NONE
        cluster.cuts |= {(2, 1), (3, 1)}
        for broker in (2, 3):
            for endpoint in cluster.brokers[broker].endpoints:
                endpoint.break_off()
        waiting = asyncio.ensure_future(produce_outcome(cluster, b"b"))
        sweeper = cluster.brokers[1].partitions
        await until(lambda: (sweeper.maybe_shrink_isr(), cluster.isr() == (1,))[1])
        assert await waiting == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        with pytest.raises(BrokerError) as refused:
            cluster.produce(b"c")
        assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
        # acks=1 goes on, but nobody can read it: the high watermark stands still.
        cluster.produce(b"d", acks=1)
        assert cluster.leader().high_watermark == 1
        cluster.cuts.clear()
        await until(lambda: cluster.leader().high_watermark == 3)


@pytest.mark.row("R4")
@in_loop
async def test_a_lower_min_insync_replicas_lets_the_high_watermark_rise_at_once():
    """Followers that have everything say nothing more that it could rise with."""
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]], min_insync_replicas="3")
        assert await produce_outcome(cluster, b"a") == ErrorCode.NONE
        cluster.fence(3)
        cluster.produce(b"b", acks=1)
        known = cluster.leader().leader.followers[2]
        await until(lambda: known.log_end_offset == 2)
        assert cluster.leader().high_watermark == 1
        lowered = ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2")
        cluster.commit(lowered)
        assert cluster.leader().high_watermark == 2


@pytest.mark.row("R4")
@in_loop
async def test_what_was_not_flushed_is_flushed_when_it_has_to_be_to_count():
    async with Cluster(2) as cluster:
        cluster.create_topic("t", [[1, 2]])
        cluster.cuts.add((2, 1))
        for endpoint in cluster.brokers[2].endpoints:
            endpoint.break_off()
        cluster.produce(b"a", acks=1)
        each = ConfigRecord(resource_type=2, resource_name="t", name="flush.messages", value="1")
        cluster.commit(each)
        cluster.cuts.clear()
        await until(lambda: cluster.leader().high_watermark == 1)
        assert cluster.leader().log.recovery_point == 1


@pytest.mark.row("R4")
@in_loop
async def test_a_smaller_isr_counts_once_the_metadata_says_which_min_insync_replicas_it_was_judged_by():
    """Else the leader acknowledges alone what the replica that has just become eligible does not have."""
    async with Cluster(2, lag_time_max=0.02) as cluster:
        cluster.create_topic("t", [[1, 2]], min_insync_replicas="1")
        assert await produce_outcome(cluster, b"a") == ErrorCode.NONE
        cluster.cuts |= {(2, 1)}
        for endpoint in cluster.brokers[2].endpoints:
            endpoint.break_off()
        cluster.produce(b"b")
        cluster.held_back.add(1)  # it has not heard yet of what follows
        raised = ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2")
        cluster.commit(raised)
        sweeper = cluster.brokers[1].partitions
        await until(lambda: (sweeper.maybe_shrink_isr(), cluster.isr() == (1,))[1])
        await turns()
        assert cluster.leader().high_watermark == 1
        cluster.catch_up(1)
        assert cluster.leader().leader.isr == (1,)
        assert cluster.leader().high_watermark == 1


@pytest.mark.row("R4")
@in_loop
async def test_who_begins_to_wait_below_min_insync_replicas_is_told_at_once():
    """Of a request of very many partitions the first are appended long before the last."""
    async with Cluster(lag_time_max=0.02) as cluster:
        cluster.create_topic("t", [[1, 2, 3]], min_insync_replicas="2")
        cluster.cuts |= {(2, 1), (3, 1)}
        for endpoint in cluster.brokers[2].endpoints + cluster.brokers[3].endpoints:
            endpoint.break_off()
        appended = (cluster.leader(), cluster.produce(b"a"), cluster.leader().leader_epoch)
        await until(lambda: (cluster.brokers[1].partitions.maybe_shrink_isr(), cluster.isr() == (1,))[1])
        await until(lambda: cluster.leader().leader.under_min_isr)
        outcomes: list[ErrorCode] = []
        await_replication([appended], timer=cluster.brokers[1].timer, timeout=10, on_done=outcomes.extend)
        assert outcomes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


@pytest.mark.row("R4")
@in_loop
async def test_a_produce_that_is_not_replicated_in_time_times_out():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        cluster.cuts |= {(2, 1), (3, 1)}
        assert await produce_outcome(cluster, b"a", timeout=0.02) == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.row("P1", "L3")
@in_loop
async def test_delete_records_waits_until_all_replicas_begin_there():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        for _ in range(5):
            await produce_outcome(cluster, b"x")
        leader = cluster.leader()
        offset = leader.delete_records(3)
        done: asyncio.Future[list[ErrorCode]] = cluster.loop.create_future()
        wait = DelayedOperation(done.set_result)
        add_deletion(wait, leader, offset)
        wait.start(cluster.brokers[1].timer, 10)
        assert not done.done()
        assert await done == [ErrorCode.NONE]
        assert [cluster.replica(b).log.log_start_offset for b in (1, 2, 3)] == [3, 3, 3]
        with pytest.raises(BrokerError) as refused:
            leader.delete_records(99)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.row("P1", "L3")
@in_loop
async def test_delete_records_is_not_confirmed_by_who_loses_leadership_before_the_others_are_deleted():
    """Of a request of very many partitions the first are deleted from long before the last. Its own log
    begins there, but nobody knows of the others'."""
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        for _ in range(5):
            await produce_outcome(cluster, b"x")
        cluster.cuts |= {(2, 1), (3, 1)}
        leader = cluster.leader()
        outcomes: list[ErrorCode] = []
        wait = DelayedOperation(outcomes.extend)
        add_deletion(wait, leader, leader.delete_records(3))
        cluster.elect("t", 0, 2)
        wait.start(cluster.brokers[1].timer, 10)
        assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@in_loop
async def test_flush_messages_one_acknowledges_only_what_all_in_sync_replicas_have_fsynced():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]], flush_messages="1")
        for _ in range(3):
            assert await produce_outcome(cluster, b"x") == ErrorCode.NONE
            hw = cluster.leader().high_watermark
            assert all(cluster.replica(b).log.recovery_point >= hw for b in (1, 2, 3))


@in_loop
async def test_who_waits_for_a_flush_learns_that_leadership_was_lost():
    """The records may be truncated then, and the flush that was waited for never come."""
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2]], flush_messages="1")
        leader = cluster.leader()
        cluster.produce(b"x", acks=1)
        codes: list[ErrorCode] = []
        leader.when_flushed(codes.append)
        cluster.elect("t", 0, 2)
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.row("P3")
@in_loop
async def test_a_repeated_batch_keeps_its_offset_on_a_new_leader():
    """Also after that one had to truncate what the old leader alone had."""
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]])

        def sent(sequence: int) -> bytearray:
            records = [Record(value=b"%d" % sequence, timestamp=cluster.now_ms)]
            return bytearray(encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence))

        def append(sequence: int) -> AppendInfo:
            return cluster.leader().append_as_leader(
                sent(sequence), acks=-1, now=cluster.loop.time(), now_ms=cluster.now_ms
            )

        for sequence in range(6):
            append(sequence)
        await until(lambda: cluster.leader().high_watermark == 6)
        cluster.cuts |= {(2, 1), (3, 1)}
        for endpoint in cluster.brokers[2].endpoints + cluster.brokers[3].endpoints:
            endpoint.break_off()
        append(6)  # on broker 1 alone
        cluster.held_back.add(1)
        cluster.fence(1)
        assert cluster.leader().leader_id == 2
        for sequence in range(1, 6):
            info = append(sequence)
            assert (info.duplicate, info.first_offset) == (True, sequence)
        with pytest.raises(BrokerError) as refused:
            append(0)  # the sixth last
        assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert append(6).first_offset == 6
        append(7)
        await until(lambda: cluster.leader().high_watermark == 8)
        cluster.catch_up(1)
        await until(lambda: cluster.replica(1).log.log_end_offset == 8)
        assert cluster.replica(1).log.producers.states == cluster.leader().log.producers.states
