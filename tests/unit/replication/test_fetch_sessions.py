"""Fetches as a leader answers them: limits, turns, waiting, incremental sessions (KIP-227)."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import UUID

import pytest

from data_plane.replication.offset_lookup import OffsetSearch, list_offset
from fetch import delayed_fetch
from fetch.messages import INITIAL_EPOCH, FetchPartition, FetchRequest, FetchResponse
from fetch.sessions import MIN_EVICTION_SECONDS, SessionCache
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster, batch, in_loop, in_virtual_time, until
from tests.unit.replication.fetch_session import Consumer, got, records_of, want


@pytest.mark.row("R7")
@in_loop
async def test_a_session_answers_only_what_has_news():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * 3)
        consumer = Consumer(cluster)
        cluster.produce(b"a", number=1)
        first = await consumer.fetch(*(want(topic_id, n) for n in range(3)))
        assert first.session_id != 0
        assert got(first) == {0: [], 1: [b"a"], 2: []}
        # It did not say that it has moved on: it gets the same again.
        assert got(await consumer.fetch()) == {1: [b"a"]}
        assert got(await consumer.fetch(want(topic_id, 1, 1))) == {}
        cluster.produce(b"b", number=2)
        assert got(await consumer.fetch()) == {2: [b"b"]}
        assert got(await consumer.fetch(forgotten=((topic_id, "", 2),))) == {}
        cluster.produce(b"c", number=2)
        assert got(await consumer.fetch()) == {}


@in_loop
async def test_sessions_are_refused_by_id_and_by_epoch():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]])
        consumer = Consumer(cluster)
        await consumer.fetch(want(topic_id))
        consumer.epoch = 7
        assert (await consumer.fetch()).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        consumer.session_id += 1
        assert (await consumer.fetch()).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        consumer.epoch, consumer.session_id = 0, 0
        await consumer.fetch(want(topic_id))
        assert (await consumer.fetch(uses_topic_ids=False)).error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        # Epoch -1 closes the session and is answered in full.
        consumer.epoch = -1
        closing = await consumer.fetch(want(topic_id))
        assert (closing.session_id, len(closing.partitions)) == (0, 1)
        consumer.epoch = 1
        assert (await consumer.fetch()).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert len(cluster.replica(1).watchers) == 1  # that of the session that was never closed


@in_loop
async def test_partitions_may_be_named_by_topic_name():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]])
        cluster.produce(b"a")
        by_name = FetchPartition(UUID(int=0), "t", 0, 0, 1000)
        unknown = FetchPartition(UUID(int=0), "nowhere", 0, 0, 1000)
        response = await cluster.fetch(1, FetchRequest([by_name, unknown], uses_topic_ids=False))
        assert [p.error for p in response.partitions] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert records_of(response.partitions[0]) == [b"a"]


@pytest.mark.row("R7")
@in_loop
async def test_an_oversized_first_batch_passes_and_the_rest_keeps_to_the_limits():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * 3)
        for number in range(3):
            cluster.produce(b"x" * 5000, number=number)
        wanted = [want(topic_id, n, max_bytes=100) for n in range(3)]
        response = await cluster.fetch(1, FetchRequest(wanted, max_bytes=100, max_wait_ms=0))
        assert [p.slice is not None for p in response.partitions] == [True, False, False]
        assert records_of(response.partitions[0]) == [b"x" * 5000]


@pytest.mark.row("R7")
@in_loop
async def test_partitions_take_turns_when_an_answer_is_too_small_for_all():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * 4)
        for number in range(4):
            cluster.produce(b"x" * 1000, number=number)
            cluster.produce(b"y" * 1000, number=number)
        consumer = Consumer(cluster, max_bytes=1500)
        served: list[int] = []
        response = await consumer.fetch(*(want(topic_id, n, max_bytes=1100) for n in range(4)))
        offsets = dict.fromkeys(range(4), 0)
        for _ in range(20):
            moved = []
            for part in response.partitions:
                if records := records_of(part):
                    served.append(part.partition)
                    offsets[part.partition] += len(records)
                    moved.append(want(topic_id, part.partition, offsets[part.partition], max_bytes=1100))
            response = await consumer.fetch(*moved)
        assert offsets == {0: 2, 1: 2, 2: 2, 3: 2}
        assert sorted(served[:4]) == [0, 1, 2, 3]


@pytest.mark.row("P2")
@in_virtual_time
async def test_a_consumer_wakes_when_the_high_watermark_rises_not_when_the_leader_appends():
    async with Cluster() as cluster:
        topic_id = cluster.create_topic("t", [[1, 2, 3]])
        await until(lambda: cluster.brokers[1].fetches.parked == 2)
        cluster.cuts |= {(2, 1), (3, 1)}
        waiting = asyncio.ensure_future(cluster.fetch(1, FetchRequest([want(topic_id)], max_wait_ms=60_000)))
        await until(lambda: cluster.brokers[1].fetches.parked == 3)
        cluster.produce(b"a")
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        cluster.cuts.clear()
        assert got(await waiting) == {0: [b"a"]}


@pytest.mark.row("P2")
@in_loop
async def test_a_fetch_waits_for_its_min_bytes_and_no_longer_than_it_may():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1], [1]])
        service = cluster.brokers[1].fetches
        one = len(batch(b"x" * 100))
        request = FetchRequest([want(topic_id, 0), want(topic_id, 1)], max_wait_ms=60_000, min_bytes=3 * one)
        waiting = asyncio.ensure_future(cluster.fetch(1, request))
        await until(lambda: service.parked == 1)
        for number in (0, 1):
            cluster.produce(b"x" * 100, number=number)
            for _ in range(5):
                await asyncio.sleep(0)
            assert not waiting.done()
        cluster.produce(b"x" * 100, number=0)
        assert {n: len(r) for n, r in got(await waiting).items()} == {0: 2, 1: 1}
        assert service.parked == 0
        patient = FetchRequest([want(topic_id, 0, 2)], max_wait_ms=20, min_bytes=1)
        before = cluster.loop.time()
        assert got(await cluster.fetch(1, patient)) == {0: []}
        assert cluster.loop.time() - before >= 0.019
        assert len(cluster.replica(1).watchers) == 0


@pytest.mark.row("P2")
@in_loop
async def test_nobody_waits_for_more_bytes_than_an_answer_may_have():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * 2)
        for number in (0, 0, 1):
            cluster.produce(b"x" * 1000, number=number)
        wanted = [want(topic_id, 0), want(topic_id, 1)]
        request = FetchRequest(wanted, max_wait_ms=60_000, min_bytes=5000)
        response = await cluster.fetch(1, request, max_bytes=3000)
        assert {n: len(r) for n, r in got(response).items()} == {0: 2, 1: 0}


@pytest.mark.row("P7")
@pytest.mark.pure("a constant is changed")
@pytest.mark.parametrize("max_wait_ms", [60_000, 1], ids=["woken", "expired"])
@pytest.mark.parametrize("replica_id", [-1, 2], ids=["consumers", "who claims to follow"])
@in_loop
async def test_many_parked_fetches_are_looked_at_over_many_turns(
    monkeypatch: pytest.MonkeyPatch, max_wait_ms: int, replica_id: int
):
    monkeypatch.setattr(delayed_fetch, "LOOKS_PER_TURN", 10)
    async with Cluster(2) as cluster:
        await cluster.crash(2)
        topic_id = cluster.create_topic("t", [[1] if replica_id < 0 else [1, 2]] * 10)
        service = cluster.brokers[1].fetches
        answers: list[FetchResponse] = []
        for _ in range(20):
            wanted = [want(topic_id, number) for number in range(10)]
            request = FetchRequest(wanted, max_wait_ms=max_wait_ms, replica_id=replica_id)
            service.fetch(service.params_of(request), answers.append)
        assert service.parked == 20
        if max_wait_ms > 1:
            cluster.produce(b"a", acks=1)
        before = 0
        while len(answers) < 20:
            await asyncio.sleep(0)
            assert len(answers) - before <= 1
            before = len(answers)
        assert service.parked == 0


@pytest.mark.row("P7")
@pytest.mark.pure("a constant is changed")
@in_loop
async def test_answers_to_many_small_fetches_go_out_over_some_turns(monkeypatch: pytest.MonkeyPatch):
    """A thousand consumers of one partition were answered in two turns, of some 60 ms each."""
    monkeypatch.setattr(delayed_fetch, "LOOKS_PER_TURN", 3 * delayed_fetch.LOOKS_OF_AN_ANSWER)
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]])
        service = cluster.brokers[1].fetches
        answers: list[FetchResponse] = []
        for _ in range(20):
            request = FetchRequest([want(topic_id)], max_wait_ms=60_000)
            service.fetch(service.params_of(request), answers.append)
        cluster.produce(b"a")
        before, most = 0, 0
        while len(answers) < 20:
            await asyncio.sleep(0)
            before, most = len(answers), max(most, len(answers) - before)
        assert most == 3


@pytest.mark.row("P2")
@in_loop
async def test_what_is_absent_beside_other_partitions_is_told_at_once_and_then_as_they_are():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]])
        consumer = Consumer(cluster, max_wait_ms=60_000)
        deleted = UUID(int=7)
        first = await consumer.fetch(want(topic_id), want(deleted))
        assert [each.error for each in first.partitions] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]
        again = asyncio.ensure_future(consumer.fetch())
        await until(lambda: cluster.brokers[1].fetches.parked == 1)
        cluster.produce(b"a")
        errors = {each.topic_id: each.error for each in (await again).partitions}
        assert errors == {topic_id: ErrorCode.NONE, deleted: ErrorCode.UNKNOWN_TOPIC_ID}
        # Who asks for it again, or for nothing else, is answered at once.
        await consumer.fetch(want(topic_id, 0, 1), want(deleted))
        await consumer.fetch(forgotten=((topic_id, "", 0),))


@pytest.mark.row("P2")
@in_loop
async def test_all_appends_of_one_round_go_out_in_one_answer():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * 3)
        waiting = asyncio.ensure_future(
            cluster.fetch(1, FetchRequest([want(topic_id, n) for n in range(3)], max_wait_ms=60_000))
        )
        await until(lambda: cluster.brokers[1].fetches.parked == 1)
        for number in range(3):
            cluster.produce(b"x", number=number)
        assert got(await waiting) == {0: [b"x"], 1: [b"x"], 2: [b"x"]}


@pytest.mark.row("P2")
@in_loop
async def test_a_newer_fetch_of_the_session_ends_the_parked_one():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * 2)
        consumer = Consumer(cluster)
        await consumer.fetch(want(topic_id, 0))
        parked = asyncio.ensure_future(consumer.fetch(max_wait_ms=60_000))
        await until(lambda: cluster.brokers[1].fetches.parked == 1)
        consumer.epoch += 1
        cluster.produce(b"a", number=1)
        newer = await consumer.fetch(want(topic_id, 1), max_wait_ms=60_000)
        assert got(await parked) == {}
        assert got(newer) == {1: [b"a"]}


@pytest.mark.row("P2", "R9")
@in_loop
async def test_a_parked_fetch_hears_at_once_that_the_leader_is_another():
    async with Cluster() as cluster:
        topic_id = cluster.create_topic("t", [[1, 2, 3]])
        waiting = asyncio.ensure_future(
            cluster.fetch(
                1,
                FetchRequest([want(topic_id, current_leader_epoch=0)], max_wait_ms=60_000, leader_only=True),
            )
        )
        await until(lambda: cluster.brokers[1].fetches.parked == 3)
        cluster.elect("t", 0, 2)
        response = await waiting
        assert [p.error for p in response.partitions] == [ErrorCode.FENCED_LEADER_EPOCH]


@in_loop
async def test_a_fetch_does_not_wait_for_more_than_it_may_be_sent():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]])
        request = FetchRequest([want(topic_id)], max_wait_ms=60_000, min_bytes=1 << 20, max_bytes=100)
        waiting = asyncio.ensure_future(cluster.fetch(1, request))
        cluster.produce(b"x" * 100)
        assert got(await waiting) == {0: [b"x" * 100]}


@pytest.mark.row("P2")
@in_loop
async def test_a_cancelled_fetch_leaves_nothing_behind():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]])
        service = cluster.brokers[1].fetches
        answers: list[FetchResponse] = []
        request = FetchRequest([want(topic_id)], max_wait_ms=60_000)
        pending = service.fetch(service.params_of(request), answers.append)
        assert pending is not None
        pending.cancel()
        assert (service.parked, len(cluster.replica(1).watchers), answers) == (0, 0, [])
        opening = FetchRequest([want(topic_id)], max_wait_ms=60_000, session_epoch=INITIAL_EPOCH)
        pending = service.fetch(service.params_of(opening), answers.append)
        assert pending is not None
        pending.cancel()  # nobody has heard of its session
        assert (len(service.sessions), len(cluster.replica(1).watchers)) == (0, 0)


@in_loop
async def test_consumers_see_diverging_epochs_and_offsets_out_of_range():
    async with Cluster() as cluster:
        topic_id = cluster.create_topic("t", [[1, 2, 3]])
        needed = cluster.produce(b"a")
        await until(lambda: cluster.leader().high_watermark == needed)
        cluster.elect("t", 0, 2)
        cluster.produce(b"b")
        far = await cluster.fetch(2, FetchRequest([want(topic_id, 0, 50)]))
        assert far.partitions[0].error == ErrorCode.OFFSET_OUT_OF_RANGE
        strange = await cluster.fetch(2, FetchRequest([want(topic_id, 0, 3, last_fetched_epoch=0)]))
        assert strange.partitions[0].diverging_epoch == (0, 1)


@pytest.mark.row("R7")
@in_loop
async def test_who_does_not_go_on_from_an_answer_is_sent_its_numbers_again():
    """Who is asked to truncate takes no high watermark of that answer, and no other may come for long."""
    async with Cluster() as cluster:
        topic_id = cluster.create_topic("t", [[1, 2, 3]])
        needed = cluster.produce(b"a")
        await until(lambda: cluster.leader().high_watermark == needed)
        cluster.elect("t", 0, 2)
        needed = cluster.produce(b"b")
        await until(lambda: cluster.leader().high_watermark == needed)
        session = Consumer(cluster, 2)
        strange = await session.fetch(want(topic_id, 0, 2, last_fetched_epoch=0, current_leader_epoch=1))
        assert strange.partitions[0].diverging_epoch == (0, 1)
        assert strange.partitions[0].high_watermark == needed

        async def fetched(offset: int, epoch: int) -> list[int]:
            named = want(topic_id, 0, offset, last_fetched_epoch=1, current_leader_epoch=epoch)
            return [each.high_watermark for each in (await session.fetch(named)).partitions]

        assert await fetched(2, 1) == [needed], "truncated to what it had"
        assert await fetched(2, -1) == [needed], "in another epoch"
        needed = cluster.produce(b"c")
        await until(lambda: cluster.leader().high_watermark == needed)
        assert await fetched(2, -1) == [needed]
        assert await fetched(3, -1) == [], "it went on"


@pytest.mark.pure("a constant is changed")
@in_loop
async def test_a_full_cache_gives_way_to_followers_and_to_larger_sessions(monkeypatch):
    async with Cluster(1, session_slots=2) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * 3)
        sessions = cluster.brokers[1].sessions
        small, large = Consumer(cluster), Consumer(cluster)
        await small.fetch(want(topic_id))
        await large.fetch(want(topic_id), want(topic_id, 1))
        third = Consumer(cluster)
        assert (await third.fetch(want(topic_id), want(topic_id, 1))).session_id == 0
        follower = FetchRequest(
            [want(topic_id)], replica_id=2, session_epoch=0, max_wait_ms=0, replica_epoch=5
        )
        assert (await cluster.fetch(1, follower)).session_id != 0
        assert (await small.fetch()).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (await large.fetch()).error == ErrorCode.NONE
        monkeypatch.setattr("fetch.sessions.MIN_EVICTION_SECONDS", 0.0)
        third = Consumer(cluster)
        assert (await third.fetch(want(topic_id))).session_id != 0
        assert len(sessions) == 2


@in_loop
async def test_a_batch_that_is_none_fails_its_partition_alone():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * 2)
        for number in range(2):
            for value in (b"a", b"b", b"c"):
                cluster.produce(value, number=number)
        log = cluster.leader("t", 0).log
        segment = log.segments[-1]
        segment.seal()  # what it remembers of its batches' places is gone
        segment.file.write_at(segment.size // 3 + 8, b"\xff\xff\xff\xf0")  # the second batch's length
        fetched = FetchRequest([want(topic_id, n, 2) for n in range(2)], max_wait_ms=0)
        response = await cluster.fetch(1, fetched)
        assert [part.error for part in response.partitions] == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]
        assert records_of(response.partitions[1]) == [b"c"]
        segment.file.write_at(61, b"\xff")  # the first batch's first record
        search = list_offset(cluster.leader("t", 0), 0, replica=False, committed_only=False)
        assert isinstance(search, OffsetSearch)
        search.run(MAY_BLOCK)
        with pytest.raises(BrokerError) as caught:
            search.answer()
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        cluster.produce(b"d", number=0)
        assert cluster.leader("t", 0).log.log_end_offset == 4


def _naming(count: int, first: int = 0, **fields: Any) -> FetchRequest:
    wanted = [want(UUID(int=1), number, 0) for number in range(first, first + count)]
    return FetchRequest(wanted, **{"session_epoch": 0, **fields})


@pytest.mark.row("P7")
def test_sessions_remember_so_many_partitions_together():
    cache = SessionCache(1000, random.Random(1), max_partitions=100)
    first = cache.open(_naming(60), 0.0)
    assert first.session_id
    assert not cache.open(_naming(60), 1.0).session_id  # answered, and not remembered
    assert cache.open(_naming(40), 2.0).session_id
    assert cache.partitions == 100
    with pytest.raises(BrokerError, match="too many") as refused:
        cache.open(_naming(1, 60, session_id=first.session_id, session_epoch=1), 3.0)
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.partitions == 40
    assert cache.open(_naming(60), 4.0).session_id
    assert cache.open(_naming(60), 4.0 + MIN_EVICTION_SECONDS).session_id  # of those nobody uses any longer
    assert cache.partitions == 60


@pytest.mark.row("P7")
def test_a_session_has_no_more_partitions_than_a_request_may_name():
    cache = SessionCache(1000, random.Random(1), max_request_partitions=lambda: 10)
    session = cache.open(_naming(10), 0.0)
    cache.open(_naming(10, session_id=session.session_id, session_epoch=1), 0.0)  # the same ones
    with pytest.raises(BrokerError, match="too many"):
        cache.open(_naming(1, 10, session_id=session.session_id, session_epoch=2), 0.0)
    assert not len(cache)
    assert not cache.partitions


@pytest.mark.row("P7")
def test_what_a_session_remembered_is_dropped_with_it():
    cache = SessionCache(1000, random.Random(1))
    session = cache.open(_naming(10), 0.0)
    cache.drop(session.session_id)
    assert not session.partitions  # each of them holds the session
    assert not session.dirty


async def follower_by_hand(cluster: Cluster) -> tuple[UUID, Consumer]:
    """A topic of two partitions that 2 does not follow; its session for them with 1 instead."""
    cluster.cuts.add((2, 1))
    topic_id = cluster.create_topic("t", [[1, 2]] * 2)
    epoch = cluster.image.brokers[2].broker_epoch
    follower = Consumer(cluster, replica_id=2, replica_epoch=epoch)
    await follower.fetch(want(topic_id), want(topic_id, 1))
    return topic_id, follower


@pytest.mark.row("R7")
@in_loop
async def test_a_follower_is_not_answered_twice_for_each_record():
    async with Cluster(2) as cluster:
        topic_id, follower = await follower_by_hand(cluster)
        cluster.produce(b"a")
        assert got(await follower.fetch()) == {0: [b"a"]}
        waits = {"max_wait_ms": 60_000}
        parked = asyncio.ensure_future(follower.fetch(want(topic_id, 0, 1), **waits))
        await until(lambda: cluster.leader().high_watermark == 1)
        cluster.produce(b"b", number=1)
        assert got(await parked) == {1: [b"b"]}  # the high watermark of 0 waits
        parked = asyncio.ensure_future(follower.fetch(want(topic_id, 1, 1), **waits))
        await until(lambda: cluster.leader(number=1).high_watermark == 1)
        cluster.produce(b"c")
        (answer,) = (await parked).partitions
        assert (records_of(answer), answer.high_watermark) == ([b"c"], 1)  # until there are records
        last = await follower.fetch(want(topic_id, 0, 2), max_wait_ms=1)  # or the wait is over
        assert {each.partition: each.high_watermark for each in last.partitions} == {0: 2, 1: 1}
        assert (await follower.fetch(max_wait_ms=1)).partitions == []


@in_loop
async def test_a_follower_hears_of_a_log_start_with_its_next_answer():
    async with Cluster(2) as cluster:
        topic_id, follower = await follower_by_hand(cluster)
        cluster.produce(b"a")
        await follower.fetch()
        parked = asyncio.ensure_future(follower.fetch(want(topic_id, 0, 1), max_wait_ms=60_000))
        await until(lambda: cluster.leader().high_watermark == 1)
        cluster.leader().delete_records(1)
        cluster.produce(b"b", number=1)
        starts = {each.partition: each.log_start_offset for each in (await parked).partitions}
        assert starts == {0: 1, 1: 0}
