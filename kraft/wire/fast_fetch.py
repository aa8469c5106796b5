"""Fetch's responses, read and written by hand in all versions: the hot path of consumers and followers.

Records never move: the leader puts the bytes that it read from the log between the other fields, as
buffers of their own, and the follower gets slices of the frame it received. A property test holds
reader and writer byte-equal to kio. Requests are in fast_fetch_request.py.

    Response  int32 throttle_time_ms | int16 error, int32 session_id (v7) | array of topics
              | tag 0: node endpoints (v16)
      topic          string name (v13: uuid) | array of partitions
      partition      int32 index | int16 error | int64 high_watermark | int64 last_stable_offset
                     | int64 log_start_offset (v5) | array? of aborted (int64 producer, int64 first)
                     | int32 preferred_read_replica (v11) | records
                     | tags 0: diverging epoch, 1: current leader, 2: snapshot id (v12)
From v12 on strings, arrays and records are compact and each struct ends with tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from fetch.messages import CONSUMER, FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from kraft.wire.bridge import MalformedMessage
from kraft.wire.fast_produce import LeaderHint, NodeEndpoint, endpoints_tag
from kraft.wire.limits import check_count, read_compact_topic_name, read_topic_name
from metadata_quorum.foundation.errors import NO_ERROR, ErrorCode
from metadata_quorum.foundation.file_region import FileRegion
from metadata_quorum.foundation.model import ZERO_UUID
from metadata_quorum.foundation.primitives import (
    INT32,
    INT_MAX,
    array_length,
    compact_array_length,
    compact_string,
    read_array_length,
    read_compact_array_length,
    read_compact_records,
    read_records,
    read_tags,
    read_uuid,
    skip_tags,
    string,
    tagged_field,
    uvarint,
)

__all__ = [  # with the shapes of a fetch, for readers above that know only the wire
    "CONSUMER",
    "FETCH_VERSION",
    "FIRST_FLEXIBLE",
    "FIRST_WITH_IDS",
    "FIRST_WITH_REPLICA_STATE",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchedPartition",
    "Hints",
    "Out",
    "read_fetch_response",
    "read_topic",
    "topic_runs",
    "write_fetch_response",
]


FETCH_VERSION: Final = 17
"""The version in which a node fetches: partitions from their leaders, metadata from controllers."""
FIRST_FLEXIBLE: Final = 12
FIRST_WITH_IDS: Final = 13
FIRST_WITH_REPLICA_STATE: Final = 15

COPY_BELOW_BYTES: Final = 1024
"""Records up to here are copied among the other fields: a buffer of their own costs more."""

_TOP_V7: Final = struct.Struct(
    ">i"  # throttle_time_ms
    "h"  # error_code
    "i"  # session_id
)
_PARTITION_V4: Final = struct.Struct(
    ">i"  # partition_index
    "h"  # error_code
    "q"  # high_watermark
    "q"  # last_stable_offset
)
_PARTITION_V5: Final = struct.Struct(
    ">i"  # partition_index
    "h"  # error_code
    "q"  # high_watermark
    "q"  # last_stable_offset
    "q"  # log_start_offset
)
_PARTITION_V12: Final = struct.Struct(
    ">i"  # partition_index
    "h"  # error_code
    "q"  # high_watermark
    "q"  # last_stable_offset
    "q"  # log_start_offset
    "B"  # number of aborted transactions + 1, 0 for null: more than 1 do not fit into this struct
    "i"  # preferred_read_replica
)
_ABORTED: Final = struct.Struct(
    ">q"  # producer_id
    "q"  # first_offset
)
_EPOCH_END: Final = struct.Struct(
    ">i"  # epoch
    "q"  # end_offset
)
_LEADER: Final = struct.Struct(
    ">i"  # leader_id
    "i"  # leader_epoch
)

Out = list[bytes | bytearray | memoryview | FileRegion]
Hints = Mapping[int, LeaderHint]
"""Current leaders for the client, by position in `FetchResponse.partitions`."""


# ---- response, leader's side -------------------------------------------------------------------------


def write_fetch_response(
    version: int,
    response: FetchResponse,
    *,
    throttle_time_ms: int = 0,
    hints: Hints | None = None,
    endpoints: Iterable[NodeEndpoint] = (),
) -> Out:
    """The body as buffers. Each partition's `records` have been read, or are in its `region`; partitions of
    one topic must follow each other."""
    out: Out = []
    if version >= 7:
        small = bytearray(_TOP_V7.pack(throttle_time_ms, response.error, response.session_id))
    else:
        small = bytearray(INT32.pack(throttle_time_ms))
    flexible, by_id = version >= FIRST_FLEXIBLE, version >= FIRST_WITH_IDS
    partitions = response.partitions
    length_of = compact_array_length if flexible else array_length
    topics = topic_runs(partitions, by_id)
    small += length_of(len(topics))
    for start, end in topics:
        first = partitions[start]
        if by_id:
            small += first.topic_id.bytes
        else:
            small += compact_string(first.topic) if flexible else string(first.topic)
        small += length_of(end - start)
        for position in range(start, end):
            each = partitions[position]
            small += _before_records(version, each)
            records: memoryview | FileRegion | None = each.records
            if records is None:
                records = each.region
            size = len(records) if records is not None else 0
            small += uvarint(size + 1) if flexible else INT32.pack(size)
            if isinstance(records, memoryview) and size < COPY_BELOW_BYTES:
                small += records
            elif records is not None:
                out += (small, records)
                small = bytearray()
            if flexible:
                if hints or each.diverging_epoch is not None:
                    small += _partition_tags(each, hints.get(position) if hints else None)
                else:
                    small.append(0)
        if flexible:
            small.append(0)
    if flexible:
        small += endpoints_tag(endpoints if version >= 16 else ())
    if small:
        out.append(small)
    return out


def topic_runs(partitions: Sequence[FetchedPartition | FetchPartition], by_id: bool) -> list[tuple[int, int]]:
    """The ranges of partitions that belong to the same topic; they are consecutive."""
    runs: list[tuple[int, int]] = []
    start = 0
    for end in range(1, len(partitions)):
        one, other = partitions[end - 1], partitions[end]
        if by_id:
            # Mostly the same object, and UUIDs are compared by a function in Python.
            differ = one.topic_id is not other.topic_id and one.topic_id != other.topic_id
        else:
            differ = one.topic != other.topic
        if differ:
            runs.append((start, end))
            start = end
    if partitions:
        runs.append((start, len(partitions)))
    return runs


def _before_records(version: int, each: FetchedPartition) -> bytes:
    if version >= FIRST_FLEXIBLE and not each.aborted_transactions:
        return _PARTITION_V12.pack(
            each.partition,
            each.error,
            each.high_watermark,
            each.last_stable_offset,
            each.log_start_offset,
            0,
            each.preferred_read_replica,
        )
    if version >= 5:
        fixed = _PARTITION_V5.pack(
            each.partition, each.error, each.high_watermark, each.last_stable_offset, each.log_start_offset
        )
    else:
        fixed = _PARTITION_V4.pack(each.partition, each.error, each.high_watermark, each.last_stable_offset)
    preferred = INT32.pack(each.preferred_read_replica) if version >= 11 else b""
    return fixed + _aborted(version, each.aborted_transactions) + preferred


def _aborted(version: int, aborted: Sequence[tuple[int, int]]) -> bytes:
    """Null where there are none."""
    if version >= FIRST_FLEXIBLE:
        if not aborted:
            return b"\x00"
        return compact_array_length(len(aborted)) + b"".join(
            _ABORTED.pack(*each) + b"\x00" for each in aborted
        )
    if not aborted:
        return array_length(-1)
    return array_length(len(aborted)) + b"".join(_ABORTED.pack(*each) for each in aborted)


def _partition_tags(each: FetchedPartition, hint: LeaderHint | None) -> bytes:
    if each.diverging_epoch is None and hint is None:
        return b"\x00"
    tags = []
    if each.diverging_epoch is not None and each.diverging_epoch != (-1, -1):
        tags.append(tagged_field(0, _EPOCH_END.pack(*each.diverging_epoch) + b"\x00"))
    if hint is not None and hint != (-1, -1):
        tags.append(tagged_field(1, _LEADER.pack(*hint) + b"\x00"))
    return uvarint(len(tags)) + b"".join(tags)


# ---- response, follower's side -----------------------------------------------------------------------


def read_fetch_response(version: int, body: memoryview) -> FetchResponse:
    """`records` are slices of `body`. Raises `MalformedMessage`."""
    try:
        return _read_response(version, body)
    except (struct.error, IndexError, ValueError) as error:
        raise MalformedMessage(f"not a FetchResponse of version {version}: {error}") from None


def _read_response(version: int, body: memoryview) -> FetchResponse:
    response = FetchResponse()
    if version >= 7:
        _, error, response.session_id = _TOP_V7.unpack_from(body, 0)
        response.error = ErrorCode(error) if error else NO_ERROR
        pos = _TOP_V7.size
    else:
        INT32.unpack_from(body, 0)
        pos = INT32.size
    flexible = version >= FIRST_FLEXIBLE
    read_length = read_compact_array_length if flexible else read_array_length
    topics, pos = read_length(body, pos)
    check_count(topics, INT_MAX)
    for _ in range(topics):
        name, topic_id, pos = read_topic(version, body, pos)
        count, pos = read_length(body, pos)
        check_count(count, INT_MAX)
        for _ in range(count):
            partition, pos = _read_partition(version, body, pos, name, topic_id)
            response.partitions.append(partition)
        if flexible:
            pos = skip_tags(body, pos)
    if flexible:
        skip_tags(body, pos)
    return response


def read_topic(version: int, body: memoryview, pos: int) -> tuple[str, UUID, int]:
    """A topic's name or id, whichever the version has; the position behind it. Raises `ValueError`."""
    if version >= FIRST_WITH_IDS:
        topic_id, pos = read_uuid(body, pos)
        return "", topic_id, pos
    read_name = read_compact_topic_name if version >= FIRST_FLEXIBLE else read_topic_name
    name, pos = read_name(body, pos)
    return name, ZERO_UUID, pos


def _read_partition(
    version: int, body: memoryview, pos: int, name: str, topic_id: UUID
) -> tuple[FetchedPartition, int]:
    aborted: Sequence[tuple[int, int]] = ()
    preferred = start = -1
    flexible = version >= FIRST_FLEXIBLE
    if flexible:
        index, error, high_watermark, stable, start, count, preferred = _PARTITION_V12.unpack_from(body, pos)
        if count > 1:
            aborted, pos = _read_aborted(version, body, pos + _PARTITION_V5.size)
            (preferred,) = INT32.unpack_from(body, pos)
            pos += INT32.size
        else:
            pos += _PARTITION_V12.size
        records, pos = read_compact_records(body, pos)
    else:
        if version >= 5:
            index, error, high_watermark, stable, start = _PARTITION_V5.unpack_from(body, pos)
            pos += _PARTITION_V5.size
        else:
            index, error, high_watermark, stable = _PARTITION_V4.unpack_from(body, pos)
            pos += _PARTITION_V4.size
        aborted, pos = _read_aborted(version, body, pos)
        if version >= 11:
            (preferred,) = INT32.unpack_from(body, pos)
            pos += INT32.size
        records, pos = read_records(body, pos)
    fetched = FetchedPartition(
        topic_id,
        name,
        index,
        ErrorCode(error) if error else NO_ERROR,
        high_watermark,
        stable,
        start,
        None,
        tuple(aborted),
        preferred,
        None,
        records,
    )
    if flexible:
        pos = _read_partition_tags(body, pos, fetched) if body[pos] else pos + 1
    return fetched, pos


def _read_aborted(version: int, body: memoryview, pos: int) -> tuple[list[tuple[int, int]], int]:
    flexible = version >= FIRST_FLEXIBLE
    count, pos = (read_compact_array_length if flexible else read_array_length)(body, pos)
    aborted = []
    for _ in range(count):
        aborted.append(_ABORTED.unpack_from(body, pos))
        pos += _ABORTED.size
        if flexible:
            pos = skip_tags(body, pos)
    return aborted, pos


def _read_partition_tags(body: memoryview, pos: int, fetched: FetchedPartition) -> int:
    def on_tag(tag: int, data: memoryview) -> None:
        if tag == 0:
            fetched.diverging_epoch = _EPOCH_END.unpack_from(data, 0)

    return read_tags(body, pos, on_tag)
