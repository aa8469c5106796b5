"""What classic consumers exchange through the coordinator: subscriptions and assignments.

The protocol type "consumer" of JoinGroup and SyncGroup; bytes that clients define. The coordinator
reads them where members of both protocols share a group, and to see which topics a group reads: offsets
of others may expire.

    subscription  version int16 | topics array int32 of string int16 | user data bytes int32
                  | owned partitions (1+) array of (topic string, partitions array int32 of int32)
                  | generation int32 (2+) | rack nullable string (3+)
    assignment    version int16 | array of (topic string, partitions array of int32) | user data bytes
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from metadata_quorum.foundation.primitives import INT16, INT32, Reader, string

_NO_BYTES: Final = INT32.pack(-1)

MAX_TOPICS: Final = 50_000
"""Of a subscription or an assignment; they are read on the event loop."""
PARTITIONS_AS_TOPIC: Final = 10
"""So many partitions take the time of a topic."""
_LISTS: Final = 8
"""Of topics, as they are written, that are remembered."""

Partitions = Mapping[str, frozenset[int]]
"""By topic."""


class Allowance:
    """How much is read: of one member, or of all members of a group in one turn of the loop."""

    __slots__ = ("_left",)

    def __init__(self, topics: int) -> None:
        self._left = topics

    def take(self, topics: int) -> None:
        """Before they are read. Raises ValueError."""
        self._left -= topics
        if self._left < 0:
            raise ValueError("more topics or partitions than are read")


class KnownLists:
    """Of topics. Nearly all members of a group have the same, which is read once, and is one object."""

    def __init__(self) -> None:
        self._lists: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._known: deque[tuple[bytes, tuple[str, ...]]] = deque(maxlen=_LISTS)
        """The last ones, as they are written, and as they are read."""

    def read(self, reader: Reader, allowance: Allowance) -> tuple[str, ...]:
        """In order, each topic once. Raises ValueError."""
        start, data = reader.pos, reader.buf
        for written, topics in self._known:
            if data[start : start + len(written)].tobytes() == written:  # a view is compared item by item
                reader.pos += len(written)
                return topics
        topics = tuple(sorted({reader.string() for _ in range(_count(reader, allowance))}))
        topics = self._lists.setdefault(topics, topics)
        self._known.append((bytes(data[start : reader.pos]), topics))
        return topics


@dataclass(frozen=True, slots=True)
class Subscription:
    version: int
    topics: tuple[str, ...]
    """In order, each once."""
    owned: Partitions
    rack_id: str | None = None


def read_subscription(
    data: bytes, allowance: Allowance | None = None, lists: KnownLists | None = None
) -> Subscription:
    """Raises ValueError. Later versions only add fields."""
    allowance = allowance or _of_one_member()
    reader = Reader(data)
    version = reader.int16()
    topics = (lists or KnownLists()).read(reader, allowance)
    reader.nullable_bytes()
    owned = _partitions(reader, allowance) if version >= 1 else {}
    if version >= 2:
        reader.int32()
    rack_id = reader.nullable_string() if version >= 3 else None
    return Subscription(version, topics, owned, rack_id or None)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members; None where one's bytes are not a consumer's subscription, or where those
    that differ name more than are read."""
    read: dict[int, tuple[str, ...]] = {}
    lists, allowance = KnownLists(), Allowance(MAX_TOPICS)
    for subscription in subscriptions:
        try:
            topics = lists.read(Reader(subscription, INT16.size), allowance)
        except ValueError:
            return None
        read[id(topics)] = topics
    return frozenset().union(*read.values())


def read_assignment(data: bytes, allowance: Allowance | None = None) -> Partitions:
    """Raises ValueError. No bytes at all: nothing is assigned."""
    if not data:
        return {}
    reader = Reader(data)
    reader.int16()
    return _partitions(reader, allowance or _of_one_member())


def write_assignment(partitions: Partitions, version: int) -> bytes:
    out = bytearray(INT16.pack(version) + INT32.pack(len(partitions)))
    for topic in sorted(partitions):
        numbers = sorted(partitions[topic])
        out += string(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return bytes(out + _NO_BYTES)


def version_of(subscription: bytes) -> int:
    """Raises ValueError."""
    return Reader(subscription).int16()


def _of_one_member() -> Allowance:
    """Topics that it subscribes to, and partitions, each topic of which counts twice."""
    return Allowance(3 * MAX_TOPICS)


def _count(reader: Reader, allowance: Allowance) -> int:
    """Of topics. Raises ValueError."""
    count = reader.int32()
    if count > MAX_TOPICS:
        raise ValueError(f"{count} topics; at most {MAX_TOPICS} are read")
    allowance.take(max(count, 0))
    return count


def _partitions(reader: Reader, allowance: Allowance) -> Partitions:
    found: dict[str, frozenset[int]] = {}
    for _ in range(_count(reader, allowance)):
        topic = reader.string()
        count = reader.int32()
        allowance.take(1 + max(count, 0) // PARTITIONS_AS_TOPIC)
        found[topic] = frozenset(struct.unpack(f">{count}i", reader.take(4 * count)) if count > 0 else ())
    return found
