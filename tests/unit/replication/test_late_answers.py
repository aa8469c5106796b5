"""Answers of a leader that come when the follower has moved on: they change nothing."""

from __future__ import annotations

import asyncio
import errno
import random
from dataclasses import replace

import pytest

from data_plane.replication.partition import Partition
from fetch.fetcher import FetcherContext, ReplicaFetcher
from fetch.messages import FetchedPartition, FetchRequest, FetchResponse, LogBounds
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import PartitionRegistration
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster, in_loop, in_virtual_time, produce_outcome, turns, until
from tests.unit.replication.held_executor import HeldExecutor

SESSION = 7


class ScriptedLeader:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[FetchRequest, asyncio.Future[FetchResponse]]] = []

    def fetch(self, request: FetchRequest) -> asyncio.Future[FetchResponse]:
        future: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
        self.asked.append((request, future))
        return future

    def answer(self, *partitions: FetchedPartition, request: int = -1) -> None:
        self.asked[request][1].set_result(FetchResponse(session_id=SESSION, partitions=list(partitions)))

    async def log_bounds(self, topic: str, partition: int, current_leader_epoch: int) -> LogBounds:
        raise ConnectionResetError

    def close(self) -> None:
        pass


class RefusingLeader(ScriptedLeader):
    """Refuses whole requests, as where it meets a bug."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses = True

    def fetch(self, request: FetchRequest) -> asyncio.Future[FetchResponse]:
        future = super().fetch(request)
        if self.refuses:
            loop = asyncio.get_running_loop()
            loop.call_later(0.001, future.set_result, FetchResponse(ErrorCode.UNKNOWN_SERVER_ERROR))
        return future


async def follower_of(cluster: Cluster) -> tuple[Partition, PartitionRegistration]:
    """It has three records of epoch 0, knows of one that it is committed, and follows nobody by itself."""
    topic_id = cluster.create_topic("t", [[1, 2]])
    for _ in range(3):
        await produce_outcome(cluster, b"x")
    follower = cluster.replica(2)
    cluster.brokers[2].fetchers.unfollow(follower)
    follower.high_watermark = 1
    return follower, cluster.image.topics_by_id[topic_id].partitions[0]


def fetcher_of(cluster: Cluster, leader: ScriptedLeader) -> ReplicaFetcher:
    broker = cluster.brokers[2]
    context = FetcherContext(
        2, lambda: 1, lambda: cluster.now_ms, cluster.loop, broker.timer, random.Random(1), cluster.limits
    )
    return ReplicaFetcher(1, leader, context)


def diverging(partition: Partition, end: int, high_watermark: int) -> FetchedPartition:
    return FetchedPartition(
        partition.topic_id, "t", 0,
        high_watermark=high_watermark, log_start_offset=0, diverging_epoch=(0, end),
    )  # fmt: skip


@in_loop
async def test_where_the_logs_diverge_the_leaders_high_watermark_says_nothing_of_ours() -> None:
    async with Cluster(2) as cluster:
        follower, _ = await follower_of(cluster)
        leader = ScriptedLeader()
        fetcher = fetcher_of(cluster, leader)
        fetcher.add(follower)
        await until(lambda: leader.asked)
        high_watermarks: list[int] = []
        leader.answer(diverging(follower, end=2, high_watermark=3))
        await until(
            lambda: high_watermarks.append(follower.high_watermark) or follower.log.log_end_offset == 2
        )
        assert max(high_watermarks) == 1
        await fetcher.close()


@in_loop
async def test_an_answer_from_before_an_epoch_change_truncates_nothing() -> None:
    """It followed this leader, then another one, now this one again; its first request is answered now."""
    async with Cluster(2) as cluster:
        follower, registration = await follower_of(cluster)
        leader = ScriptedLeader()
        fetcher = fetcher_of(cluster, leader)
        fetcher.add(follower)
        await until(lambda: len(leader.asked) == 1)
        leader.answer()  # there is a session
        await until(lambda: len(leader.asked) == 2)
        follower.become_follower(replace(registration, leader=2, leader_epoch=1, partition_epoch=10))
        fetcher.remove(follower)
        follower.become_follower(replace(registration, leader_epoch=2, partition_epoch=11))
        fetcher.add(follower)
        await until(lambda: len(leader.asked) == 3, "the partition is forgotten")
        leader.answer(diverging(follower, end=1, high_watermark=3), request=1)
        leader.answer(request=2)
        await until(lambda: len(leader.asked) == 4, "it is asked for in the new epoch")
        for _ in range(20):
            await asyncio.sleep(0)
        assert follower.log.log_end_offset == 3
        leader.answer(diverging(follower, end=2, high_watermark=3), request=3)
        await until(lambda: follower.log.log_end_offset == 2, "the answer of this epoch counts")
        await fetcher.close()


@in_loop
async def test_records_that_come_twice_bring_the_high_watermark_all_the_same() -> None:
    """The leader answers two requests in a row with the same records, and tells each number once."""
    async with Cluster(2) as cluster:
        follower, _ = await follower_of(cluster)
        leader = ScriptedLeader()
        fetcher = fetcher_of(cluster, leader)
        fetcher.add(follower)
        await until(lambda: leader.asked)
        records = memoryview(follower.log.read(0, 1 << 20).read(MAY_BLOCK))
        leader.answer(
            FetchedPartition(follower.topic_id, "t", 0, high_watermark=3, log_start_offset=0, records=records)
        )
        await until(lambda: follower.high_watermark == 3)
        assert follower.log.log_end_offset == 3
        await fetcher.close()


@in_loop
async def test_a_fetch_that_will_be_answered_at_once_is_not_followed_by_another() -> None:
    """A second one was sent while the first one waited, which then brought records. The leader sends these
    again in the second answer; a third request before it would go on like that for ever."""
    async with Cluster(2) as cluster:
        follower, _ = await follower_of(cluster)
        cluster.create_topic("u", [[1, 2]])
        leader = ScriptedLeader()
        fetcher = fetcher_of(cluster, leader)
        fetcher.add(follower)
        await until(lambda: leader.asked)
        leader.answer()  # there is a session
        await until(lambda: len(leader.asked) == 2)
        fetcher.add(cluster.replica(2, "u"))
        assert len(leader.asked) == 3, "two are under way"
        cluster.produce(b"y", acks=1)
        records = memoryview(cluster.leader().log.read(3, 1 << 20).read(MAY_BLOCK))
        brought = FetchedPartition(
            follower.topic_id, "t", 0, high_watermark=3, log_start_offset=0, records=records
        )
        leader.answer(brought, request=1)
        await until(lambda: follower.log.log_end_offset == 4)
        assert len(leader.asked) == 3
        leader.answer(brought, request=2)
        await until(lambda: len(leader.asked) == 4)
        assert [(each.topic, each.fetch_offset) for each in leader.asked[3][0].partitions] == [("t", 4)]
        await fetcher.close()


@in_loop
async def test_what_a_waiting_fetch_does_not_know_is_told_by_another() -> None:
    """An answer without records moves the log's start: the fetch that is under way may wait for long."""
    async with Cluster(2) as cluster:
        follower, _ = await follower_of(cluster)
        cluster.create_topic("u", [[1, 2]])
        leader = ScriptedLeader()
        fetcher = fetcher_of(cluster, leader)
        fetcher.add(follower)
        await until(lambda: leader.asked)
        leader.answer()
        await until(lambda: len(leader.asked) == 2)
        fetcher.add(cluster.replica(2, "u"))
        leader.answer(
            FetchedPartition(follower.topic_id, "t", 0, high_watermark=3, log_start_offset=2), request=1
        )
        await until(lambda: len(leader.asked) == 4)
        assert [each.log_start_offset for each in leader.asked[3][0].partitions] == [2]
        await fetcher.close()


class SlowBounds(ScriptedLeader):
    """Its log's bounds are told when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.bounds: list[asyncio.Future[LogBounds]] = []
        self.asked_before: list[int] = []
        """How many fetches were sent before each of the questions."""

    def log_bounds(self, topic: str, partition: int, current_leader_epoch: int) -> asyncio.Future[LogBounds]:
        future: asyncio.Future[LogBounds] = asyncio.get_running_loop().create_future()
        self.bounds.append(future)
        self.asked_before.append(len(self.asked))
        return future


@in_loop
async def test_where_the_leaders_log_begins_is_asked_once() -> None:
    """Two requests are answered with OFFSET_OUT_OF_RANGE. What the second question would bring is older than
    what was fetched behind the first one."""
    async with Cluster(2) as cluster:
        follower, _ = await follower_of(cluster)
        cluster.create_topic("u", [[1, 2]])
        leader = SlowBounds()
        fetcher = fetcher_of(cluster, leader)
        fetcher.add(follower)
        await until(lambda: leader.asked)
        leader.answer()
        await until(lambda: len(leader.asked) == 2)
        fetcher.add(cluster.replica(2, "u"))
        outside = FetchedPartition(follower.topic_id, "t", 0, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        for number in (1, 2):
            leader.answer(outside, request=number)
            await until(lambda number=number: len(leader.asked) > number + 1)
        assert len(leader.bounds) == 1
        leader.bounds[0].set_result(LogBounds(5, 9))
        await until(lambda: follower.log.log_end_offset == 5)
        await fetcher.close()


@in_loop
async def test_where_the_leaders_log_begins_is_asked_before_the_next_fetch() -> None:
    """That one waits at the leader, and with it every answer behind it. Retention moves the beginning on
    meanwhile: a follower that starts where it was finds nothing there, and asks anew, for ever."""
    async with Cluster(2) as cluster:
        follower, _ = await follower_of(cluster)
        cluster.create_topic("u", [[1, 2]])
        leader = SlowBounds()
        fetcher = fetcher_of(cluster, leader)
        fetcher.add(follower)
        fetcher.add(cluster.replica(2, "u"))
        await until(lambda: leader.asked)
        outside = FetchedPartition(follower.topic_id, "t", 0, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        leader.answer(outside)
        await until(lambda: len(leader.asked) == 2)
        assert leader.asked_before == [1]
        leader.bounds[0].set_result(LogBounds(5, 9))
        await until(lambda: follower.log.log_end_offset == 5)
        await fetcher.close()


@in_loop
async def test_a_fetch_that_waits_at_the_leader_lets_the_answer_about_its_log_pass() -> None:
    """Answers come in order; who waits is answered when the next fetch comes."""
    async with Cluster(2) as cluster:
        follower, _ = await follower_of(cluster)
        cluster.create_topic("u", [[1, 2]])
        leader = SlowBounds()
        fetcher = fetcher_of(cluster, leader)
        fetcher.add(follower)
        await until(lambda: leader.asked)
        leader.answer()
        await until(lambda: len(leader.asked) == 2)
        fetcher.add(cluster.replica(2, "u"))
        await until(lambda: len(leader.asked) == 3)
        outside = FetchedPartition(follower.topic_id, "t", 0, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        leader.answer(outside, request=1)
        await until(lambda: len(leader.asked) == 4)
        assert leader.asked_before == [3]
        await fetcher.close()


@pytest.mark.pure("a constant is set")
@in_loop
async def test_where_very_many_logs_begin_is_asked_in_several_turns_before_the_next_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fetch.fetcher.BOUNDS_PER_TURN", 2)
    async with Cluster(2) as cluster:
        cluster.create_topic("t", [[1, 2]] * 5)
        leader = SlowBounds()
        fetcher = fetcher_of(cluster, leader)
        followers = [cluster.replica(2, "t", number) for number in range(5)]
        for follower in followers:
            cluster.brokers[2].fetchers.unfollow(follower)
            fetcher.add(follower)
        await until(lambda: leader.asked)
        leader.answer(
            *(
                FetchedPartition(each.topic_id, "t", each.tp.partition, error=ErrorCode.OFFSET_OUT_OF_RANGE)
                for each in followers
            )
        )
        by_turn: list[int] = []
        while len(leader.bounds) < 5:
            before = len(leader.bounds)
            await asyncio.sleep(0)
            by_turn.append(len(leader.bounds) - before)
        assert [asked for asked in by_turn if asked] == [2, 2, 1]
        assert leader.asked_before == [1] * 5
        await fetcher.close()


@in_loop
async def test_a_partition_that_is_no_longer_followed_takes_no_bounds() -> None:
    async with Cluster(2) as cluster:
        follower, _ = await follower_of(cluster)
        leader = SlowBounds()
        fetcher = fetcher_of(cluster, leader)
        fetcher.add(follower)
        await until(lambda: leader.asked)
        leader.answer(FetchedPartition(follower.topic_id, "t", 0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
        await until(lambda: leader.bounds)
        end = follower.log.log_end_offset
        fetcher.remove(follower)
        assert leader.bounds[0].cancelled()
        await fetcher.close()
        assert follower.log.log_end_offset == end


@in_loop
async def test_a_partition_is_not_fetched_while_it_is_truncated() -> None:
    """It had been refused, and was to come again, when the answer to another request truncated it."""
    async with Cluster(2) as cluster:
        follower, _ = await follower_of(cluster)
        cluster.create_topic("u", [[1, 2]])
        leader = ScriptedLeader()
        fetcher = fetcher_of(cluster, leader)
        fetcher.add(follower)
        await until(lambda: leader.asked)
        leader.answer()
        await until(lambda: len(leader.asked) == 2)
        fetcher.add(cluster.replica(2, "u"))
        held = cluster.brokers[2].executor = HeldExecutor()
        refused = FetchedPartition(follower.topic_id, "t", 0, error=ErrorCode.UNKNOWN_LEADER_EPOCH)
        leader.answer(refused, request=1)
        leader.answer(diverging(follower, end=2, high_watermark=3), request=2)
        await until(lambda: held.waiting)
        came_again = []
        cluster.brokers[2].timer.call_later(1.0, lambda: came_again.append(True))
        await until(lambda: came_again)
        named = [each.topic for request, _ in leader.asked[3:] for each in request.partitions]
        held.release()
        assert "t" not in named
        await until(lambda: follower.log.log_end_offset == 2)
        await fetcher.close()


@in_loop
async def test_a_partition_is_not_fetched_while_the_leaders_bounds_are_asked_for() -> None:
    """It had been refused, and was to come again, when another request was answered with OFFSET_OUT_OF_RANGE.
    Records that the leader has been told of would be truncated to where its log ended before them."""
    async with Cluster(2) as cluster:
        follower, _ = await follower_of(cluster)
        cluster.create_topic("u", [[1, 2]])
        leader = SlowBounds()
        fetcher = fetcher_of(cluster, leader)
        fetcher.add(follower)
        await until(lambda: leader.asked)
        leader.answer()
        await until(lambda: len(leader.asked) == 2)
        fetcher.add(cluster.replica(2, "u"))
        refused = FetchedPartition(follower.topic_id, "t", 0, error=ErrorCode.UNKNOWN_LEADER_EPOCH)
        outside = FetchedPartition(follower.topic_id, "t", 0, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        leader.answer(refused, request=1)
        leader.answer(outside, request=2)
        await until(lambda: leader.bounds)
        came_again = []
        cluster.brokers[2].timer.call_later(1.0, lambda: came_again.append(True))
        await until(lambda: came_again)
        named = [each.topic for request, _ in leader.asked[3:] for each in request.partitions]
        assert "t" not in named
        leader.bounds[0].set_result(LogBounds(0, 2))
        await until(lambda: follower.log.log_end_offset == 2)
        await fetcher.close()


@pytest.mark.parametrize("durable", ["at once", "at the second attempt"])
@in_loop
async def test_records_asked_for_before_a_truncation_are_not_appended_behind_it(durable: str) -> None:
    """They do not follow on; and where batches are compacted away, a leader's log has gaps."""
    async with Cluster(2) as cluster:
        follower, _ = await follower_of(cluster)
        cluster.create_topic("u", [[1, 2]])
        leader = ScriptedLeader()
        fetcher = fetcher_of(cluster, leader)
        fetcher.add(follower)
        await until(lambda: leader.asked)
        leader.answer()
        await until(lambda: len(leader.asked) == 2)
        fetcher.add(cluster.replica(2, "u"))
        assert len(leader.asked) == 3, "two are under way"
        if durable != "at once":
            cluster.disks[2].fail("sync", errno.ENFILE, path_part="/t-0/")
        leader.answer(diverging(follower, end=1, high_watermark=4), request=1)
        await until(lambda: follower.log.log_end_offset == 1 and follower.log.unflushed.truncation_is_durable)
        await turns()
        cluster.produce(b"y", acks=1)
        records = memoryview(cluster.leader().log.read(3, 1 << 20).read(MAY_BLOCK))
        brought = FetchedPartition(
            follower.topic_id, "t", 0, high_watermark=4, log_start_offset=0, records=records
        )
        leader.answer(brought, request=2)
        leader.answer(request=3)
        await until(lambda: len(leader.asked) > 4)
        assert follower.log.log_end_offset == 1
        if durable == "at once":
            assert [each.fetch_offset for each in leader.asked[4][0].partitions if each.topic == "t"] == [1]
        await fetcher.close()


@in_virtual_time
async def test_a_leader_that_refuses_every_fetch_is_not_asked_without_a_pause() -> None:
    async with Cluster(2) as cluster:
        follower, _ = await follower_of(cluster)
        leader = RefusingLeader()
        fetcher = fetcher_of(cluster, leader)
        fetcher.add(follower)
        await asyncio.sleep(2)
        assert 8 <= len(leader.asked) < 40
        leader.asked.clear()
        leader.refuses = False
        await asyncio.sleep(0.3)
        assert len(leader.asked) == 1
        await fetcher.close()
