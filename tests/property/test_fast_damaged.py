"""Damaged Produce and Fetch messages: the hand-written readers refuse what the generic ones refuse, and read
the same of what they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import (
    MalformedMessage,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kraft.wire.fast_fetch import FIRST_WITH_IDS, read_fetch_response
from kraft.wire.fast_fetch_request import FIRST_WITH_REPLICA_STATE, read_fetch_request
from kraft.wire.fast_produce import read_produce_request

MOST = 1000
REFUSED = object()
TOPIC = {"topic": "a", "topic_id": UUID(int=3)}

counts = st.integers(0, 2)
damage = st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0, 1, 2, 127, 128, 255])), max_size=3)
cuts = st.floats(0, 1) | st.just(1.0)


def damaged(body: bytes, places: list[tuple[float, int]], cut: float) -> bytes:
    data = bytearray(body)
    for place, value in places:
        data[int(place * (len(data) - 1))] = value
    return bytes(data[: round(cut * len(data))])


def outcome(read: Callable[[int, Any], object], version: int, body: bytes) -> object:
    try:
        return read(version, memoryview(bytearray(body)))
    except MalformedMessage:
        return REFUSED


def key(version: int, name: str, topic_id: UUID) -> object:
    return topic_id if version >= FIRST_WITH_IDS else name


def read_produce(version: int, body: memoryview) -> object:
    read = read_produce_request(version, body, MOST)
    partitions = [(key(version, p.topic, p.topic_id), p.partition, p.records) for p in read.partitions]
    return read.transactional_id, read.acks, read.timeout_ms, partitions


def known_produce(version: int, body: memoryview) -> object:
    read = decode_request(ApiKey.PRODUCE, version, body)
    partitions = [
        (key(version, topic.name, topic.topic_id), each.index, each.records)
        for topic in read.topic_data
        for each in topic.partition_data
    ]
    return read.transactional_id, read.acks, read.timeout_ms, partitions


def read_fetch(version: int, body: memoryview) -> object:
    read = read_fetch_request(version, body, MOST)
    partitions = [(key(version, p.topic, p.topic_id), p.partition, p.fetch_offset) for p in read.partitions]
    forgotten = [(key(version, name, topic_id), index) for topic_id, name, index in read.forgotten]
    return read.replica_id, read.replica_epoch, read.session_id, read.rack_id, partitions, forgotten


def known_fetch(version: int, body: memoryview) -> object:
    read = decode_request(ApiKey.FETCH, version, body)
    replica = (read.replica_id, -1)
    if version >= FIRST_WITH_REPLICA_STATE:
        replica = (read.replica_state.replica_id, read.replica_state.replica_epoch)
    partitions = [
        (key(version, topic.topic, topic.topic_id), each.partition, each.fetch_offset)
        for topic in read.topics
        for each in topic.partitions
    ]
    forgotten = [
        (key(version, topic.topic, topic.topic_id), index)
        for topic in read.forgotten_topics_data
        for index in topic.partitions
    ]
    return *replica, read.session_id, read.rack_id, partitions, forgotten


def read_fetched(version: int, body: memoryview) -> object:
    read = read_fetch_response(version, body)
    return [
        (key(version, p.topic, p.topic_id), p.partition, p.error, p.aborted_transactions, p.records)
        for p in read.partitions
    ]


def known_fetched(version: int, body: memoryview) -> object:
    return [
        (
            key(version, topic.topic, topic.topic_id),
            each.partition_index,
            each.error_code,
            tuple((t.producer_id, t.first_offset) for t in each.aborted_transactions or ()),
            each.records,
        )
        for topic in decode_response(ApiKey.FETCH, version, body).responses
        for each in topic.partitions
    ]


@settings(deadline=None)
@given(
    version=st.integers(3, 13),
    topics=counts,
    records=st.lists(st.none() | st.binary(max_size=200), max_size=2),
    places=damage,
    cut=cuts,
)
def test_produce_requests(version, topics, records, places, cut):
    partitions = [{"index": index, "records": each} for index, each in enumerate(records)]
    fields = {
        "acks": -1,
        "topic_data": [{"name": "a", "topic_id": UUID(int=3), "partition_data": partitions}] * topics,
    }
    body = damaged(encode_request(ApiKey.PRODUCE, version, fields), places, cut)
    assert outcome(read_produce, version, body) == outcome(known_produce, version, body)


@settings(deadline=None)
@given(
    version=st.integers(4, 18),
    topics=counts,
    partitions=counts,
    forgotten=counts,
    replica=st.just(-1) | st.integers(0, 3),
    places=damage,
    cut=cuts,
)
def test_fetch_requests(version, topics, partitions, forgotten, replica, places, cut):
    wanted = [{"partition": index, "fetch_offset": 5} for index in range(partitions)]
    fields = {
        "replica_id": replica,
        "replica_state": {"replica_id": replica, "replica_epoch": replica},
        "topics": [{**TOPIC, "partitions": wanted}] * topics,
        "forgotten_topics_data": [{**TOPIC, "partitions": [1, 2]}] * forgotten,
    }
    body = damaged(encode_request(ApiKey.FETCH, version, fields), places, cut)
    assert outcome(read_fetch, version, body) == outcome(known_fetch, version, body)


@settings(deadline=None)
@given(
    version=st.integers(4, 18),
    aborted=st.none() | st.just([{"producer_id": 1, "first_offset": 2}]),
    records=st.lists(st.binary(max_size=200), max_size=2),
    places=damage,
    cut=cuts,
)
def test_fetch_responses(version, aborted, records, places, cut):
    """What a leader says in tagged fields that a follower does not use is not looked at."""
    partitions = [{"aborted_transactions": aborted, "records": each} for each in records]
    fields = {"responses": [{**TOPIC, "partitions": partitions}]}
    body = damaged(encode_response(ApiKey.FETCH, version, fields), places, cut)
    read, known = outcome(read_fetched, version, body), outcome(known_fetched, version, body)
    assert read == known or (known is REFUSED and version >= 12)
