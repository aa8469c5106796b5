"""A bug that one partition's work meets ends that work, and no other partition's."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from data_plane.log import checkpoints, cleaner
from data_plane.log.checkpoints import CLEAN_SHUTDOWN
from data_plane.log.cleaner import CleanWork, batches_of
from data_plane.log.config import LogConfig
from data_plane.log.segment import LogSegment
from data_plane.log_manager import background_work, log_sweeps
from data_plane.replication.partition import Partition
from fetch.follower_session import FollowerFetchSession
from fetch.messages import FetchPartition, FetchRequest
from metadata_quorum.foundation.batch import BatchHeader, Record, encode_batch
from metadata_quorum.foundation.blocking import MayBlock, Result
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.invariants import Invariant, InvariantViolation
from metadata_quorum.foundation.primitives import Buffer
from metadata_quorum.foundation.supervision import ErrorBoundary
from metadata_quorum.metadata.records import ConfigRecord
from tests.support.logs import open_log, read_all, truncate
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import (
    NOW_MS,
    Broker,
    Cluster,
    boundary_of,
    in_loop,
    in_virtual_time,
    run_in_next_turn,
    until,
)

SMALL_SEGMENTS = LogConfig(segment_bytes=300)


@pytest.fixture
def bugs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`bugs(owner, name, when)`: that method fails where `when(self)` says so."""

    def plant(owner: type | ModuleType, name: str, when: Any) -> None:
        kept = getattr(owner, name)

        def wrapped(self: Any, *args: Any, **more: Any) -> Any:
            if when(self):
                raise KeyError("a bug")
            return kept(self, *args, **more)

        monkeypatch.setattr(owner, name, wrapped)

    return plant


def names(topic: str) -> Any:
    return lambda partition: partition.tp.topic == topic


# ---- metadata


@pytest.mark.parametrize("step", ["become_leader", "become_follower"])
@in_loop
async def test_a_change_that_cannot_be_put_into_action_takes_its_partition_offline_alone(bugs, step):
    async with Cluster(2) as cluster:
        boundary = boundary_of(cluster)
        bugs(Partition, step, names("bad"))
        cluster.create_topic("bad", [[1, 2]])
        cluster.create_topic("good", [[1, 2]])
        broken = 1 if step == "become_leader" else 2
        assert cluster.replica(broken, "bad").offline
        assert sum(boundary.faults.values()) == 1
        for broker_id in (1, 2):
            assert not cluster.replica(broker_id, "good").offline
        cluster.produce(b"x", topic="good")
        await until(lambda: cluster.leader("good").high_watermark == 1)


@in_loop
async def test_a_partition_that_cannot_be_made_is_offline_and_others_are_made(bugs):
    async with Cluster(1) as cluster:
        boundary = boundary_of(cluster)
        cluster.disks[1].fail("open", errno.EMFILE, path_part="/bad-0/")
        cluster.create_topic("bad", [[1]])
        cluster.create_topic("good", [[1]])
        cluster.produce(b"x", topic="good")
        with pytest.raises(BrokerError) as refused:
            cluster.replica(1, "bad")
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.brokers[1].partitions.logs.dirs[0].online
        assert boundary.faults


@in_loop
async def test_a_configuration_that_cannot_be_taken_is_one_partitions_affair(bugs):
    async with Cluster(1) as cluster:
        boundary = boundary_of(cluster)
        bugs(Partition, "configure", names("bad"))
        for name in ("bad", "good"):
            cluster.create_topic(name, [[1]])
        cluster.commit(
            *(
                ConfigRecord(resource_type=2, resource_name=name, name="retention.ms", value="7")
                for name in ("bad", "good")
            )
        )
        assert cluster.replica(1, "good").log.config.retention_ms == 7
        assert sum(boundary.faults.values()) == 1


# ---- following


@pytest.mark.pure("bugs are planted in Python")
@in_loop
async def test_a_follower_that_meets_a_bug_comes_again_and_follows_the_others(bugs):
    async with Cluster(2) as cluster:
        boundary = boundary_of(cluster)
        left = [3]

        def still_bad(partition: Partition) -> bool:
            bad = partition.tp.topic == "bad" and partition.log.log_end_offset == 0 and left[0] > 0
            left[0] -= bad
            return bad

        bugs(Partition, "append_as_follower", still_bad)
        for name in ("bad", "good"):
            cluster.create_topic(name, [[1, 2]])
            cluster.produce(b"x", topic=name)
        for name in ("good", "bad"):
            await until(lambda name=name: cluster.leader(name).high_watermark == 1)
        assert sum(boundary.faults.values()) == 3


@pytest.mark.pure("bugs are planted in Python")
@in_loop
async def test_a_fetcher_that_dies_is_restarted(bugs):
    async with Cluster(2) as cluster:
        boundary = boundary_of(cluster)
        cluster.create_topic("t", [[1, 2]])
        cluster.produce(b"x")
        await until(lambda: cluster.leader().high_watermark == 1)
        left = [True]
        bugs(FollowerFetchSession, "answered", lambda _: bool(left) and left.pop())
        cluster.produce(b"y")
        await until(lambda: cluster.leader().high_watermark == 2)
        assert not left
        assert sum(boundary.faults.values()) == 1


# ---- leading


@pytest.mark.pure("bugs are planted in Python")
@pytest.mark.parametrize("step", ["read", "check_epoch"])
@in_virtual_time
async def test_a_leader_that_cannot_read_one_log_sends_the_others(bugs, step):
    async with Cluster(2) as cluster:
        boundary = boundary_of(cluster)
        for name in ("bad", "good"):
            cluster.create_topic(name, [[1, 2]])
            cluster.produce(b"x", topic=name)
            await until(lambda name=name: cluster.leader(name).high_watermark == 1)
        bugs(Partition, step, lambda replica: replica.is_leader and replica.tp.topic == "bad")
        for name in ("bad", "good"):
            cluster.produce(b"y", topic=name)
        await until(lambda: cluster.leader("good").high_watermark == 2)
        answer = await cluster.fetch(1, consumer_fetch(cluster, "bad", "good"))
        bad, good = answer.partitions
        assert (answer.error, bad.error, good.error) == (
            ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE,
        )  # fmt: skip
        assert good.slice is not None
        before = sum(boundary.faults.values())
        await asyncio.sleep(1)
        assert 0 < sum(boundary.faults.values()) - before < 40  # the follower pauses ever longer in between
        assert cluster.isr("good") == (1, 2)


def consumer_fetch(cluster: Cluster, *topics: str) -> FetchRequest:
    wanted = [FetchPartition(cluster.image.topics_by_name[each].id, each, 0, 0, 1000) for each in topics]
    return FetchRequest(wanted, max_wait_ms=0)


# ---- periodic work


@in_loop
async def test_retention_continues_with_the_next_partition(bugs):
    async with Cluster(1) as cluster:
        boundary = boundary_of(cluster)
        for name in ("bad", "good"):
            cluster.create_topic(name, [[1]], retention_ms="1000", segment_ms="500")
            cluster.produce(b"x", topic=name)
        bugs(log_sweeps, "delete_old_segments", lambda log: "/bad-" in log.directory)
        cluster.now_ms = NOW_MS + 10_000
        cluster.brokers[1].partitions.sweeps.apply_retention()
        assert sum(boundary.faults.values()) == 1
        assert cluster.leader("good").log.log_start_offset == 1
        assert not cluster.leader("bad").offline


@in_loop
async def test_a_log_that_the_cleaner_cannot_take_is_left_and_the_others_are_cleaned(bugs):
    async with Cluster(1, log_defaults=SMALL_SEGMENTS) as cluster:
        boundary = boundary_of(cluster)
        partitions = cluster.brokers[1].partitions
        for name in ("bad", "good"):
            cluster.create_topic(name, [[1]], cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
            for _ in range(5):
                keyed = encode_batch([Record(key=b"k", value=b"v" * 150, timestamp=NOW_MS)])
                cluster.leader(name).append_as_leader(
                    bytearray(keyed), acks=1, now=cluster.loop.time(), now_ms=NOW_MS
                )
        bugs(CleanWork, "_rewrite", lambda work: "/bad-" in work.directory)
        before = cluster.leader("bad").log.size
        await partitions.cleaner.sweep()
        assert cluster.leader("good").log.size < before
        assert cluster.leader("bad").log.size == before
        assert partitions.cleaner.uncleanable_in(partitions.logs.dirs[0]) == 1
        assert sum(boundary.faults.values()) == 1
        await partitions.cleaner.sweep()
        assert sum(boundary.faults.values()) == 1  # not tried again
        cluster.delete_topic(cluster.image.topics_by_name["bad"].id)
        assert partitions.cleaner.uncleanable_in(partitions.logs.dirs[0]) == 0


@in_loop
async def test_a_log_that_is_truncated_while_the_cleaner_reads_it_is_no_failed_disk(monkeypatch):
    async with Cluster(1, log_defaults=SMALL_SEGMENTS) as cluster:
        partitions = cluster.brokers[1].partitions
        cluster.create_topic("t", [[1]], cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        partition = cluster.leader()
        for _ in range(5):
            keyed = encode_batch([Record(key=b"k", value=b"v" * 150, timestamp=NOW_MS)])
            partition.append_as_leader(bytearray(keyed), acks=1, now=cluster.loop.time(), now_ms=NOW_MS)
        run = CleanWork.run

        ran: list[CleanWork] = []

        def meanwhile(work: CleanWork, may_block: MayBlock) -> None:
            truncate(partition.log, 1)
            for deletion in partition.log.take_deletions():
                deletion.run(may_block)
            run(work, may_block)
            ran.append(work)

        monkeypatch.setattr(CleanWork, "run", meanwhile)
        await partitions.cleaner.sweep()
        assert len(ran) == 1, "it was read to its end, or called off"
        assert partitions.logs.dirs[0].online
        assert not partition.offline
        names = cluster.disks[1].list("/data/t-0", MAY_BLOCK)
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


@in_loop
async def test_the_dirtiest_of_very_many_logs_is_looked_for_in_many_turns_of_the_loop(monkeypatch):
    monkeypatch.setattr(background_work, "VISITED_PER_TURN", 2)
    async with Cluster(1, log_defaults=SMALL_SEGMENTS) as cluster:
        partitions = cluster.brokers[1].partitions
        compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
        for name in "abcdef":
            cluster.create_topic(name, [[1]], **compacted)
        for name in "bf":
            for _ in range(5):
                keyed = encode_batch([Record(key=b"k", value=b"v" * 150, timestamp=NOW_MS)])
                cluster.leader(name).append_as_leader(
                    bytearray(keyed), acks=1, now=cluster.loop.time(), now_ms=NOW_MS
                )
        before = {name: cluster.leader(name).log.size for name in "bf"}
        turns = 0
        sweep = asyncio.ensure_future(partitions.cleaner.sweep())
        while not sweep.done():
            if turns == 1:  # the look has begun
                cluster.delete_topic(cluster.image.topics_by_name["f"].id)
            turns += 1
            await asyncio.sleep(0)
        assert turns > 2
        assert cluster.leader("b").log.size < before["b"]
        assert not partitions.cleaner.uncleanable


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("operation", ["rename", "sync_dir"])
@in_loop
async def test_a_cleaning_that_fails_while_it_takes_the_logs_place_loses_nothing(operation, code):
    for after in range(0, 40, 3):
        cluster = Cluster(1, log_defaults=SMALL_SEGMENTS)
        boundary_of(cluster)
        partitions = cluster.brokers[1].partitions
        cluster.create_topic("t", [[1]], cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        partition = cluster.leader()
        for i in range(6):
            keyed = encode_batch([Record(key=b"k%d" % i, value=b"v" * 150, timestamp=NOW_MS)])
            partition.append_as_leader(bytearray(keyed), acks=1, now=cluster.loop.time(), now_ms=NOW_MS)
        before = read_all(partition.log)
        cluster.disks[1].fail(operation, code, path_part="/t-0", after=after)
        await partitions.cleaner.sweep()
        await cluster.crash(1)
        cluster.disks[1].heal()
        assert read_all(open_log("/data/t-0", SMALL_SEGMENTS, disk=cluster.disks[1])) == before, after


# ---- invariants


@in_loop
async def test_a_broken_invariant_ends_the_node_wherever_it_is(monkeypatch):
    async with Cluster(1) as cluster:
        deaths: list[BaseException] = []
        cluster.loop.set_exception_handler(ErrorBoundary(deaths.append, cluster.loop.time).loop_error)

        def broken(*_: object) -> None:
            raise InvariantViolation(Invariant.OFFSETS_IN_ORDER, "")

        monkeypatch.setattr(Partition, "maybe_shrink_isr", broken)
        cluster.create_topic("t", [[1]])
        cluster.brokers[1].partitions.maybe_shrink_isr()
        assert [type(error) for error in deaths] == [InvariantViolation]


@pytest.mark.parametrize("after", range(8))
@in_loop
async def test_a_log_that_was_made_half_way_lies_in_no_other_topics_way(after):
    async with Cluster(1) as cluster:
        boundary_of(cluster)
        disk = cluster.disks[1]
        disk.fail("open", errno.EMFILE, path_part="t-0", after=after, count=1)
        topic = cluster.create_topic("t", [[1]])
        disk.heal()
        cluster.delete_topic(topic)
        cluster.create_topic("t", [[1]])
        assert cluster.produce(b"x", acks=1) == 1


@in_loop
async def test_a_partition_whose_directory_is_another_topics_is_given_up_aloud():
    async with Cluster(1) as cluster:
        boundary_of(cluster)
        disk = cluster.disks[1]
        disk.make_dirs("/data/t-0")
        path = "/data/t-0/partition.metadata"
        checkpoints.write_partition_metadata(disk, path, UUID(int=9), MAY_BLOCK)
        cluster.create_topic("t", [[1]])
        with pytest.raises(BrokerError) as refused:
            cluster.brokers[1].partitions.get("t", 0)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "t-0" in str(refused.value)


@in_loop
async def test_the_cleaner_stops_before_an_open_transaction():
    """What is behind may be aborted, and what it would replace is still the newest."""
    async with Cluster(1, log_defaults=SMALL_SEGMENTS) as cluster:
        partitions = cluster.brokers[1].partitions
        cluster.create_topic("t", [[1]], cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        leader = cluster.leader()
        for i in range(5):
            open_one = {"producer_id": 7, "producer_epoch": 0, "base_sequence": i, "transactional": True}
            keyed = encode_batch([Record(key=b"k", value=b"v" * 150, timestamp=NOW_MS)], **open_one)
            leader.append_as_leader(bytearray(keyed), acks=1, now=cluster.loop.time(), now_ms=NOW_MS)
        before = leader.log.size
        await partitions.cleaner.sweep()
        assert leader.log.size == before
        assert leader.log.cleaned_to == 0


@pytest.mark.parametrize("end", ["stop", "deletion"])
@in_loop
async def test_a_cleaning_that_is_of_no_use_any_more_reads_no_further(monkeypatch, end):
    """A stop would wait for all that is left of a large log, and then of all the others that are due."""
    async with Cluster(1, log_defaults=SMALL_SEGMENTS) as cluster:
        partitions = cluster.brokers[1].partitions
        ids = [
            cluster.create_topic(name, [[1]], cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
            for name in ("large", "other")
        ]
        for name in ("large", "large", "large", "large", "other", "other", "other"):
            keyed = encode_batch([Record(key=b"k", value=b"v" * 150, timestamp=NOW_MS)])
            cluster.leader(name).append_as_leader(
                bytearray(keyed), acks=1, now=cluster.loop.time(), now_ms=NOW_MS
            )
        read: list[str] = []

        def counted(segment: LogSegment) -> Iterator[tuple[Buffer, BatchHeader]]:
            for found in batches_of(segment):
                read.append(segment.path)
                if end == "deletion":
                    if len(read) == 1:
                        cluster.delete_topic(ids[0])
                elif not partitions.background.closed:
                    stops.append(asyncio.ensure_future(cluster.brokers.pop(1).close()))
                    partitions.background.closed = True
                    partitions.cleaner.close()
                yield found

        stops: list[asyncio.Future[None]] = []
        monkeypatch.setattr(cleaner, "batches_of", counted)
        await partitions.cleaner.sweep()
        await asyncio.gather(*stops)
        assert len([path for path in read if "/large-0" in path]) == 1
        assert bool([path for path in read if "/other-0" in path]) == (end == "deletion")
        names = cluster.disks[1].list("/data/large-0", MAY_BLOCK)
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


def out_of_threads(broker: Broker) -> None:
    """Its next work gets no thread: the process may start no more of them."""

    def executor(work: Callable[[MayBlock], Result], /) -> Awaitable[Result]:
        broker.executor = run_in_next_turn
        raise RuntimeError("can't start new thread")

    broker.executor = executor


@pytest.mark.parametrize("stale", [True, False], ids=["checkpoints", "the log's identity"])
@in_loop
async def test_what_no_thread_could_be_had_for_is_written_later(stale):
    async with Cluster(1) as cluster:
        boundary = boundary_of(cluster)
        broker = cluster.brokers[1]
        broker.partitions.logs.checkpoints_stale = stale
        out_of_threads(broker)
        cluster.create_topic("t", [[1]])
        log = cluster.leader().log
        await until(lambda: boundary.faults)
        assert (sum(boundary.faults.values()), log.unidentified) == (1, True)
        broker.partitions.checkpoints.write_soon()  # periodic
        await until(lambda: not log.unidentified)
        assert broker.dirs[0].online


@in_loop
async def test_a_directory_that_no_thread_could_close_keeps_no_other_one_from_it():
    async with Cluster(1, directories=("/a", "/b")) as cluster:
        boundary = boundary_of(cluster)
        broker = cluster.brokers[1]
        await until(lambda: broker.partitions.background.idle)
        out_of_threads(broker)
        assert (await closed(broker), sum(boundary.faults.values())) == ([False, True], 1)


@in_loop
async def test_a_directory_whose_names_are_still_to_be_made_anew_counts_as_killed():
    """An orderly reboot took them, and what was left of the logs counted as whole."""
    async with Cluster(1, directories=("/a", "/b")) as cluster:
        broker = cluster.brokers[1]
        await until(lambda: broker.partitions.background.idle)
        broker.dirs[0].renewal_due = True
        assert await closed(broker) == [False, True]


@in_loop
async def test_a_directory_that_has_come_back_has_failed_in_no_later_run():
    """A broker that was stopped before it was registered repeated it, each time again."""
    async with Cluster(1, directories=("/a", "/b")) as cluster:
        broker = cluster.brokers[1]
        await until(lambda: broker.partitions.background.idle)
        a, b = broker.dirs
        b.last_run = b.last_run._replace(failed=frozenset([a.directory_id, UUID(int=999)]))
        assert await closed(broker, epoch=-1) == [True, True]
        mark = checkpoints.read_clean_shutdown(b.disk, b.path, MAY_BLOCK)
        assert mark is not None
        assert mark.failed == {UUID(int=999)}


async def closed(broker: Broker, epoch: int = 1) -> list[bool]:
    """Which of its directories say so, once it has stopped."""
    await broker.partitions.checkpoints.write_clean_shutdown(epoch)
    return [each.disk.exists(f"{each.path}/{CLEAN_SHUTDOWN}") for each in broker.dirs]
