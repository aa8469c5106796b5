"""Produce, read and written by hand in all its versions: the hot path of every producer.

kio copies the records and takes 16 us for a response; here the records stay where they were received
(writable, so that the log can set base offset and leader epoch in place) and a response takes one.
A property test holds both byte-equal to kio.

    Request   v3-8   string? transactional_id | int16 acks | int32 timeout_ms | array of topics
              v9+    compact, each struct ends with tagged fields; v13+ topic ids instead of names
      topic          string name (v13: uuid) | array of (int32 index | records)
    Response  array of topics | int32 throttle_time_ms
      topic          string name (v13: uuid) | array of partitions
      partition      int32 index | int16 error | int64 base_offset | int64 log_append_time_ms
                     | int64 log_start_offset (v5) | array of record errors, string? message (v8)
                     | tag 0: current leader (v10)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from kraft.wire.bridge import MalformedMessage
from kraft.wire.limits import (
    NamesMore,
    check_count,
    read_compact_topic_name,
    read_topic_name,
    shortened,
)
from metadata_quorum.foundation.model import ZERO_UUID
from metadata_quorum.foundation.primitives import (
    INT32,
    array_length,
    compact_array_length,
    compact_string,
    read_array_length,
    read_compact_array_length,
    read_compact_string,
    read_records,
    read_string,
    read_uuid,
    read_uvarint,
    skip_tags,
    string,
    tagged_field,
    uvarint,
)

FIRST_FLEXIBLE: Final = 9
FIRST_WITH_IDS: Final = 13

_ACKS_AND_TIMEOUT: Final = struct.Struct(
    ">h"  # acks
    "i"  # timeout_ms
)
_PARTITION_V3: Final = struct.Struct(
    ">i"  # index
    "h"  # error_code
    "q"  # base_offset
    "q"  # log_append_time_ms
)
_PARTITION_V5: Final = struct.Struct(
    ">i"  # index
    "h"  # error_code
    "q"  # base_offset
    "q"  # log_append_time_ms
    "q"  # log_start_offset
)
_NO_TROUBLE: Final = b"\x01\x00\x00"
"""No record errors, no message, no tagged fields: compact."""
_ONE_PARTITION: Final = struct.Struct(
    ">B"  # number of partitions + 1
    "i"  # index
    "h"  # error_code
    "q"  # base_offset
    "q"  # log_append_time_ms
    "q"  # log_start_offset
    "3s"  # no record errors, no message, no tagged fields
    "B"  # the topic's tagged fields: none
    "i"  # throttle_time_ms
)
"""What follows the topic's name in a response that names one partition: from v9 on, before the last tags."""
_LEADER: Final = struct.Struct(
    ">i"  # leader_id
    "i"  # leader_epoch
    "b"  # no tagged fields
)


class TooManyPartitions(MalformedMessage):
    """More than whoever reads the request is to take at once."""


class ProducePartition(NamedTuple):
    """The records for one partition. Its topic is named by name or by id, depending on the version."""

    topic: str
    topic_id: UUID
    partition: int
    records: memoryview | None


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[ProducePartition]


class LeaderHint(NamedTuple):
    """The current leader, for a client that sent to the wrong broker."""

    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """How to reach a leader that a hint names."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ProducedPartition(NamedTuple):
    """What became of the records for one partition."""

    topic: str
    topic_id: UUID
    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    current_leader: LeaderHint | None = None

    @property
    def has_trouble(self) -> bool:
        """Whether there is more to tell than its numbers."""
        return bool(self.record_errors or self.error_message is not None or self.current_leader)


def read_produce_request(version: int, body: memoryview, max_partitions: int) -> ProduceRequest:
    """Records are slices of `body`. Raises `TooManyPartitions`, since a few bytes name one, and each is some
    work, and `MalformedMessage`."""
    try:
        if version >= FIRST_FLEXIBLE:
            return _read_flexible(version, body, max_partitions)
        return _read_classic(body, max_partitions)
    except NamesMore as too_many:
        raise TooManyPartitions(f"not a ProduceRequest of version {version}: {too_many}") from None
    except (struct.error, IndexError, ValueError) as error:
        raise MalformedMessage(f"not a ProduceRequest of version {version}: {error}") from None


def _read_flexible(version: int, body: memoryview, max_partitions: int) -> ProduceRequest:
    """Its steps are written out where nearly every request has one byte: small numbers, no tagged fields."""
    transactional_id, pos = read_compact_string(body, 0) if body[0] else (None, 1)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(body, pos)
    topics, pos = read_compact_array_length(body, pos + _ACKS_AND_TIMEOUT.size)
    check_count(topics, max_partitions)
    end = len(body)
    partitions: list[ProducePartition] = []
    for _ in range(topics):
        name = ""
        topic_id = ZERO_UUID
        if version >= FIRST_WITH_IDS:
            topic_id, pos = read_uuid(body, pos)
        else:
            name, pos = read_compact_topic_name(body, pos)
        count, pos = read_compact_array_length(body, pos)
        check_count(count, max_partitions, len(partitions))
        for _ in range(count):
            (index,) = INT32.unpack_from(body, pos)
            size, pos = read_uvarint(body, pos + 4)
            records = None
            if size:
                start, pos = pos, pos + size - 1
                if pos >= end:
                    raise ValueError("records run over the end")
                records = body[start:pos]
            pos = skip_tags(body, pos) if body[pos] else pos + 1
            partitions.append(ProducePartition(name, topic_id, index, records))
        pos = skip_tags(body, pos) if body[pos] else pos + 1
    if body[pos]:
        skip_tags(body, pos)
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _read_classic(body: memoryview, max_partitions: int) -> ProduceRequest:
    transactional_id, pos = read_string(body, 0)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(body, pos)
    topics, pos = read_array_length(body, pos + _ACKS_AND_TIMEOUT.size)
    check_count(topics, max_partitions)
    partitions: list[ProducePartition] = []
    for _ in range(topics):
        name, pos = read_topic_name(body, pos)
        count, pos = read_array_length(body, pos)
        check_count(count, max_partitions, len(partitions))
        for _ in range(count):
            (index,) = INT32.unpack_from(body, pos)
            records, pos = read_records(body, pos + 4)
            partitions.append(ProducePartition(name, ZERO_UUID, index, records))
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def write_produce_response(
    version: int,
    partitions: Sequence[ProducedPartition],
    *,
    throttle_time_ms: int = 0,
    endpoints: Iterable[NodeEndpoint] = (),
) -> bytes:
    """Partitions of one topic must follow each other."""
    if len(partitions) == 1 and version >= FIRST_FLEXIBLE and not partitions[0].has_trouble:
        return _write_one(version, partitions[0], throttle_time_ms, endpoints)
    topics = _by_topic(version, partitions)
    if version < FIRST_FLEXIBLE:
        return _write_classic(version, topics, throttle_time_ms)
    out = bytearray(compact_array_length(len(topics)))
    for topic in topics:
        first = topic[0]
        out += first.topic_id.bytes if version >= FIRST_WITH_IDS else compact_string(first.topic)
        out += compact_array_length(len(topic))
        for each in topic:
            out += _PARTITION_V5.pack(
                each.partition,
                each.error_code,
                each.base_offset,
                each.log_append_time_ms,
                each.log_start_offset,
            )
            if not each.has_trouble:
                out += _NO_TROUBLE
                continue
            out += compact_array_length(len(each.record_errors))
            for index, message in each.record_errors:
                out += INT32.pack(index) + compact_string(message) + b"\x00"
            out += compact_string(each.error_message and shortened(each.error_message))
            out += leader_tag(0, each.current_leader if version >= 10 else None)
        out += b"\x00"
    out += INT32.pack(throttle_time_ms)
    out += endpoints_tag(endpoints if version >= 10 else ())
    return bytes(out)


def _write_one(
    version: int, each: ProducedPartition, throttle_time_ms: int, endpoints: Iterable[NodeEndpoint]
) -> bytes:
    """One partition, and nothing but numbers to tell of it: what nearly every response is."""
    key = each.topic_id.bytes if version >= FIRST_WITH_IDS else _name_of(each)
    numbers = _ONE_PARTITION.pack(
        2,
        each.partition,
        each.error_code,
        each.base_offset,
        each.log_append_time_ms,
        each.log_start_offset,
        _NO_TROUBLE,
        0,
        throttle_time_ms,
    )
    return b"".join((b"\x02", key, numbers, endpoints_tag(endpoints if version >= 10 else ())))


def _name_of(each: ProducedPartition) -> bytes:
    """What was refused may have any name, of up to 32 KB: only topics' names are worth keeping."""
    return compact_string(each.topic) if each.error_code else _compact_name(each.topic)


@lru_cache(maxsize=4096)
def _compact_name(topic: str) -> bytes:
    return compact_string(topic)


def _by_topic(version: int, partitions: Sequence[ProducedPartition]) -> list[Sequence[ProducedPartition]]:
    if len(partitions) == 1:
        return [partitions]
    by_id = version >= FIRST_WITH_IDS
    return [list(group) for _, group in groupby(partitions, key=lambda p: p.topic_id if by_id else p.topic)]


def _write_classic(version: int, topics: list[Sequence[ProducedPartition]], throttle_time_ms: int) -> bytes:
    out = bytearray(array_length(len(topics)))
    for topic in topics:
        out += string(topic[0].topic)
        out += array_length(len(topic))
        for each in topic:
            out += _PARTITION_V3.pack(
                each.partition, each.error_code, each.base_offset, each.log_append_time_ms
            )
            if version >= 5:
                out += each.log_start_offset.to_bytes(8, "big", signed=True)
            if version >= 8:
                out += array_length(len(each.record_errors))
                for index, message in each.record_errors:
                    out += INT32.pack(index) + string(message)
                out += string(each.error_message and shortened(each.error_message))
    out += INT32.pack(throttle_time_ms)
    return bytes(out)


def leader_tag(tag: int, leader: LeaderHint | None) -> bytes:
    """The tagged fields of a partition, where a leader hint is the only one there may be."""
    if leader is None or leader == (-1, -1):
        return b"\x00"
    return b"\x01" + tagged_field(tag, _LEADER.pack(*leader, 0))


def endpoints_tag(endpoints: Iterable[NodeEndpoint]) -> bytes:
    """The tagged fields at a response's end: tag 0, how to reach the leaders that were hinted at."""
    if not endpoints:
        return b"\x00"
    packed = [
        INT32.pack(each.node_id)
        + compact_string(each.host)
        + INT32.pack(each.port)
        + compact_string(each.rack)
        for each in endpoints
    ]
    if not packed:
        return b"\x00"
    data = compact_array_length(len(packed)) + b"".join(each + b"\x00" for each in packed)
    return uvarint(1) + tagged_field(0, data)
