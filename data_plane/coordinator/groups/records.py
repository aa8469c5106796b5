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

Way of the data: classic/group.py, offsets.py -> here -> coordinator/runtime.py -> partition log.
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

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")

_OFFSET_KEY_VERSIONS: Final = (0, 1)
_OFFSET_KEY_VERSION: Final = 1
_GROUP_KEY_VERSION: Final = 2
_OFFSET_VALUE_VERSION: Final = 4
_OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
_GROUP_VALUE_VERSION: Final = 3
_FIRST_FLEXIBLE: Final = 4
_HIGHEST_VALUE_VERSION: Final = 4
_TOPIC_ID_TAG: Final = 0


@dataclass(frozen=True, slots=True)
class StoredMember:
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


CoordinatorRecord = GroupRecord | OffsetRecord | ConsumerGroupRecord


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they lie in the log."""
    if isinstance(record, ConsumerGroupRecord):
        return consumer_records.encode(record)
    key = bytearray()
    if isinstance(record, OffsetRecord):
        key += _INT16.pack(_OFFSET_KEY_VERSION)
        _put_string(key, record.group_id)
        _put_string(key, record.partition.topic)
        key += _INT32.pack(record.partition.partition)
        return bytes(key), None if record.value is None else _encode_offset(record.value)
    key += _INT16.pack(_GROUP_KEY_VERSION)
    _put_string(key, record.group_id)
    return bytes(key), None if record.value is None else _encode_group(record.value)


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """The record behind the bytes; None for a kind that is not known here.

    Raises ValueError where the bytes are not what their version promises.
    """
    try:
        reader = _RecordReader(key)
        version = reader.int16()
        if version in _OFFSET_KEY_VERSIONS:
            group_id = reader.string()
            partition = TopicPartition(reader.string(), reader.int32())
            return OffsetRecord(group_id, partition, None if value is None else _decode_offset(value))
        if version == _GROUP_KEY_VERSION:
            return GroupRecord(reader.string(), None if value is None else _decode_group(value))
    except (struct.error, IndexError, UnicodeDecodeError) as e:
        raise ValueError(f"record of __consumer_offsets: {e}") from e
    return consumer_records.decode(key, value)


def _encode_offset(value: CommittedOffset) -> bytes:
    out = bytearray()
    if value.expire_timestamp_ms >= 0:
        out += _INT16.pack(_OFFSET_VALUE_VERSION_WITH_EXPIRY) + _INT64.pack(value.offset)
        _put_string(out, value.metadata)
        return bytes(out + _INT64.pack(value.commit_timestamp_ms) + _INT64.pack(value.expire_timestamp_ms))
    out += _INT16.pack(_OFFSET_VALUE_VERSION) + _INT64.pack(value.offset) + _INT32.pack(value.leader_epoch)
    text = value.metadata.encode()
    _put_varint(out, len(text) + 1)
    out += text
    out += _INT64.pack(value.commit_timestamp_ms)
    if value.topic_id == ZERO_UUID:
        _put_varint(out, 0)
    else:
        for number in (1, _TOPIC_ID_TAG, len(value.topic_id.bytes)):  # count of tags, tag, size
            _put_varint(out, number)
        out += value.topic_id.bytes
    return bytes(out)


def _decode_offset(data: bytes) -> CommittedOffset:
    reader = _RecordReader(data)
    version = reader.value_version()
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    committed_at = reader.int64()
    expires_at = reader.int64() if version == 1 else -1
    topic_id = reader.tags().get(_TOPIC_ID_TAG) if version >= _FIRST_FLEXIBLE else None
    return CommittedOffset(
        offset,
        leader_epoch,
        metadata,
        committed_at,
        expires_at,
        UUID(bytes=topic_id) if topic_id else ZERO_UUID,
    )


def _encode_group(value: StoredGroup) -> bytes:
    out = bytearray(_INT16.pack(_GROUP_VALUE_VERSION))
    _put_string(out, value.protocol_type)
    out += _INT32.pack(value.generation)
    _put_string(out, value.protocol)
    _put_string(out, value.leader)
    out += _INT64.pack(value.state_timestamp_ms)
    out += _INT32.pack(len(value.members))
    for member in value.members:
        _put_string(out, member.member_id)
        _put_string(out, member.instance_id)
        _put_string(out, member.client_id)
        _put_string(out, member.client_host)
        out += _INT32.pack(member.rebalance_timeout_ms) + _INT32.pack(member.session_timeout_ms)
        out += _INT32.pack(len(member.subscription)) + member.subscription
        out += _INT32.pack(len(member.assignment)) + member.assignment
    return bytes(out)


def _decode_group(data: bytes) -> StoredGroup:
    reader = _RecordReader(data)
    version = reader.value_version()
    protocol_type = reader.string()
    generation = reader.int32()
    protocol = reader.nullable_string()
    leader = reader.nullable_string()
    changed_at = reader.int64() if version >= 2 else -1
    members = tuple(_decode_member(reader, version) for _ in range(reader.count()))
    return StoredGroup(protocol_type, generation, protocol, leader, changed_at, members)


def _decode_member(reader: _RecordReader, version: int) -> StoredMember:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription = reader.blob()
    assignment = reader.blob()
    if version >= _FIRST_FLEXIBLE:
        reader.tags()
    if rebalance_timeout_ms < 0:  # version 0 knew only one timeout
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


def _put_string(out: bytearray, text: str | None) -> None:
    if text is None:
        out += _INT16.pack(-1)
    else:
        data = text.encode()
        out += _INT16.pack(len(data)) + data


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


class _RecordReader:
    """Reads fields one after another, in the plain or the flexible way by the value's version."""

    __slots__ = ("_data", "_flexible", "_pos")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0
        self._flexible = False

    def value_version(self) -> int:
        version = self.int16()
        if not 0 <= version <= _HIGHEST_VALUE_VERSION:
            raise ValueError(f"value of version {version} in __consumer_offsets is not known")
        self._flexible = version >= _FIRST_FLEXIBLE
        return version

    def int16(self) -> int:
        return int(_INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self._take(8))[0])

    def count(self) -> int:
        return self._varint() - 1 if self._flexible else self.int32()

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ValueError("null where a string must be")
        return text

    def nullable_string(self) -> str | None:
        size = self._varint() - 1 if self._flexible else self.int16()
        return None if size < 0 else self._take(size).decode()

    def blob(self) -> bytes:
        return self._take(max(self.count(), 0))

    def tags(self) -> dict[int, bytes]:
        found = {}
        for _ in range(self._varint()):
            tag = self._varint()
            found[tag] = self._take(self._varint())
        return found

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._pos]
            self._pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _take(self, size: int) -> bytes:
        end = self._pos + size
        if end > len(self._data):
            raise ValueError(f"field of {size} bytes reaches beyond its record")
        data = self._data[self._pos : end]
        self._pos = end
        return data
