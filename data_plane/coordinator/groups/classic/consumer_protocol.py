"""What classic consumers tell each other through the coordinator: subscriptions and assignments.

The protocol type "consumer" of JoinGroup and SyncGroup; bytes of the clients' own making. The coordinator
looks inside where members of both protocols share a group, and to see which topics a group reads: offsets
of others may expire.

    subscription  version int16 | topics array int32 of string int16 | user data bytes int32
                  | owned partitions (1+) array of (topic string, partitions array int32 of int32)
                  | generation int32 (2+) | rack nullable string (3+)
    assignment    version int16 | array of (topic string, partitions array of int32) | user data bytes
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from metadata_quorum.foundation.primitives import Reader

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NO_BYTES: Final = _INT32.pack(-1)

Partitions = Mapping[str, frozenset[int]]
"""By topic."""


@dataclass(frozen=True, slots=True)
class Subscription:
    version: int
    topics: tuple[str, ...]
    owned: Partitions
    rack_id: str | None = None


def read_subscription(data: bytes) -> Subscription:
    """Raises ValueError. Later versions only add fields."""
    reader = Reader(data)
    version = _int16(reader)
    topics = tuple(_string(reader) for _ in range(_int32(reader)))
    _skip_bytes(reader)
    owned = _partitions(reader) if version >= 1 else {}
    if version >= 2:
        _int32(reader)
    rack_id = _nullable_string(reader) if version >= 3 else None
    return Subscription(version, topics, owned, rack_id or None)


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics; None where the bytes are not a consumer's subscription."""
    try:
        return frozenset(read_subscription(subscription).topics)
    except ValueError:
        return None


def read_assignment(data: bytes) -> Partitions:
    """Raises ValueError. No bytes at all: nothing is assigned."""
    if not data:
        return {}
    reader = Reader(data)
    _int16(reader)
    return _partitions(reader)


def write_assignment(partitions: Partitions, version: int) -> bytes:
    out = bytearray(_INT16.pack(version) + _INT32.pack(len(partitions)))
    for topic in sorted(partitions):
        name, numbers = topic.encode(), sorted(partitions[topic])
        out += _INT16.pack(len(name)) + name + _INT32.pack(len(numbers))
        out += struct.pack(f">{len(numbers)}i", *numbers)
    return bytes(out + _NO_BYTES)


def version_of(subscription: bytes) -> int:
    """Raises ValueError."""
    return _int16(Reader(subscription))


def _partitions(reader: Reader) -> Partitions:
    found: dict[str, frozenset[int]] = {}
    for _ in range(_int32(reader)):
        topic = _string(reader)
        count = _int32(reader)
        found[topic] = frozenset(struct.unpack(f">{count}i", reader.take(4 * count)) if count > 0 else ())
    return found


def _string(reader: Reader) -> str:
    text = _nullable_string(reader)
    if text is None:
        raise ValueError("null where a string must be")
    return text


def _nullable_string(reader: Reader) -> str | None:
    size = _int16(reader)
    return None if size < 0 else bytes(reader.take(size)).decode()


def _skip_bytes(reader: Reader) -> None:
    reader.take(max(_int32(reader), 0))


def _int16(reader: Reader) -> int:
    return int(_INT16.unpack(reader.take(_INT16.size))[0])


def _int32(reader: Reader) -> int:
    return int(_INT32.unpack(reader.take(_INT32.size))[0])
