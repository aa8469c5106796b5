"""The records of consumer-protocol groups in `__consumer_offsets`, in Apache Kafka's own bytes.

    key    kind int16 | group id string | member id or regular expression string (5, 7, 8, 16)
    value  version int16 (0) | flexible fields as the dataclasses below name them; null: a tombstone

    3   the group: its epoch and a hash of the topics that it reads
    5   a member: who it is, what it subscribes to
    6   the epoch of the target assignment          7   a member's part of it
    8   a member's current assignment and state     16  the topics that a regular expression matches

Kind 4 (partition metadata) has been replaced by the hash of kind 3 in Kafka 4.1 and is not written;
found in a log it is passed over. Strings of keys are led by an int16.

Path of the data: consumer/draft.py -> here -> coordinator/runtime.py -> partition log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, Final, NamedTuple
from uuid import UUID

from data_plane.coordinator.groups.assignment import NOTHING, Assignment
from metadata_quorum.foundation.codec import (
    Bytes,
    Int8,
    Int32,
    Int64,
    NullableString,
    Schema,
    String,
    Tag,
    array_count,
)
from metadata_quorum.foundation.primitives import INT16, INT32, Reader, string, uuid_of, uvarint

_VALUE_VERSION: Final = 0
_NULL_STRUCT: Final = b"\xff"
_NULL_TAGGED_STRUCT: Final = b"\x00"
"""Kafka writes null so where the struct is a tagged field."""
_PRESENT_STRUCT: Final = b"\x01"


class _AllStrings:
    """An array of them, by hand: a member may name thousands of topics."""

    def write(self, out: bytearray, value: tuple[str, ...], version: int) -> None:
        out += uvarint(len(value) + 1)
        for text in value:
            encoded = text.encode()
            out += uvarint(len(encoded) + 1)
            out += encoded

    def read(self, reader: Reader, version: int) -> tuple[str, ...]:
        """Raises ValueError."""
        return tuple(reader.compact_string() for _ in range(_count(reader)))


def _count(reader: Reader) -> int:
    """Of an array. Raises ValueError."""
    count = array_count(reader)
    if count < 0:
        raise ValueError("null where the field must have a value")
    return count


Strings = Annotated[tuple[str, ...], _AllStrings()]


class ConsumerGroupRecordType(IntEnum):
    """The kind of a record; Kafka's numbers."""

    GROUP = 3
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


class _NullableStruct:
    """A marker byte, then the struct: as Kafka writes a struct that may be null."""

    def __init__(self, cls: type[Any]) -> None:
        self._schema = Schema.of(cls)

    def write(self, out: bytearray, value: Any, version: int) -> None:
        if value is None:
            out += _NULL_STRUCT
        else:
            out += _PRESENT_STRUCT
            self._schema.write(out, value, version)

    def read(self, reader: Reader, version: int) -> Any:
        marker = bytes(reader.take(1))
        return None if marker in (_NULL_STRUCT, _NULL_TAGGED_STRUCT) else self._schema.read(reader, version)


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """Kafka's ConsumerGroupMetadataValue."""

    epoch: Int32
    metadata_hash: Annotated[Int64, Tag(0)] = 0


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    name: String
    metadata: Bytes


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What a member of the classic protocol brought, besides what all members have."""

    session_timeout_ms: Int32
    supported_protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """Kafka's ConsumerGroupMemberMetadataValue. Topic names are kept sorted."""

    instance_id: NullableString = None
    rack_id: NullableString = None
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Strings = ()
    subscribed_topic_regex: NullableString = ""
    rebalance_timeout_ms: Int32 = -1
    server_assignor: NullableString = None
    classic: Annotated[ClassicMetadata | None, Tag(0), _NullableStruct(ClassicMetadata)] = None


@dataclass(frozen=True, slots=True)
class TargetAssignmentEpoch:
    """Kafka's ConsumerGroupTargetAssignmentMetadataValue."""

    assignment_epoch: Int32


class _AllTopicPartitions:
    """An array of topics with arrays of partitions, by hand: a member may have thousands of topics."""

    def write(self, out: bytearray, value: Assignment, version: int) -> None:
        out += uvarint(len(value) + 1)
        for topic_id, numbers in value.items():
            size = len(numbers)
            out += topic_id.bytes + uvarint(size + 1) + struct.pack(f">{size}i", *sorted(numbers))
            out.append(0)  # no tagged fields

    def read(self, reader: Reader, version: int) -> Assignment:
        """Raises ValueError."""
        found: dict[UUID, frozenset[int]] = {}
        for _ in range(_count(reader)):
            topic_id, size = uuid_of(bytes(reader.take(16))), _count(reader)
            found[topic_id] = frozenset(struct.unpack(f">{size}i", reader.take(INT32.size * size)))
            reader.tagged_fields()
        return found or NOTHING


AllTopicPartitions = Annotated[Assignment, _AllTopicPartitions()]
"""As the group itself has it: a record of thousands of topics is decided on, written and replayed in one turn
of the loop."""


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """Kafka's ConsumerGroupTargetAssignmentMemberValue."""

    topic_partitions: AllTopicPartitions


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """Kafka's ConsumerGroupCurrentMemberAssignmentValue."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: AllTopicPartitions
    partitions_pending_revocation: AllTopicPartitions


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """Kafka's ConsumerGroupRegularExpressionValue: the topics, as of a metadata offset and a time."""

    topics: Strings
    version: Int64
    timestamp: Int64


Value = (
    GroupEpoch | MemberMetadata | TargetAssignmentEpoch | TargetAssignment | CurrentAssignment | ResolvedRegex
)

_VALUES: Final[dict[ConsumerGroupRecordType, type[Any]]] = {
    ConsumerGroupRecordType.GROUP: GroupEpoch,
    ConsumerGroupRecordType.MEMBER: MemberMetadata,
    ConsumerGroupRecordType.TARGET_EPOCH: TargetAssignmentEpoch,
    ConsumerGroupRecordType.TARGET: TargetAssignment,
    ConsumerGroupRecordType.CURRENT: CurrentAssignment,
    ConsumerGroupRecordType.REGEX: ResolvedRegex,
}
_NAMED: Final = frozenset(
    {
        ConsumerGroupRecordType.MEMBER,
        ConsumerGroupRecordType.TARGET,
        ConsumerGroupRecordType.CURRENT,
        ConsumerGroupRecordType.REGEX,
    }
)
"""Kinds whose key names a member or a regular expression, too."""


class ConsumerGroupRecord(NamedTuple):
    """`value` None: a tombstone."""

    kind: ConsumerGroupRecordType
    group_id: str
    name: str
    """Member id or regular expression; empty where the kind has none."""
    value: Value | None


def encode(record: ConsumerGroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they lie in the log."""
    [key] = keys_of(record.kind, record.group_id, (record.name,))
    if record.value is None:
        return key, None
    out = bytearray(INT16.pack(_VALUE_VERSION))
    Schema.of(_VALUES[record.kind]).write(out, record.value, _VALUE_VERSION)
    return key, bytes(out)


def keys_of(kind: ConsumerGroupRecordType, group_id: str, names: Iterable[str]) -> list[bytes]:
    """Of the records of one kind with these names."""
    head = INT16.pack(kind) + string(group_id)
    return [head + string(name) for name in names] if kind in _NAMED else [head for _ in names]


def decode(key: bytes, value: bytes | None) -> ConsumerGroupRecord | None:
    """The record behind the bytes; None for a key of another kind. Raises ValueError."""
    number = INT16.unpack_from(key)[0] if len(key) >= INT16.size else -1
    if number not in _VALUES:
        return None
    kind = ConsumerGroupRecordType(number)
    reader = Reader(key, INT16.size)
    group_id = reader.string()
    name = reader.string() if kind in _NAMED else ""
    if value is None:
        return ConsumerGroupRecord(kind, group_id, name, None)
    body = Reader(value)
    version = body.int16()
    if version != _VALUE_VERSION:
        raise ValueError(f"value of version {version} for records of kind {number} is not known")
    return ConsumerGroupRecord(kind, group_id, name, Schema.of(_VALUES[kind]).read(body, version))
