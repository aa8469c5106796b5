"""Stored records, byte by byte as Apache Kafka 4.1 wrote them (taken from its own serializer)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.coordinator.groups.consumer_records import (
    ConsumerGroupRecord,
    ConsumerGroupRecordType,
    MemberMetadata,
    TargetAssignment,
)
from data_plane.coordinator.groups.messages import CommittedOffset
from data_plane.coordinator.groups.records import (
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    StoredGroup,
    StoredMember,
    decode,
    encode,
)
from metadata_quorum.foundation.model import TopicPartition
from tests.support.bytecodes import cost

OFFSET_KEY = bytes.fromhex("00010002673100066f726465727300000002")
OFFSET = CommittedOffset(42, 5, "möp", 1700000000123)
OFFSET_VALUES = {
    0: "0000000000000000002a00046dc3b6700000018bcfe5687b",
    1: "0001000000000000002a00046dc3b6700000018bcfe5687b0000018bcfe58f0f",
    2: "0002000000000000002a00046dc3b6700000018bcfe5687b",
    3: "0003000000000000002a0000000500046dc3b6700000018bcfe5687b",
    4: "0004000000000000002a00000005056dc3b6700000018bcfe5687b00",
}
WITH_TOPIC_ID = "0004000000000000002a00000005056dc3b6700000018bcfe5687b010010000102030405060708090a0b0c0d0e0f"

GROUP_KEY = bytes.fromhex("000200026731")
GROUP = StoredGroup(
    "consumer",
    7,
    "range",
    "m1",
    1700000000001,
    (
        StoredMember("m1", None, "c", "/10.0.0.1", 300000, 45000, b"\x01\x02", b"\x03"),
        StoredMember("m2", "i2", "c", "/10.0.0.2", 300000, 45000, b"", b"\x04\x05\x06"),
    ),
)
GROUP_VALUES = {
    0: "00000008636f6e73756d657200000007000572616e676500026d310000000200026d3100016300092f31302e302e302e31"
    "0000afc8000000020102000000010300026d3200016300092f31302e302e302e320000afc80000000000000003040506",
    1: "00010008636f6e73756d657200000007000572616e676500026d310000000200026d3100016300092f31302e302e302e31"
    "000493e00000afc8000000020102000000010300026d3200016300092f31302e302e302e32000493e00000afc800000000"
    "00000003040506",
    2: "00020008636f6e73756d657200000007000572616e676500026d310000018bcfe568010000000200026d3100016300092f"
    "31302e302e302e31000493e00000afc8000000020102000000010300026d3200016300092f31302e302e302e32000493e0"
    "0000afc80000000000000003040506",
    3: "00030008636f6e73756d657200000007000572616e676500026d310000018bcfe568010000000200026d31ffff00016300"
    "092f31302e302e302e31000493e00000afc8000000020102000000010300026d320002693200016300092f31302e302e30"
    "2e32000493e00000afc80000000000000003040506",
    4: "000409636f6e73756d6572000000070672616e6765036d310000018bcfe5680103036d310002630a2f31302e302e302e31"
    "000493e00000afc8030102020300036d3203693202630a2f31302e302e302e32000493e00000afc801040405060000",
}


def test_offsets_are_written_as_kafka_writes_them() -> None:
    record = OffsetRecord("g1", TopicPartition("orders", 2), OFFSET)
    assert encode(record) == (OFFSET_KEY, bytes.fromhex(OFFSET_VALUES[4]))
    expiring = record._replace(value=OFFSET._replace(expire_timestamp_ms=1700000009999))
    assert encode(expiring)[1] == bytes.fromhex(OFFSET_VALUES[1])
    named = record._replace(value=OFFSET._replace(topic_id=UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")))
    assert encode(named)[1] == bytes.fromhex(WITH_TOPIC_ID)
    assert decode(OFFSET_KEY, bytes.fromhex(WITH_TOPIC_ID)) == named


@pytest.mark.parametrize("version", OFFSET_VALUES)
def test_offsets_of_every_version_are_read(version: int) -> None:
    expected = OFFSET if version >= 3 else OFFSET._replace(leader_epoch=-1)
    if version == 1:
        expected = expected._replace(expire_timestamp_ms=1700000009999)
    record = decode(OFFSET_KEY, bytes.fromhex(OFFSET_VALUES[version]))
    assert record == OffsetRecord("g1", TopicPartition("orders", 2), expected)


def test_groups_are_written_as_kafka_writes_them() -> None:
    assert encode(GroupRecord("g1", GROUP)) == (GROUP_KEY, bytes.fromhex(GROUP_VALUES[3]))
    empty = StoredGroup("", 0, None, None, 1, ())
    assert encode(GroupRecord("g1", empty))[1] == bytes.fromhex(
        "0003000000000000ffffffff000000000000000100000000"
    )


@pytest.mark.parametrize("version", GROUP_VALUES)
def test_groups_of_every_version_are_read(version: int) -> None:
    members = GROUP.members
    if version < 3:
        members = tuple(m._replace(instance_id=None) for m in members)
    if version < 1:
        members = tuple(m._replace(rebalance_timeout_ms=m.session_timeout_ms) for m in members)
    expected = replace(
        GROUP, members=members, state_timestamp_ms=GROUP.state_timestamp_ms if version >= 2 else -1
    )
    assert decode(GROUP_KEY, bytes.fromhex(GROUP_VALUES[version])) == GroupRecord("g1", expected)


def test_tombstones() -> None:
    for record in (GroupRecord("g1", None), OffsetRecord("g1", TopicPartition("orders", 2), None)):
        key, value = encode(record)
        assert value is None
        assert decode(key, None) == record


def test_an_unknown_kind_is_passed_over_and_bad_bytes_are_not() -> None:
    assert decode(bytes.fromhex("000b00026731"), b"\x00\x00") is None  # a share group
    for key, value in (
        (b"", None),
        (GROUP_KEY, b"\x00\x09"),
        (GROUP_KEY, bytes.fromhex(GROUP_VALUES[3].replace("00026d31ffff", "ffffffff"))),  # without an id
        *((GROUP_KEY, bytes.fromhex(GROUP_VALUES[3])[:end]) for end in range(len(GROUP_VALUES[3]) // 2)),
        (OFFSET_KEY, bytes.fromhex(OFFSET_VALUES[4])[:9]),
        (OFFSET_KEY[:-2], None),
    ):
        with pytest.raises(ValueError):
            decode(key, value)


def test_a_tagged_struct_that_is_null() -> None:
    """A member of the consumer protocol whose classic part Kafka has written as null."""
    key = bytes.fromhex("000500026731 00026d31")
    head = "0000 00 00 0263 022f 01 00 ffffffff 00"
    without = decode(key, bytes.fromhex(f"{head} 00"))
    assert isinstance(without, ConsumerGroupRecord)
    for null in ("00", "ff"):
        assert decode(key, bytes.fromhex(f"{head} 01 00 01 {null}")) == without


def test_what_a_member_is_assigned_in_kafkas_bytes() -> None:
    """Two topics, of which one has two partitions; each struct ends with its tagged fields."""
    topics = {UUID(int=7): frozenset({258, 1}), UUID(int=8): frozenset[int]()}
    record = ConsumerGroupRecord(ConsumerGroupRecordType.TARGET, "g1", "m1", TargetAssignment(topics))
    key = bytes.fromhex("0007 00026731 00026d31")
    value = bytes.fromhex(f"0000 03 {7:032x} 03 00000001 00000102 00 {8:032x} 01 00 00")
    assert encode(record) == (key, value)
    assert decode(key, value) == record
    for end in range(len(value)):
        with pytest.raises(ValueError):
            decode(key, value[:end])


@pytest.mark.parametrize(
    "value",
    [
        TargetAssignment({UUID(int=n): frozenset({0}) for n in range(1000)}),
        MemberMetadata(subscribed_topic_names=tuple(f"topic-{n}" for n in range(1000))),
    ],
    ids=["target", "subscription"],
)
def test_a_member_of_very_many_topics(value: TargetAssignment | MemberMetadata) -> None:
    """In bytecodes, for each topic: they were written by one object after another."""
    names_topics = isinstance(value, MemberMetadata)
    kind = ConsumerGroupRecordType.MEMBER if names_topics else ConsumerGroupRecordType.TARGET
    record = ConsumerGroupRecord(kind, "g1", "m1", value)
    encode(record)  # what is made once
    assert cost(partial(encode, record)) <= 1000 * 60
    assert decode(*encode(record)) == record


texts = st.text(max_size=20)
blobs = st.binary(max_size=40)
offsets = st.builds(
    CommittedOffset,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    texts,
    st.integers(0, 2**62),
    st.just(-1),
    st.uuids(),
)
members = st.builds(
    StoredMember,
    texts,
    st.none() | texts,
    texts,
    texts,
    st.integers(0, 9**9),
    st.integers(0, 9**9),
    blobs,
    blobs,
)
groups = st.builds(
    StoredGroup,
    texts,
    st.integers(0, 2**31 - 1),
    st.none() | texts,
    st.none() | texts,
    st.integers(-1, 2**62),
    st.lists(members, max_size=4).map(tuple),
)
records = st.builds(GroupRecord, texts, st.none() | groups) | st.builds(
    OffsetRecord, texts, st.builds(TopicPartition, texts, st.integers(0, 2**31 - 1)), st.none() | offsets
)


assigned = st.dictionaries(st.uuids(), st.frozensets(st.integers(0, 2**31 - 1), max_size=200), max_size=4)
of_members = st.builds(
    ConsumerGroupRecord,
    st.just(ConsumerGroupRecordType.TARGET),
    texts,
    texts,
    st.none() | st.builds(TargetAssignment, assigned),
) | st.builds(
    ConsumerGroupRecord,
    st.just(ConsumerGroupRecordType.MEMBER),
    texts,
    texts,
    st.builds(
        MemberMetadata, subscribed_topic_names=st.lists(st.text(max_size=200), max_size=200).map(tuple)
    ),
)


@given(records | of_members)
def test_what_is_written_is_read_back(record: CoordinatorRecord) -> None:
    assert decode(*encode(record)) == record


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_any_bytes_give_a_record_or_a_value_error(key: bytes, value: bytes | None) -> None:
    try:
        decode(key, value)
    except ValueError:
        pass
