"""Fetch sessions that have ended: forgotten at once, taken down in pieces."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from uuid import UUID

import pytest

from fetch import session_ends
from fetch.delayed_fetch import DelayedFetch
from fetch.messages import INITIAL_EPOCH, SESSIONLESS_EPOCH, FetchRequest, FetchResponse
from fetch.sessions import FetchSession, SessionCache
from metadata_quorum.foundation.errors import ErrorCode
from tests.unit.replication.cluster import Cluster, in_loop
from tests.unit.replication.fetch_session import Consumer, want

PARTITIONS = 4

pytestmark = [pytest.mark.row("P7"), pytest.mark.pure("constants are changed")]


@pytest.fixture(autouse=True)
def few_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_ends, "LEFT_PER_TURN", 10)
    monkeypatch.setattr(session_ends, "FEW", 0)


def _park(cluster: Cluster, topic_id: UUID, answers: list[FetchResponse], epoch: int) -> DelayedFetch:
    service = cluster.brokers[1].fetches
    wanted = [want(topic_id, number) for number in range(PARTITIONS)]
    opening = FetchRequest(wanted, max_wait_ms=60_000, session_epoch=epoch)
    parked = service.fetch(service.params_of(opening), answers.append)
    assert parked is not None
    return parked


def _watchers(cluster: Cluster) -> int:
    return sum(len(cluster.replica(1, number=number).watchers) for number in range(PARTITIONS))


async def _per_turn(count: Callable[[], int]) -> list[int]:
    counts = [count()]
    while counts[-1]:
        await asyncio.sleep(0)
        counts.append(count())
    return counts


@in_loop
async def test_sessions_of_many_connections_that_end_together_are_taken_down_in_pieces():
    """Three hundred of 800 partitions each took a quarter of a second."""
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * PARTITIONS)
        service = cluster.brokers[1].fetches
        consumers = [Consumer(cluster) for _ in range(9)]
        for consumer in consumers:
            await consumer.fetch(*(want(topic_id, number) for number in range(PARTITIONS)))
        assert _watchers(cluster) == 36
        for consumer in consumers:
            service.sessions.drop(consumer.session_id)
        assert (len(service.sessions), service.sessions.partitions) == (0, 0)
        assert (await consumers[-1].fetch()).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert await _per_turn(lambda: _watchers(cluster)) == [26, 16, 6, 0]
        assert len(service.ends) == 0


@in_loop
async def test_so_are_those_with_parked_fetches_which_news_reach_no_more():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * PARTITIONS)
        service = cluster.brokers[1].fetches
        ended: list[FetchSession] = []

        def end(session: FetchSession) -> None:
            ended.append(session)
            service.ends.end(session)

        service.sessions.on_end = end
        answers: list[FetchResponse] = []
        parked = [_park(cluster, topic_id, answers, INITIAL_EPOCH) for _ in range(9)]
        for each in parked:
            each.cancel()
        assert (len(service.sessions), service.sessions.partitions, service.parked) == (0, 0, 0)
        for number in range(PARTITIONS):
            cluster.produce(b"a", number=number)
        assert any(session.dirty for session in ended)
        assert await _per_turn(lambda: _watchers(cluster)) == [26, 16, 6, 0]
        assert len(ended) == 9
        assert not any(session.partitions or session.dirty or session.deferred for session in ended)
        assert answers == []


@in_loop
async def test_so_are_fetches_without_a_session():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * PARTITIONS)
        answers: list[FetchResponse] = []
        parked = [_park(cluster, topic_id, answers, SESSIONLESS_EPOCH) for _ in range(9)]
        for each in parked:
            each.cancel()
        assert await _per_turn(lambda: _watchers(cluster)) == [26, 16, 6, 0]


@in_loop
async def test_one_with_very_many_partitions_is_taken_down_in_pieces(monkeypatch):
    monkeypatch.setattr(session_ends, "LEFT_PER_TURN", 3)
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * PARTITIONS)
        parked = _park(cluster, topic_id, [], INITIAL_EPOCH)
        parked.cancel()
        assert await _per_turn(lambda: _watchers(cluster)) == [1, 0]


def test_one_that_is_being_taken_down_leaves_its_place_to_others():
    cache = SessionCache(2, random.Random(1), max_partitions=10)
    ended: list[FetchSession] = []
    cache.on_end = ended.append
    request = FetchRequest([want(UUID(int=1), number) for number in range(5)], session_epoch=INITIAL_EPOCH)
    first, _ = cache.open(request, 0.0), cache.open(request, 0.0)
    assert not cache.open(request, 1.0).session_id
    cache.drop(first.session_id)
    cache.drop(first.session_id)
    assert ended == [first]
    assert cache.open(request, 2.0).session_id
    assert (len(cache), cache.partitions, cache.evictions) == (2, 10, 0)
