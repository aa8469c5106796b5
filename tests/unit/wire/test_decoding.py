"""What a frame claims is held against what it has, before anything is made of it."""

from __future__ import annotations

import tracemalloc
from typing import Final
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import (
    MalformedMessage,
    Meter,
    UnencodableMessage,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kraft.wire.schemas import REQUEST, MessageId, StructPlan, plan_for, versions_of
from metadata_quorum.foundation.primitives import MAX_STRING_BYTES, MAX_TAGS, uvarint

MIB: Final = 1024 * 1024
API_KEYS = [key for key in range(93) if versions_of(key)]
EVERY_VERSION = [(key, version) for key in API_KEYS for version in versions_of(key)]


def test_a_count_that_nothing_follows_ends_the_request_and_not_the_process():
    with pytest.raises(MalformedMessage, match="claims 2147483646 items"):
        decode_request(ApiKey.METADATA, 9, bytes.fromhex("ffffffff07"))
    with pytest.raises(MalformedMessage):
        decode_request(ApiKey.METADATA, 9, bytes.fromhex("ffffffff7f"))
    with pytest.raises(MalformedMessage):
        decode_request(ApiKey.METADATA, 1, bytes.fromhex("7fffffff"))


def test_a_count_is_held_against_the_least_that_an_item_takes():
    thousand_names = (1000).to_bytes(4, "big") + b"\x00\x00" * 1000
    assert len(decode_request(ApiKey.METADATA, 1, thousand_names).topics) == 1000
    with pytest.raises(MalformedMessage, match="claims 1000 items, 1999 bytes are left"):
        decode_request(ApiKey.METADATA, 1, thousand_names[:-1])


@pytest.mark.parametrize("count", [-2, -(2**31)])
def test_a_negative_count_is_refused(count: int):
    with pytest.raises(MalformedMessage):
        decode_request(ApiKey.METADATA, 1, count.to_bytes(4, "big", signed=True))


def test_null_is_refused_where_the_version_has_none():
    assert decode_request(ApiKey.METADATA, 1, b"\xff\xff\xff\xff").topics is None
    with pytest.raises(MalformedMessage, match="topics is null"):
        decode_request(ApiKey.METADATA, 0, b"\xff\xff\xff\xff")
    with pytest.raises(MalformedMessage, match="group_id is null"):
        decode_request(ApiKey.OFFSET_FETCH, 1, b"\xff\xff\x00\x00\x00\x00")


def test_a_compact_string_is_no_longer_than_a_classic_one():
    def keyed(size: int) -> bytes:
        return b"\x00" + uvarint(2) + uvarint(size + 1) + b"y" * size + b"\x00"

    longest = decode_request(ApiKey.FIND_COORDINATOR, 4, keyed(MAX_STRING_BYTES))
    assert len(longest.coordinator_keys[0]) == MAX_STRING_BYTES
    with pytest.raises(MalformedMessage, match="32768 bytes"):
        decode_request(ApiKey.FIND_COORDINATOR, 4, keyed(MAX_STRING_BYTES + 1))


def test_tags_that_nobody_knows_are_skipped():
    plain = encode_request(
        ApiKey.API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"}
    )
    assert plain.endswith(b"\x00")
    tagged = plain[:-1] + uvarint(2) + uvarint(77) + uvarint(3) + b"abc" + uvarint(78) + uvarint(0)
    assert decode_request(ApiKey.API_VERSIONS, 3, tagged) == decode_request(ApiKey.API_VERSIONS, 3, plain)


def test_a_tag_is_as_long_as_it_says():
    tagged = encode_response(ApiKey.API_VERSIONS, 3, {"finalized_features_epoch": 7})
    start = len(tagged) - 10
    assert tagged[start : start + 2] == b"\x01\x08"  # tag 1, 8 bytes
    assert decode_response(ApiKey.API_VERSIONS, 3, tagged).finalized_features_epoch == 7
    with pytest.raises(MalformedMessage, match="finalized_features_epoch"):
        decode_response(ApiKey.API_VERSIONS, 3, tagged[: start + 1] + b"\x09" + tagged[start + 2 :] + b"\x00")


def test_tags_are_counted():
    body = uvarint(2) + b"a" + uvarint(2) + b"1"
    decode_request(ApiKey.API_VERSIONS, 3, body + uvarint(MAX_TAGS) + b"\x09\x00" * MAX_TAGS)
    with pytest.raises(MalformedMessage, match="tagged fields"):
        decode_request(ApiKey.API_VERSIONS, 3, body + uvarint(MAX_TAGS + 1) + b"\x09\x00" * (MAX_TAGS + 1))


def test_an_error_code_that_nobody_knows_is_an_unknown_error():
    answer = encode_response(ApiKey.METADATA, 1, {"topics": [{"error_code": 3}]})
    assert decode_response(ApiKey.METADATA, 1, answer).topics[0].error_code == 3
    at = answer.rindex(b"\x00\x03")
    assert (
        decode_response(ApiKey.METADATA, 1, answer[:at] + b"\x7f\x00" + answer[at + 2 :]).topics[0].error_code
        == -1
    )


def test_what_is_decoded_is_counted_before_it_is_made():
    count = 200_000
    body = count.to_bytes(4, "big") + b"\x00\x01a" * count
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match="would take more than"):
            decode_request(ApiKey.METADATA, 1, body, meter=Meter(16 * MIB))
        assert tracemalloc.get_traced_memory()[1] < 2 * MIB
    finally:
        tracemalloc.stop()


def test_an_error_message_is_cut_to_what_a_string_can_say():
    answer = encode_response(ApiKey.CREATE_TOPICS, 4, {"topics": [{"error_message": "\U0001f9e8" * 40_000}]})
    message = decode_response(ApiKey.CREATE_TOPICS, 4, answer).topics[0].error_message
    assert message.endswith("...")
    assert len(message.encode()) < MAX_STRING_BYTES


def test_a_name_that_nobody_gave_is_empty_where_the_version_has_no_null():
    fields = {"topics": [{"name": None}]}
    assert (
        decode_response(ApiKey.METADATA, 11, encode_response(ApiKey.METADATA, 11, fields)).topics[0].name
        == ""
    )
    assert (
        decode_response(ApiKey.METADATA, 12, encode_response(ApiKey.METADATA, 12, fields)).topics[0].name
        is None
    )


def test_what_cannot_be_said_is_one_error():
    for fields in ({"topics": [{"name": "a" * 40_000}]}, {"throttle_time_ms": 2**40}):
        with pytest.raises(UnencodableMessage):
            encode_response(ApiKey.CREATE_TOPICS, 4, fields)


def test_no_id_is_written_as_zeros():
    topics = [{"topic_id": None, "name": "t"}]
    body = encode_request(ApiKey.METADATA, 12, {"topics": topics})
    assert decode_request(ApiKey.METADATA, 12, body).topics[0].topic_id == UUID(int=0)


SMALLEST: Final = {"string": "", "bytes": b"", "uuid": UUID(int=1)}


def with_items(plan: StructPlan, count: int) -> bytes:
    """A message whose first array has so many items, each as small as can be."""
    field = next(field for field in plan.fields if field.is_array)
    item = {} if field.struct is not None else SMALLEST.get(field.kafka_type, 0)
    return encode_request(plan.message.api_key, plan.kio_class.__version__, {field.name: [item] * count})


NEWEST: Final = [plan_for(MessageId(key, REQUEST), versions_of(key)[-1]) for key in API_KEYS]


@pytest.mark.parametrize(
    "plan",
    [plan for plan in NEWEST if any(field.is_array for field in plan.fields)],
    ids=lambda plan: plan.kio_class.__name__,
)
def test_the_meter_says_what_memory_says(plan: StructPlan):
    api_key, version = plan.message.api_key, plan.kio_class.__version__
    body = with_items(plan, 500)
    decode_request(api_key, version, body)  # its reader is made
    meter = Meter()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = decode_request(api_key, version, body, meter=meter)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept is not None
    assert 0.9 * taken < meter.used


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_any_bytes_are_a_message_or_malformed(api_key: int, version: int, data: st.DataObject):
    body = data.draw(st.binary(max_size=60) | st.sampled_from([b"\xff" * 40, b"\x7f" * 40, b"\x00" * 80]))
    for decode in (decode_request, decode_response):
        try:
            decode(api_key, version, body)
        except MalformedMessage:
            pass


@pytest.mark.parametrize("api_key", API_KEYS)
def test_every_message_cut_short_is_malformed(api_key: int):
    for version in versions_of(api_key):
        body = encode_request(api_key, version, {})
        for end in range(len(body)):
            with pytest.raises(MalformedMessage):
                decode_request(api_key, version, body[:end])
