"""Fetch sessions of followers, where clients fill the cache: with partitions, whether they exist or not."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from fetch.messages import FetchRequest, FetchResponse
from fetch.sessions import FetchSession, SessionCache
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.unit.replication.cluster import Cluster, in_loop
from tests.unit.replication.fetch_session import want

pytestmark = pytest.mark.row("P7")

FOLLOWER = 2


def naming(count: int, first: int = 0, **fields: Any) -> FetchRequest:
    wanted = [want(UUID(int=1), number) for number in range(first, first + count)]
    return FetchRequest(wanted, **{"session_epoch": 0, **fields})


def full_cache() -> tuple[SessionCache, list[FetchSession]]:
    """Three consumers have all hundred partitions that it may remember."""
    cache = SessionCache(1000, random.Random(1), max_partitions=100)
    return cache, [cache.open(naming(count), 0.0) for count in (20, 50, 30)]


def test_the_largest_of_consumers_give_way_to_a_followers() -> None:
    cache, (small, large, middle) = full_cache()
    follower = cache.open(naming(60, replica_id=FOLLOWER), 1.0)
    assert follower.session_id
    assert (len(cache), cache.partitions, cache.evictions) == (2, 80, 2)
    again = {"session_epoch": 1, "session_id": small.session_id}
    assert cache.open(naming(0, **again), 2.0) is small
    for gone in (large, middle):
        with pytest.raises(BrokerError) as caught:
            cache.open(naming(0, session_epoch=1, session_id=gone.session_id), 2.0)
        assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_followers_that_grows_keeps_its_session() -> None:
    cache, _ = full_cache()
    follower = cache.open(naming(10, replica_id=FOLLOWER), 1.0)
    assert (len(cache), cache.partitions) == (3, 60)
    assert cache.open(naming(40), 1.0).session_id
    grown = naming(5, 10, replica_id=FOLLOWER, session_id=follower.session_id, session_epoch=1)
    assert cache.open(grown, 2.0) is follower
    assert len(follower.partitions) == 15


def test_none_gives_way_where_that_is_not_enough() -> None:
    cache, _ = full_cache()
    assert not cache.open(naming(101, replica_id=FOLLOWER), 1.0).session_id
    assert (len(cache), cache.evictions) == (3, 0)


def test_followers_give_way_to_no_other_for_its_partitions() -> None:
    cache = SessionCache(1000, random.Random(1), max_partitions=100)
    assert cache.open(naming(90, replica_id=FOLLOWER), 0.0).session_id
    assert not cache.open(naming(20, replica_id=3), 1.0).session_id
    assert cache.partitions == 90


@in_loop
async def test_who_may_not_fetch_as_a_broker_gets_no_session_of_one() -> None:
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]])
        service = cluster.brokers[1].fetches
        answers: list[FetchResponse] = []
        claims = FetchRequest([want(topic_id)], replica_id=FOLLOWER, session_epoch=0, max_wait_ms=0)
        params = replace(service.params_of(claims), may_read=lambda topic, topic_id: False)
        assert service.fetch(params, answers.append) is None
        (answer,) = answers
        assert answer.session_id == 0
        assert [each.error for each in answer.partitions] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert (len(service.sessions), len(cluster.replica(1).watchers)) == (0, 0)
