"""The hand-written Fetch messages are those of kio, byte for byte, in every version."""

from __future__ import annotations

from itertools import groupby
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetch.messages import FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import (
    MalformedMessage,
    decode_request,
    encode_request,
    encode_response,
)
from kraft.wire.fast_fetch import read_fetch_response, write_fetch_response
from kraft.wire.fast_fetch_request import read_fetch_request, write_fetch_request
from kraft.wire.fast_produce import LeaderHint, NodeEndpoint
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID

VERSIONS = st.integers(4, 18)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=8)
TOPIC_IDS = {"a": UUID(int=1), "b": UUID(int=2), "flights": UUID(int=3)}
CODES = st.sampled_from(ErrorCode)

fetched = st.builds(
    FetchedPartition,
    topic_id=st.just(ZERO_UUID),
    topic=st.sampled_from(sorted(TOPIC_IDS)),
    partition=INT32,
    error=CODES,
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    diverging_epoch=st.none() | st.tuples(INT32, INT64),
    aborted_transactions=st.lists(st.tuples(INT64, INT64), max_size=2).map(tuple),
    preferred_read_replica=INT32,
    records=st.binary(max_size=3000).map(memoryview),
)
endpoints = st.lists(st.builds(NodeEndpoint, INT32, NAMES, INT32, st.none() | NAMES), max_size=2)
hints = st.none() | st.builds(LeaderHint, INT32, INT32)


@settings(deadline=None)
@given(
    version=VERSIONS,
    error=CODES,
    session_id=INT32,
    partitions=st.lists(st.tuples(fetched, hints), max_size=5),
    nodes=endpoints,
)
def test_responses(version, error, session_id, partitions, nodes):
    partitions.sort(key=lambda pair: pair[0].topic)
    for partition, _ in partitions:
        partition.topic_id = TOPIC_IDS[partition.topic]
    response = FetchResponse(error, session_id, [partition for partition, _ in partitions])
    hinted = {place: hint for place, (_, hint) in enumerate(partitions) if hint is not None}
    body = b"".join(
        write_fetch_response(version, response, throttle_time_ms=7, hints=hinted, endpoints=nodes)
    )
    topics = [
        {"topic": topic, "topic_id": TOPIC_IDS[topic], "partitions": [_as_dict(*pair) for pair in group]}
        for topic, group in groupby(partitions, key=lambda pair: pair[0].topic)
    ]
    fields = {
        "throttle_time_ms": 7,
        "error_code": error,
        "session_id": session_id,
        "responses": topics,
        "node_endpoints": [node._asdict() for node in nodes],
    }
    assert body == encode_response(ApiKey.FETCH, version, fields)

    read = read_fetch_response(version, memoryview(body))
    if version >= 7:
        assert (read.error, read.session_id) == (error, session_id)
    for got, (sent, _) in zip(read.partitions, partitions, strict=True):
        assert (got.partition, got.error, got.high_watermark) == (
            sent.partition,
            sent.error,
            sent.high_watermark,
        )
        assert got.records == sent.records
        assert got.aborted_transactions == sent.aborted_transactions
        if version >= 12:
            wanted = None if sent.diverging_epoch == (-1, -1) else sent.diverging_epoch
            assert got.diverging_epoch == wanted


def _as_dict(partition: FetchedPartition, hint: LeaderHint | None) -> dict[str, object]:
    fields: dict[str, object] = {
        "partition_index": partition.partition,
        "error_code": partition.error,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "log_start_offset": partition.log_start_offset,
        "aborted_transactions": [
            {"producer_id": producer, "first_offset": first}
            for producer, first in partition.aborted_transactions
        ]
        or None,
        "preferred_read_replica": partition.preferred_read_replica,
        "records": bytes(partition.records or b""),
    }
    if partition.diverging_epoch is not None:
        epoch, end_offset = partition.diverging_epoch
        fields["diverging_epoch"] = {"epoch": epoch, "end_offset": end_offset}
    if hint is not None:
        fields["current_leader"] = hint._asdict()
    return fields


wanted = st.builds(
    FetchPartition,
    topic_id=st.just(ZERO_UUID),
    topic=st.sampled_from(sorted(TOPIC_IDS)),
    partition=INT32,
    fetch_offset=INT64,
    max_bytes=INT32,
    current_leader_epoch=INT32,
    last_fetched_epoch=INT32,
    log_start_offset=INT64,
)
requests = st.builds(
    FetchRequest,
    partitions=st.lists(wanted, max_size=5),
    forgotten=st.lists(
        st.sampled_from(sorted(TOPIC_IDS)).flatmap(
            lambda topic: st.tuples(st.just(TOPIC_IDS[topic]), st.just(topic), INT32)
        ),
        max_size=3,
    ),
    replica_id=st.just(-1) | st.integers(0, 9),
    replica_epoch=INT64,
    max_wait_ms=INT32,
    min_bytes=INT32,
    max_bytes=INT32,
    committed_only=st.booleans(),
    session_id=INT32,
    session_epoch=INT32,
    rack_id=NAMES,
)


@settings(deadline=None)
@given(version=st.integers(12, 17), request=requests)
def test_requests_that_we_send(version, request):
    request.partitions.sort(key=lambda partition: partition.topic)
    for partition in request.partitions:
        partition.topic_id = TOPIC_IDS[partition.topic]
    request.forgotten.sort(key=lambda each: each[1])
    body = write_fetch_request(version, request)
    assert body == encode_request(ApiKey.FETCH, version, _request_as_dict(request))


@settings(deadline=None)
@given(version=VERSIONS, request=requests)
def test_requests_that_we_get(version, request):
    request.partitions.sort(key=lambda partition: partition.topic)
    for partition in request.partitions:
        partition.topic_id = TOPIC_IDS[partition.topic]
    request.forgotten.sort(key=lambda each: each[1])
    body = bytearray(encode_request(ApiKey.FETCH, version, _request_as_dict(request)))
    known = decode_request(ApiKey.FETCH, version, body)
    read = read_fetch_request(version, memoryview(body))
    assert read.replica_id == (known.replica_id if version < 15 else known.replica_state.replica_id)
    assert read.replica_epoch == (-1 if version < 15 else known.replica_state.replica_epoch)
    for name in ("max_wait_ms", "min_bytes", "max_bytes", "session_id", "session_epoch", "rack_id"):
        assert getattr(read, name) == getattr(known, name)
    assert read.committed_only == (known.isolation_level == 1)
    flat = [
        (
            topic.topic,
            topic.topic_id,
            each.partition,
            each.fetch_offset,
            each.partition_max_bytes,
            each.current_leader_epoch,
            each.last_fetched_epoch,
            each.log_start_offset,
        )
        for topic in known.topics
        for each in topic.partitions
    ]
    assert flat == [
        (
            each.topic,
            each.topic_id,
            each.partition,
            each.fetch_offset,
            each.max_bytes,
            each.current_leader_epoch,
            each.last_fetched_epoch,
            each.log_start_offset,
        )
        for each in read.partitions
    ]
    assert read.forgotten == [
        (topic.topic_id, topic.topic, index)
        for topic in known.forgotten_topics_data
        for index in topic.partitions
    ]


def _request_as_dict(request: FetchRequest) -> dict[str, object]:
    return {
        "replica_id": request.replica_id,
        "replica_state": {"replica_id": request.replica_id, "replica_epoch": request.replica_epoch},
        "max_wait_ms": request.max_wait_ms,
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": int(request.committed_only),
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": [
            {
                "topic": topic,
                "topic_id": TOPIC_IDS[topic],
                "partitions": [
                    {
                        "partition": each.partition,
                        "fetch_offset": each.fetch_offset,
                        "partition_max_bytes": each.max_bytes,
                        "current_leader_epoch": each.current_leader_epoch,
                        "last_fetched_epoch": each.last_fetched_epoch,
                        "log_start_offset": each.log_start_offset,
                    }
                    for each in group
                ],
            }
            for topic, group in groupby(request.partitions, key=lambda partition: partition.topic)
        ],
        "forgotten_topics_data": [
            {
                "topic": topic,
                "topic_id": TOPIC_IDS[topic],
                "partitions": [index for _, _, index in group],
            }
            for topic, group in groupby(request.forgotten, key=lambda each: each[1])
        ],
        "rack_id": request.rack_id,
    }


@settings(deadline=None)
@given(version=VERSIONS, data=st.binary(max_size=200))
def test_noise_is_refused_or_read_but_nothing_else(version, data):
    for read in (read_fetch_request, read_fetch_response):
        try:
            read(version, memoryview(bytearray(data)))
        except MalformedMessage:
            pass


@settings(deadline=None)
@given(version=VERSIONS, request=requests, data=st.data())
def test_a_truncated_request_is_refused(version, request, data):
    body = encode_request(ApiKey.FETCH, version, _request_as_dict(request))
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(MalformedMessage):
        read_fetch_request(version, memoryview(body)[:cut])


@pytest.mark.row("P7")
@pytest.mark.parametrize("version", [7, 12, 18])
@pytest.mark.parametrize("field", ["topics", "forgotten_topics_data"])
@pytest.mark.parametrize("partitions", [0, 1])
def test_no_more_is_named_than_there_can_be(version: int, field: str, partitions: int):
    def naming(count: int) -> memoryview:
        wanted = [0] if field == "forgotten_topics_data" else [{"partition": 0}]
        one = {"topic": "t", "topic_id": UUID(int=1), "partitions": wanted[:partitions]}
        return memoryview(bytearray(encode_request(ApiKey.FETCH, version, {field: [one] * count})))

    read_fetch_request(version, naming(10), 10)
    with pytest.raises(MalformedMessage, match="more than 10"):
        read_fetch_request(version, naming(11), 10)
