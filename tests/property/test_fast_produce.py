"""The hand-written Produce messages are those of kio, byte for byte, in every version."""

from __future__ import annotations

from itertools import groupby
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage, decode_response, encode_request, encode_response
from kraft.wire.fast_produce import (
    LeaderHint,
    NodeEndpoint,
    ProducedPartition,
    read_produce_request,
    write_produce_response,
)
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID

VERSIONS = st.integers(3, 13)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=8)
TOPIC_NAMES = st.text(st.characters(max_codepoint=127), max_size=8)
TOPIC_IDS = {"a": UUID(int=1), "b": UUID(int=2), "flights": UUID(int=3)}

requested = st.fixed_dictionaries({"index": INT32, "records": st.none() | st.binary(max_size=300)})
requested_topics = st.lists(
    st.fixed_dictionaries(
        {"name": TOPIC_NAMES, "topic_id": st.uuids(), "partition_data": st.lists(requested, max_size=3)}
    ),
    max_size=3,
)
produced = st.builds(
    ProducedPartition,
    topic=st.sampled_from(sorted(TOPIC_IDS)),
    topic_id=st.just(ZERO_UUID),
    partition=INT32,
    error_code=st.sampled_from(ErrorCode).map(int),
    base_offset=INT64,
    log_append_time_ms=st.just(-1) | st.integers(0, 2**32).map(lambda seconds: seconds * 1000),
    log_start_offset=INT64,
    record_errors=st.lists(st.tuples(INT32, st.none() | NAMES), max_size=2).map(tuple),
    error_message=st.none() | NAMES,
    current_leader=st.none() | st.builds(LeaderHint, INT32, INT32),
)
endpoints = st.lists(st.builds(NodeEndpoint, INT32, NAMES, INT32, st.none() | NAMES), max_size=2)


@settings(deadline=None)
@given(
    version=VERSIONS,
    transactional_id=st.none() | NAMES,
    acks=st.sampled_from([-1, 0, 1]),
    topics=requested_topics,
)
def test_requests(version, transactional_id, acks, topics):
    body = encode_request(
        ApiKey.PRODUCE,
        version,
        {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 5, "topic_data": topics},
    )
    request = read_produce_request(version, memoryview(bytearray(body)), 1000)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (transactional_id, acks, 5)
    wanted = [
        (
            topic["name"] if version < 13 else "",
            topic["topic_id"] if version >= 13 else ZERO_UUID,
            partition["index"],
            partition["records"],
        )
        for topic in topics
        for partition in topic["partition_data"]
    ]
    assert [tuple(partition) for partition in request.partitions] == wanted
    assert all(not p.records.readonly for p in request.partitions if p.records is not None)


@settings(deadline=None)
@given(version=VERSIONS, topics=requested_topics, data=st.data())
def test_a_damaged_request_is_refused_or_read_but_nothing_else(version, topics, data):
    body = bytearray(encode_request(ApiKey.PRODUCE, version, {"topic_data": topics}))
    damage = data.draw(st.lists(st.tuples(st.integers(0, len(body) - 1), st.integers(0, 255)), max_size=4))
    for place, value in damage:
        body[place] = value
    cut = data.draw(st.integers(0, len(body)))
    try:
        read_produce_request(version, memoryview(body)[:cut], 1000)
    except MalformedMessage:
        pass


@settings(deadline=None)
@given(
    version=VERSIONS, partitions=st.lists(produced, max_size=5), throttle=st.integers(0, 9), nodes=endpoints
)
def test_responses(version, partitions, throttle, nodes):
    partitions.sort(key=lambda partition: partition.topic)
    partitions = [partition._replace(topic_id=TOPIC_IDS[partition.topic]) for partition in partitions]
    fast = write_produce_response(version, partitions, throttle_time_ms=throttle, endpoints=nodes)
    topics = [
        {
            "name": name,
            "topic_id": TOPIC_IDS[name],
            "partition_responses": [_as_dict(each) for each in group],
        }
        for name, group in groupby(partitions, key=lambda partition: partition.topic)
    ]
    fields = {
        "responses": topics,
        "throttle_time_ms": throttle,
        "node_endpoints": [node._asdict() for node in nodes],
    }
    assert fast == encode_response(ApiKey.PRODUCE, version, fields)
    decode_response(ApiKey.PRODUCE, version, fast)


def _as_dict(partition: ProducedPartition) -> dict[str, object]:
    fields: dict[str, object] = {
        "index": partition.partition,
        "error_code": partition.error_code,
        "base_offset": partition.base_offset,
        "log_append_time_ms": partition.log_append_time_ms,
        "log_start_offset": partition.log_start_offset,
        "record_errors": [
            {"batch_index": index, "batch_index_error_message": message}
            for index, message in partition.record_errors
        ],
        "error_message": partition.error_message,
    }
    if partition.current_leader is not None:
        fields["current_leader"] = partition.current_leader._asdict()
    return fields


def test_a_count_that_cannot_be_is_refused_at_once():
    body = bytearray(encode_request(ApiKey.PRODUCE, 3, {}))
    body[8:12] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(MalformedMessage):
        read_produce_request(3, memoryview(body), 1000)
