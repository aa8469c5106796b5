"""The records of `__consumer_offsets` in Apache Kafka's own bytes.

Two kinds matter to classic groups: a group's metadata as of its last completed rebalance, and an
offset per group and partition. A null value is a tombstone. Keys and values open with a version;
the values are written as Kafka 4.1 writes them and read in every version that it reads. Keys of
the consumer protocol's groups are those of groups/consumer_records.py; keys of other kinds (share and
streams groups) decode to None and are passed over.

    OffsetCommitKey    version int16 (0, 1) | group string | topic string | partition int32
    OffsetCommitValue  version int16 (0-4), 4 flexible; written as 4, with an expiry time as 1
        offset int64 | leader epoch int32 (3+) | metadata string | commit timestamp int64
        | expire timestamp int64 (1) | tagged (4+): 0 topic id uuid
    GroupMetadataKey   version int16 (2) | group string
    GroupMetadataValue version int16 (0-4), 4 flexible; written as 3
        protocol type string | generation int32 | protocol nullable string | leader nullable string
        | state timestamp int64 (2+) | members array of
            member id string | instance id nullable string (3+) | client id string | client host
            string | rebalance timeout int32 (1+) | session timeout int32 | subscription bytes
            | assignment bytes

Strings and bytes are led by their length: int16 and int32; varint of length + 1 where flexible.

Path of the data: classic/group.py, offsets.py -> here -> coordinator/runtime.py -> partition log.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.coordinator.groups import consumer_records
from data_plane.coordinator.groups.consumer_records import ConsumerGroupRecord
from data_plane.coordinator.groups.messages import CommittedOffset
from metadata_quorum.foundation.model import ZERO_UUID, TopicPartition
from metadata_quorum.foundation.primitives import (
    INT16,
    INT32,
    INT64,
    MAX_STRING_BYTES,
    Reader,
    compact_string,
    string,
    tagged_field,
    uvarint,
)

_OFFSET_KEY_VERSIONS: Final = (0, 1)
_OFFSET_KEY_VERSION: Final = 1
_GROUP_KEY_VERSION: Final = 2
_OFFSET_VALUE_VERSION: Final = 4
_OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
_GROUP_VALUE_VERSION: Final = 3
_FIRST_FLEXIBLE: Final = 4
_HIGHEST_VALUE_VERSION: Final = 4
_TOPIC_ID_TAG: Final = 0
_MEMBER_NUMBERS: Final = struct.Struct(
    ">i"  # rebalance timeout in ms
    "i"  # session timeout in ms
    "i"  # bytes of its subscription
)


class StoredMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group as of its last completed rebalance; without members: empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...]


class GroupRecord(NamedTuple):
    """`value` None: the group is deleted."""

    group_id: str
    value: StoredGroup | None


class OffsetRecord(NamedTuple):
    """`value` None: the offset is deleted."""

    group_id: str
    partition: TopicPartition
    value: CommittedOffset | None


class EncodedRecord(NamedTuple):
    """One of thousands that were encoded and replayed in pieces, before the decision that they are of."""

    group_id: str
    key: bytes
    value: bytes | None


CoordinatorRecord = GroupRecord | OffsetRecord | ConsumerGroupRecord | EncodedRecord


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they lie in the log."""
    if isinstance(record, ConsumerGroupRecord):
        return consumer_records.encode(record)
    if isinstance(record, OffsetRecord):
        tp = record.partition
        key = INT16.pack(_OFFSET_KEY_VERSION) + string(record.group_id) + string(tp.topic)
        key += INT32.pack(tp.partition)
        return key, None if record.value is None else _encode_offset(record.value)
    if isinstance(record, EncodedRecord):
        return record.key, record.value
    key = INT16.pack(_GROUP_KEY_VERSION) + string(record.group_id)
    return key, None if record.value is None else _encode_group(record.value)


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """The record behind the bytes; None for an unknown kind.

    Raises ValueError where the bytes are not what their version promises.
    """
    reader = Reader(key)
    version = reader.int16()
    if version in _OFFSET_KEY_VERSIONS:
        group_id = reader.string()
        partition = TopicPartition(reader.string(), reader.int32())
        return OffsetRecord(group_id, partition, None if value is None else _decode_offset(value))
    if version == _GROUP_KEY_VERSION:
        return GroupRecord(reader.string(), None if value is None else _decode_group(value))
    return consumer_records.decode(key, value)


def _encode_offset(value: CommittedOffset) -> bytes:
    if value.expire_timestamp_ms >= 0:
        return (
            INT16.pack(_OFFSET_VALUE_VERSION_WITH_EXPIRY)
            + INT64.pack(value.offset)
            + string(value.metadata)
            + INT64.pack(value.commit_timestamp_ms)
            + INT64.pack(value.expire_timestamp_ms)
        )
    topic_id = value.topic_id
    tags = b"\x00" if topic_id == ZERO_UUID else uvarint(1) + tagged_field(_TOPIC_ID_TAG, topic_id.bytes)
    return (
        INT16.pack(_OFFSET_VALUE_VERSION)
        + INT64.pack(value.offset)
        + INT32.pack(value.leader_epoch)
        + compact_string(value.metadata)
        + INT64.pack(value.commit_timestamp_ms)
        + tags
    )


def _decode_offset(data: bytes) -> CommittedOffset:
    value = _Value(data)
    reader, version = value.reader, value.version
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = value.string()
    committed_at = reader.int64()
    expires_at = reader.int64() if version == 1 else -1
    topic_id = value.tagged_fields().get(_TOPIC_ID_TAG)
    return CommittedOffset(
        offset,
        leader_epoch,
        metadata,
        committed_at,
        expires_at,
        UUID(bytes=bytes(topic_id)) if topic_id else ZERO_UUID,
    )


def _encode_group(value: StoredGroup) -> bytes:
    out = bytearray(INT16.pack(_GROUP_VALUE_VERSION))
    out += string(value.protocol_type) + INT32.pack(value.generation)
    out += string(value.protocol) + string(value.leader)
    out += INT64.pack(value.state_timestamp_ms)
    out += INT32.pack(len(value.members))
    for member in value.members:
        out += string(member.member_id) + string(member.instance_id)
        out += string(member.client_id) + string(member.client_host)
        out += INT32.pack(member.rebalance_timeout_ms) + INT32.pack(member.session_timeout_ms)
        out += INT32.pack(len(member.subscription)) + member.subscription
        out += INT32.pack(len(member.assignment)) + member.assignment
    return bytes(out)


def _decode_group(data: bytes) -> StoredGroup:
    value = _Value(data)
    protocol_type = value.string()
    generation = value.reader.int32()
    protocol = value.nullable_string()
    leader = value.nullable_string()
    changed_at = value.reader.int64() if value.version >= 2 else -1
    count = value.count()
    members = (
        _decode_members(value.reader, count)
        if value.version == _GROUP_VALUE_VERSION
        else tuple(_decode_member(value) for _ in range(count))
    )
    return StoredGroup(protocol_type, generation, protocol, leader, changed_at, members)


def _decode_members(reader: Reader, count: int) -> tuple[StoredMember, ...]:
    """As `_decode_member` of our own version, in half the time: a group may have ten thousand. Raises
    ValueError."""
    data, pos, end = bytes(reader.buf), reader.pos, reader.end
    members: list[StoredMember] = []
    try:
        for _ in range(count):
            strings: list[str | None] = []
            for _ in range(4):
                size = (data[pos] << 8) | data[pos + 1]
                pos += 2
                if size > MAX_STRING_BYTES:  # negative: null
                    strings.append(None)
                    continue
                strings.append(data[pos : pos + size].decode())
                pos += size
            rebalance_timeout_ms, session_timeout_ms, size = _MEMBER_NUMBERS.unpack_from(data, pos)
            pos += _MEMBER_NUMBERS.size
            subscription = data[pos : pos + size] if size > 0 else b""
            pos += max(size, 0)
            (size,) = INT32.unpack_from(data, pos)
            pos += INT32.size
            assignment = data[pos : pos + size] if size > 0 else b""
            pos += max(size, 0)
            member_id, instance_id, client_id, client_host = strings
            if member_id is None or client_id is None or client_host is None or pos > end:
                raise ValueError("a member without an id, or one that runs over the end")
            if rebalance_timeout_ms < 0:
                rebalance_timeout_ms = session_timeout_ms
            members.append(
                StoredMember(
                    member_id, instance_id, client_id, client_host, rebalance_timeout_ms, session_timeout_ms,
                    subscription, assignment,
                )
            )  # fmt: skip
    except (IndexError, struct.error) as error:
        raise ValueError("a member runs over the end") from error
    reader.pos = pos
    return tuple(members)


def _decode_member(value: _Value) -> StoredMember:
    reader, version = value.reader, value.version
    member_id = value.string()
    instance_id = value.nullable_string() if version >= 3 else None
    client_id = value.string()
    client_host = value.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription = value.bytes()
    assignment = value.bytes()
    value.tagged_fields()
    if rebalance_timeout_ms < 0:  # version 0 had only one timeout
        rebalance_timeout_ms = session_timeout_ms
    return StoredMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


class _Value:
    """The fields of a value one after another, in the plain or the flexible encoding, by its version."""

    __slots__ = ("flexible", "reader", "version")

    def __init__(self, data: bytes) -> None:
        self.reader = Reader(data)
        self.version = self.reader.int16()
        if not 0 <= self.version <= _HIGHEST_VALUE_VERSION:
            raise ValueError(f"value of version {self.version} in __consumer_offsets is not known")
        self.flexible = self.version >= _FIRST_FLEXIBLE

    def string(self) -> str:
        return self.reader.compact_string() if self.flexible else self.reader.string()

    def nullable_string(self) -> str | None:
        return self.reader.nullable_compact_string() if self.flexible else self.reader.nullable_string()

    def bytes(self) -> bytes:
        """Null reads as empty."""
        reader = self.reader
        return (reader.nullable_compact_bytes() if self.flexible else reader.nullable_bytes()) or b""

    def count(self) -> int:
        return self.reader.uvarint() - 1 if self.flexible else self.reader.int32()

    def tagged_fields(self) -> dict[int, memoryview]:
        return self.reader.tagged_fields() if self.flexible else {}
