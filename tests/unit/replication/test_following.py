"""Leaders, followers and a controller of a few lines in one event loop: the whole way of replication."""

from __future__ import annotations

import asyncio
import errno
import logging
from dataclasses import replace
from uuid import UUID

import pytest

from data_plane.log.config import LogConfig
from data_plane.log.epochs import EpochCache
from data_plane.replication.delayed_produce import await_replication
from data_plane.replication.offset_lookup import OffsetSearch, list_offset
from fetch.follower_session import FetchLimits
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.offset_timestamps import LATEST_TIMESTAMP
from metadata_quorum.metadata.records import (
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
)
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import (
    NOW_MS,
    Cluster,
    batch,
    in_loop,
    in_virtual_time,
    produce_outcome,
    until,
)


@pytest.mark.row("R1")
@in_loop
async def test_a_parked_follower_fetch_is_woken_by_an_append():
    async with Cluster(limits=FetchLimits(max_wait_ms=60_000)) as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        await until(lambda: cluster.brokers[1].fetches.parked == 2)
        before = [len(e.requests) for b in (2, 3) for e in cluster.brokers[b].endpoints]
        assert await produce_outcome(cluster, b"x") == ErrorCode.NONE
        after = [len(e.requests) for b in (2, 3) for e in cluster.brokers[b].endpoints]
        assert sum(after) - sum(before) == 2  # one fetch each, for the next record


@pytest.mark.row("R1")
@in_loop
async def test_a_new_partition_does_not_wait_for_a_parked_fetch_to_end():
    async with Cluster(limits=FetchLimits(max_wait_ms=60_000)) as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        await until(lambda: cluster.brokers[1].fetches.parked == 2)
        cluster.create_topic("u", [[1, 2, 3], [1, 3, 2]])
        for number in (0, 1):
            needed = cluster.produce(b"x", topic="u", number=number)
            await until(lambda n=number, o=needed: cluster.leader("u", n).high_watermark == o)
        assert cluster.brokers[1].fetches.parked == 2


@pytest.mark.row("R7")
@in_loop
async def test_idle_partitions_are_not_named_in_fetches():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]] * 50)
        await until(lambda: cluster.brokers[1].fetches.parked == 2)
        (endpoint,) = cluster.brokers[2].endpoints
        endpoint.requests.clear()
        for _ in range(5):
            needed = cluster.produce(b"x", number=7)
            await until(lambda n=needed: cluster.leader("t", 7).high_watermark == n)
        assert {p.partition for r in endpoint.requests for p in r.partitions} == {7}


@pytest.mark.row("R3")
@in_virtual_time
async def test_a_cut_off_follower_leaves_the_isr_by_time_and_comes_back_when_it_has_caught_up():
    async with Cluster(lag_time_max=0.05) as cluster:
        cluster.create_topic("t", [[1, 2, 3]], min_insync_replicas="2")
        assert await produce_outcome(cluster, b"a") == ErrorCode.NONE
        cluster.cuts.add((3, 1))
        for endpoint in cluster.brokers[3].endpoints:
            endpoint.break_off()
        sweeper = cluster.brokers[1].partitions
        needed = [cluster.produce(b"b%d" % i) for i in range(3)][-1]
        sweeper.maybe_shrink_isr()
        await asyncio.sleep(0)
        assert cluster.isr() == (1, 2, 3)  # three records behind, but not for long enough
        await until(lambda: (sweeper.maybe_shrink_isr(), cluster.isr() == (1, 2))[1])
        assert cluster.leader().high_watermark == needed
        cluster.cuts.clear()
        await until(lambda: set(cluster.isr()) == {1, 2, 3})
        assert cluster.replica(3).log.log_end_offset == needed


@pytest.mark.row("R3")
@in_virtual_time
async def test_an_idle_partition_keeps_its_isr():
    async with Cluster(lag_time_max=0.1, limits=FetchLimits(max_wait_ms=20)) as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        await produce_outcome(cluster, b"a")
        for _ in range(6):
            await asyncio.sleep(0.03)
            cluster.brokers[1].partitions.maybe_shrink_isr()
        # Even in the moment of an append after a long silence.
        cluster.produce(b"b")
        cluster.brokers[1].partitions.maybe_shrink_isr()
        await asyncio.sleep(0)
        assert set(cluster.isr()) == {1, 2, 3}


@pytest.mark.row("R5", "R2")
@in_loop
async def test_a_leader_dies_and_what_it_had_alone_is_truncated():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        for i in range(5):
            await produce_outcome(cluster, b"kept %d" % i)
        cluster.cuts |= {(2, 1), (3, 1)}
        for broker in (2, 3):
            for endpoint in cluster.brokers[broker].endpoints:
                endpoint.break_off()
        cluster.produce(b"lost", acks=1)
        await cluster.crash(1)
        cluster.fence(1)
        cluster.cuts.clear()
        assert cluster.leader().leader_id == 2
        await produce_outcome(cluster, b"new")
        cluster.start(1)
        await until(lambda: set(cluster.isr()) == {1, 2, 3})
        assert await produce_outcome(cluster, b"newer") == ErrorCode.NONE
        data = [bytes(cluster.replica(b).log.read(0, 1 << 20).read(MAY_BLOCK)) for b in (1, 2, 3)]
        assert data[0] == data[1] == data[2]
        assert b"lost" not in data[0]
        assert cluster.replica(1).log.epochs.entries == cluster.replica(2).log.epochs.entries


@pytest.mark.row("R5")
@in_loop
async def test_a_deposed_leader_that_opened_an_epoch_without_writing_in_it_follows_again():
    async with Cluster(2) as cluster:
        cluster.create_topic("t", [[1, 2]])
        await produce_outcome(cluster, b"a")
        cluster.elect("t", 0, 2)  # epoch 1, nothing written
        cluster.elect("t", 0, 1)  # epoch 2
        cluster.elect("t", 0, 2)  # epoch 3
        assert await produce_outcome(cluster, b"b") == ErrorCode.NONE
        await until(lambda: cluster.replica(1).log.epochs.latest == 3)


@pytest.mark.row("R2", "L5")
@in_loop
async def test_a_new_leader_does_not_tell_its_end_before_the_high_watermark_is_in_its_epoch():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        await produce_outcome(cluster, b"a")
        cluster.cuts |= {(1, 2), (3, 2)}
        before = cluster.replica(2).high_watermark
        await cluster.crash(1)
        cluster.fence(1)
        leader = cluster.leader()
        assert leader.leader_id == 2
        if before == 0:  # it had not heard of the high watermark yet
            with pytest.raises(BrokerError) as refused:
                list_offset(leader, LATEST_TIMESTAMP, replica=False, committed_only=False)
            assert refused.value.code == ErrorCode.OFFSET_NOT_AVAILABLE
        cluster.cuts.clear()
        await until(lambda: leader.high_watermark == 1)
        assert list_offset(leader, LATEST_TIMESTAMP, replica=False, committed_only=False).offset == 1


@pytest.mark.row("R6")
@in_loop
async def test_a_follower_whose_end_lies_before_the_leaders_start_starts_over_there():
    async with Cluster(log_defaults=replace(LogConfig(), file_delete_delay_ms=0)) as cluster:
        cluster.create_topic("t", [[1, 2]])
        await produce_outcome(cluster, b"a")
        await cluster.crash(2)
        cluster.fence(2)
        for _ in range(9):
            cluster.produce(b"more")
        leader = cluster.leader()
        assert leader.delete_records(8) == 8
        cluster.start(2)
        await until(lambda: set(cluster.isr()) == {1, 2})
        follower = cluster.replica(2)
        assert (follower.log.log_start_offset, follower.log.log_end_offset) == (8, 10)


@pytest.mark.row("R2", "L5")
@in_loop
async def test_who_lost_leadership_during_a_search_by_time_answers_nothing_of_it():
    """It may have truncated what was found, and taken something else in its place."""
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        await produce_outcome(cluster, b"a")
        search = list_offset(cluster.leader(), NOW_MS, replica=False, committed_only=False)
        assert isinstance(search, OffsetSearch)
        search.run(MAY_BLOCK)
        assert search.answer().offset == 0
        cluster.elect("t", 0, 2)
        with pytest.raises(BrokerError) as refused:
            search.answer()
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.row("R6")
@in_loop
async def test_a_follower_that_is_longer_than_an_uncleanly_elected_leader_is_truncated():
    async with Cluster(2) as cluster:
        cluster.create_topic("t", [[1, 2]])
        await produce_outcome(cluster, b"a")
        await cluster.crash(2)
        cluster.fence(2)
        for _ in range(3):
            cluster.produce(b"only on 1")
        await cluster.crash(1)
        cluster.fence(1)
        cluster.start(2)
        topic_id = cluster.image.topics_by_name["t"].id
        cluster.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(2,), leader=2))
        assert cluster.leader().leader_id == 2
        cluster.produce(b"instead")
        cluster.start(1)
        await until(lambda: set(cluster.isr()) == {1, 2})
        data = [bytes(cluster.replica(b).log.read(0, 1 << 20).read(MAY_BLOCK)) for b in (1, 2)]
        assert data[0] == data[1]
        assert cluster.replica(1).log.log_end_offset == 2


@pytest.mark.row("R6")
@in_loop
async def test_a_beginning_that_was_truncated_with_its_log_hides_no_later_records():
    """Its records were deleted up to the end; an uncleanly elected leader had few of them, and others have
    come since. Killed before the next checkpoint, it took the old beginning for that of the new records."""
    async with Cluster(2) as cluster:
        cluster.create_topic("t", [[2, 1]])
        await produce_outcome(cluster, b"on both")
        await cluster.crash(1)
        cluster.fence(1)
        for _ in range(9):
            await produce_outcome(cluster, b"only on 2")
        cluster.leader().delete_records(10)
        await cluster.brokers[2].partitions.checkpoints.write(everything=True)
        await cluster.crash(2)
        cluster.fence(2)
        cluster.start(1)
        topic_id = cluster.image.topics_by_name["t"].id
        cluster.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(1,), leader=1))
        cluster.start(2)
        await until(lambda: set(cluster.isr()) == {1, 2})
        for _ in range(12):
            assert await produce_outcome(cluster, b"on both") == 0
        await cluster.crash(2)
        cluster.start(2)
        log = cluster.replica(2).log
        assert (log.log_start_offset, log.log_end_offset) == (1, 13)


@pytest.mark.row("R4")
@in_loop
async def test_a_broker_that_is_registered_anew_while_it_runs_joins_where_nothing_is_written():
    """An operator has unregistered it by mistake. Its fetches go on, and name what has moved: the leader knew
    it by its old epoch, with which nobody joins, and with too few in the ISR nothing could be written."""
    async with Cluster(2) as cluster:
        cluster.create_topic("t", [[1, 2]], min_insync_replicas="2")
        assert await produce_outcome(cluster, b"a") == 0
        await until(lambda: cluster.replica(2).log.log_end_offset == 1)
        cluster.fence(2)
        assert cluster.isr() == (1,)
        epoch = cluster.image.offset + 100
        cluster.commit(RegisterBrokerRecord(broker_id=2, incarnation_id=UUID(int=epoch), broker_epoch=epoch))
        cluster.commit(UnfenceBrokerRecord(id=2, epoch=epoch))
        await until(lambda: set(cluster.isr()) == {1, 2})
        assert await produce_outcome(cluster, b"b") == 0


@pytest.mark.row("R9")
@in_loop
async def test_epochs_that_do_not_fit_are_refused_as_kafka_refuses_them():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        cluster.elect("t", 0, 2)
        leader, follower = cluster.replica(2), cluster.replica(1)
        for partition, epoch, code in (
            (leader, 0, ErrorCode.FENCED_LEADER_EPOCH),
            (leader, 2, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (follower, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (follower, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ):
            with pytest.raises(BrokerError) as refused:
                partition.check_epoch(epoch, leader_only=True)
            assert refused.value.code == code
        with pytest.raises(BrokerError) as refused:
            follower.append_as_leader(batch(b"x"), acks=1, now=0.0, now_ms=0)
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.row("R10")
@in_loop
async def test_with_all_replicas_down_the_last_member_of_the_isr_leads_again():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        await produce_outcome(cluster, b"a")
        for broker in (2, 3, 1):
            await cluster.crash(broker)
            cluster.fence(broker)
        assert cluster.isr() == (1,)
        cluster.start(2)
        cluster.start(3)
        assert cluster.image.partition(TopicPartition("t", 0)).leader == -1
        cluster.start(1)
        assert cluster.leader().leader_id == 1
        await until(lambda: len(cluster.isr()) == 3)
        assert await produce_outcome(cluster, b"b") == ErrorCode.NONE
        assert cluster.replica(3).log.log_end_offset == 2


@in_loop
async def test_a_follower_that_asks_before_the_leader_knows_comes_again():
    async with Cluster() as cluster:
        cluster.held_back.add(1)
        cluster.create_topic("t", [[1, 2, 3]])
        endpoint = cluster.brokers[2].endpoints[0]
        await until(lambda: len(endpoint.requests) > 3)
        cluster.catch_up(1)
        assert await produce_outcome(cluster, b"a") == ErrorCode.NONE


@in_loop
async def test_a_refused_isr_change_is_rolled_back_and_an_unanswered_one_is_asked_again():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        await cluster.crash(3)
        cluster.fence(3)
        cluster.refuse_isr += [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.UNKNOWN_SERVER_ERROR]
        cluster.start(3)
        await until(lambda: len(cluster.isr()) == 3)
        assert not cluster.refuse_isr


@in_loop
async def test_a_topic_deleted_and_made_again_under_its_name_begins_empty():
    async with Cluster(log_defaults=replace(LogConfig(), file_delete_delay_ms=0)) as cluster:
        topic_id = cluster.create_topic("t", [[1, 2, 3]])
        await produce_outcome(cluster, b"a")
        leader = cluster.leader()
        needed = cluster.produce(b"b")
        done: asyncio.Future[list[ErrorCode]] = cluster.loop.create_future()
        appended = (leader, needed, leader.leader_epoch)
        await_replication([appended], timer=cluster.brokers[1].timer, timeout=10, on_done=done.set_result)
        cluster.delete_topic(topic_id)
        assert await done == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        with pytest.raises(BrokerError):
            cluster.replica(1)
        cluster.create_topic("t", [[2, 1, 3]])
        assert cluster.leader().log.log_end_offset == 0
        assert await produce_outcome(cluster, b"c") == ErrorCode.NONE
        await until(lambda: [n for n in cluster.disks[1].list("/data", MAY_BLOCK) if "delete" in n] == [])
        assert "t-0" in cluster.disks[1].list("/data", MAY_BLOCK)


@in_loop
async def test_a_failing_disk_takes_its_log_directory_offline():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        await produce_outcome(cluster, b"a")
        cluster.disks[1].fail("append", errno.ENOSPC, path_part=".log")
        with pytest.raises(BrokerError) as refused:
            cluster.produce(b"b")
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not cluster.brokers[1].partitions.logs.dirs[0].online
        with pytest.raises(BrokerError) as refused:
            cluster.replica(1).check_epoch(-1, leader_only=True)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.row("R8")
@in_loop
async def test_a_replica_starts_from_its_checkpoints_after_a_crash():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        for _ in range(4):
            await produce_outcome(cluster, b"a")
        cluster.leader().delete_records(2)
        await cluster.brokers[1].partitions.checkpoints.write(everything=True)
        text = cluster.disks[1].read_bytes("/data/replication-offset-checkpoint", MAY_BLOCK).decode()
        assert text.splitlines() == ["0", "1", "t 0 4"]
        assert (
            cluster.disks[1]
            .read_bytes("/data/log-start-offset-checkpoint", MAY_BLOCK)
            .decode()
            .endswith("t 0 2\n")
        )
        cluster.held_back.add(1)
        await cluster.crash(1)
        broker = cluster.start(1)
        partition = broker.partitions.get("t", 0)
        assert partition.high_watermark == 4
        assert partition.log.log_start_offset == 2


@in_loop
async def test_a_follower_may_begin_inside_a_batch():
    """DeleteRecords moved the leader's log start into one; a replica that comes empty begins there."""
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2]])
        cluster.cuts.add((2, 1))
        for endpoint in cluster.brokers[2].endpoints:
            endpoint.break_off()
        cluster.commit(
            PartitionChangeRecord(partition_id=0, topic_id=cluster.image.topics_by_name["t"].id, isr=(1,))
        )
        cluster.produce(b"a", b"b", b"c")
        cluster.produce(b"d")
        cluster.leader().delete_records(1)
        cluster.cuts.clear()
        await until(lambda: set(cluster.isr()) == {1, 2})
        follower = cluster.replica(2)
        assert (follower.log.log_start_offset, follower.log.log_end_offset) == (1, 4)
        assert bytes(follower.log.read(1, 1 << 20).read(MAY_BLOCK)) == bytes(
            cluster.leader().log.read(1, 1 << 20).read(MAY_BLOCK)
        )


@pytest.mark.row("R7")
@in_virtual_time
async def test_a_follower_without_a_session_waits_at_its_leader_all_the_same():
    """The leader's cache is full, or it keeps none (max.incremental.fetch.session.cache.slots=0)."""
    async with Cluster(2, session_slots=0) as cluster:
        cluster.create_topic("t", [[1, 2]])
        assert await produce_outcome(cluster, b"x") == ErrorCode.NONE
        await until(lambda: cluster.brokers[1].fetches.parked == 1)
        (endpoint,) = cluster.brokers[2].endpoints
        asked = len(endpoint.requests)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(endpoint.requests) == asked
        assert await produce_outcome(cluster, b"y") == ErrorCode.NONE


@pytest.mark.row("R5")
@in_loop
async def test_records_of_an_older_epoch_in_a_leaders_log_are_refused_and_said_once(caplog):
    """As KAFKA-18723 could leave them: no follower can tell them from those of a deposed leader."""
    async with Cluster(2) as cluster:
        cluster.create_topic("t", [[1, 2]])
        cluster.elect("t", 0, 1)  # again
        await produce_outcome(cluster, b"newer")
        log, follower = cluster.leader().log, cluster.replica(2).log
        epochs, log.epochs = log.epochs, EpochCache()
        log.append_as_leader(batch(b"older"), leader_epoch=0, now_ms=NOW_MS)
        log.epochs = epochs
        with caplog.at_level(logging.WARNING, "fetch.fetcher"):
            cluster.produce(b"newer")
            asked = len(cluster.brokers[2].endpoints[0].requests)
            await until(lambda: len(cluster.brokers[2].endpoints[0].requests) > asked + 3)
        assert follower.log_end_offset == 1
        assert caplog.text.count("t-0 takes no records from broker 1: ") == 1
