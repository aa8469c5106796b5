"""Fetch, read and written by hand in all its versions: the hot path of consumers and followers.

Records never move: the leader puts the bytes that it read from the log between the other fields, as
buffers of their own, and the follower gets slices of the frame it received. A property test holds all
four directions byte-equal to kio.

    Response  int32 throttle_time_ms | int16 error, int32 session_id (v7) | array of topics
              | tag 0: node endpoints (v16)
      topic          string name (v13: uuid) | array of partitions
      partition      int32 index | int16 error | int64 high_watermark | int64 last_stable_offset
                     | int64 log_start_offset (v5) | array? of aborted (int64 producer, int64 first)
                     | int32 preferred_read_replica (v11) | records
                     | tags 0: diverging epoch, 1: current leader, 2: snapshot id (v12)
    Request   int32 replica_id (to v14) | int32 max_wait_ms | int32 min_bytes | int32 max_bytes
              | int8 isolation | int32 session_id, int32 session_epoch (v7) | array of topics
              | array of forgotten topics (v7) | string rack_id (v11)
              | tags 0: cluster id (v12), 1: replica state (v15)
      topic          string name (v13: uuid) | array of partitions
      partition      int32 index | int32 current_leader_epoch (v9) | int64 fetch_offset
                     | int32 last_fetched_epoch (v12) | int64 log_start_offset (v5) | int32 max_bytes
                     | tag 0: replica directory id (v17), tag 1: high watermark (v18)
From v12 on strings, arrays and records are compact and each struct ends with tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final
from uuid import UUID

from fetch.messages import CONSUMER, FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from kraft.wire.bridge import MalformedMessage
from kraft.wire.fast_produce import LeaderHint, NodeEndpoint, endpoints_tag
from kraft.wire.limits import MAX_PARTITIONS, check_count
from metadata_quorum.foundation.errors import NO_ERROR, ErrorCode
from metadata_quorum.foundation.model import NO_EPOCH, ZERO_UUID
from metadata_quorum.foundation.primitives import (
    INT32,
    array_length,
    compact_array_length,
    compact_string,
    read_array_length,
    read_compact_array_length,
    read_compact_records,
    read_compact_string,
    read_records,
    read_string,
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
    "read_fetch_request",
    "read_fetch_response",
    "write_fetch_request",
    "write_fetch_response",
]


FETCH_VERSION: Final = 17
"""In which a node fetches from its peers: partitions from their leaders, metadata from controllers."""
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

Out = list[bytes | bytearray | memoryview]
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
    """The body as buffers. `records` of each partition must have been read; partitions of one topic
    must follow each other."""
    out: Out = []
    if version >= 7:
        small = bytearray(_TOP_V7.pack(throttle_time_ms, response.error, response.session_id))
    else:
        small = bytearray(INT32.pack(throttle_time_ms))
    flexible = version >= FIRST_FLEXIBLE
    key = _topic_id_of if version >= FIRST_WITH_IDS else _topic_of
    topics = [list(group) for _, group in groupby(enumerate(response.partitions), key=key)]
    length_of = compact_array_length if flexible else array_length
    small += length_of(len(topics))
    for topic in topics:
        first = topic[0][1]
        if version >= FIRST_WITH_IDS:
            small += first.topic_id.bytes
        else:
            small += compact_string(first.topic) if flexible else string(first.topic)
        small += length_of(len(topic))
        for position, each in topic:
            small += _before_records(version, each)
            records = each.records
            size = len(records) if records is not None else 0
            small += uvarint(size + 1) if flexible else INT32.pack(size)
            if records is not None and size < COPY_BELOW_BYTES:
                small += records
            elif records is not None:
                out += (small, records)
                small = bytearray()
            if flexible:
                small += _partition_tags(each, hints.get(position) if hints else None)
        if flexible:
            small += b"\x00"
    if flexible:
        small += endpoints_tag(endpoints if version >= 16 else ())
    if small:
        out.append(small)
    return out


def _topic_of(item: tuple[int, FetchedPartition]) -> object:
    return item[1].topic


def _topic_id_of(item: tuple[int, FetchedPartition]) -> object:
    return item[1].topic_id


def _before_records(version: int, each: FetchedPartition) -> bytes:
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
    for _ in range(topics):
        name, topic_id, pos = _read_topic(version, body, pos)
        count, pos = read_length(body, pos)
        for _ in range(count):
            partition, pos = _read_partition(version, body, pos, name, topic_id)
            response.partitions.append(partition)
        if flexible:
            pos = skip_tags(body, pos)
    if flexible:
        skip_tags(body, pos)
    return response


def _read_topic(version: int, body: memoryview, pos: int) -> tuple[str, UUID, int]:
    if version >= FIRST_WITH_IDS:
        topic_id, pos = read_uuid(body, pos)
        return "", topic_id, pos
    name, pos = read_compact_string(body, pos) if version >= FIRST_FLEXIBLE else read_string(body, pos)
    if name is None:
        raise ValueError("a topic without name")
    return name, ZERO_UUID, pos


def _read_partition(
    version: int, body: memoryview, pos: int, name: str, topic_id: UUID
) -> tuple[FetchedPartition, int]:
    if version >= 5:
        index, error, high_watermark, stable, start = _PARTITION_V5.unpack_from(body, pos)
        pos += _PARTITION_V5.size
    else:
        index, error, high_watermark, stable = _PARTITION_V4.unpack_from(body, pos)
        start = -1
        pos += _PARTITION_V4.size
    flexible = version >= FIRST_FLEXIBLE
    count, pos = (read_compact_array_length if flexible else read_array_length)(body, pos)
    aborted = []
    for _ in range(count):
        aborted.append(_ABORTED.unpack_from(body, pos))
        pos += _ABORTED.size
        if flexible:
            pos = skip_tags(body, pos)
    preferred = -1
    if version >= 11:
        (preferred,) = INT32.unpack_from(body, pos)
        pos += INT32.size
    records, pos = (read_compact_records if flexible else read_records)(body, pos)
    fetched = FetchedPartition(
        topic_id,
        name,
        index,
        ErrorCode(error) if error else NO_ERROR,
        high_watermark,
        stable,
        start,
        aborted_transactions=tuple(aborted),
        preferred_read_replica=preferred,
        records=records,
    )
    if flexible:

        def on_tag(tag: int, data: memoryview) -> None:
            if tag == 0:
                fetched.diverging_epoch = _EPOCH_END.unpack_from(data, 0)

        pos = read_tags(body, pos, on_tag)
    return fetched, pos


# ---- request -----------------------------------------------------------------------------------------

_REPLICA_ID: Final = INT32
_LIMITS: Final = struct.Struct(
    ">i"  # max_wait_ms
    "i"  # min_bytes
    "i"  # max_bytes
    "b"  # isolation_level
)
_SESSION: Final = struct.Struct(
    ">i"  # session_id
    "i"  # session_epoch
)
_REPLICA_STATE: Final = struct.Struct(
    ">i"  # replica_id
    "q"  # replica_epoch
)
_WANTED_V4: Final = struct.Struct(
    ">i"  # partition
    "q"  # fetch_offset
    "i"  # partition_max_bytes
)
_WANTED_V5: Final = struct.Struct(
    ">i"  # partition
    "q"  # fetch_offset
    "q"  # log_start_offset
    "i"  # partition_max_bytes
)
_WANTED_V9: Final = struct.Struct(
    ">i"  # partition
    "i"  # current_leader_epoch
    "q"  # fetch_offset
    "q"  # log_start_offset
    "i"  # partition_max_bytes
)
_WANTED_V12: Final = struct.Struct(
    ">i"  # partition
    "i"  # current_leader_epoch
    "q"  # fetch_offset
    "i"  # last_fetched_epoch
    "q"  # log_start_offset
    "i"  # partition_max_bytes
)


def read_fetch_request(version: int, body: memoryview, most: int = MAX_PARTITIONS) -> FetchRequest:
    """From v13 on topics are named by id, and their names are left empty. Raises `MalformedMessage`, also for
    more than `most` topics or partitions, fetched or forgotten."""
    try:
        return _read_request(version, body, most)
    except (struct.error, IndexError, ValueError) as error:
        raise MalformedMessage(f"not a FetchRequest of version {version}: {error}") from None


def _read_request(version: int, body: memoryview, most: int) -> FetchRequest:
    flexible = version >= FIRST_FLEXIBLE
    read_length = read_compact_array_length if flexible else read_array_length
    request = FetchRequest([], uses_topic_ids=version >= FIRST_WITH_IDS, leader_only=version < 11)
    pos = 0
    if version < FIRST_WITH_REPLICA_STATE:
        (request.replica_id,) = _REPLICA_ID.unpack_from(body, 0)
        pos = _REPLICA_ID.size
    request.max_wait_ms, request.min_bytes, request.max_bytes, isolation = _LIMITS.unpack_from(body, pos)
    request.committed_only = isolation == 1
    pos += _LIMITS.size
    if version >= 7:
        request.session_id, request.session_epoch = _SESSION.unpack_from(body, pos)
        pos += _SESSION.size
    topics, pos = read_length(body, pos)
    check_count(topics, most)
    for _ in range(topics):
        name, topic_id, pos = _read_topic(version, body, pos)
        count, pos = read_length(body, pos)
        check_count(len(request.partitions) + count, most)
        for _ in range(count):
            wanted, pos = _read_wanted(version, body, pos, name, topic_id)
            request.partitions.append(wanted)
        if flexible:
            pos = skip_tags(body, pos)
    if version >= 7:
        pos = _read_forgotten(version, body, pos, request, most)
    if version >= 11:
        rack, pos = read_compact_string(body, pos) if flexible else read_string(body, pos)
        request.rack_id = rack or ""
    if flexible:

        def on_tag(tag: int, data: memoryview) -> None:
            if tag == 1 and version >= FIRST_WITH_REPLICA_STATE:
                request.replica_id, request.replica_epoch = _REPLICA_STATE.unpack_from(data, 0)

        read_tags(body, pos, on_tag)
    return request


def _read_wanted(
    version: int, body: memoryview, pos: int, name: str, topic_id: UUID
) -> tuple[FetchPartition, int]:
    leader_epoch = last_epoch = NO_EPOCH
    start = -1
    if version >= 12:
        index, leader_epoch, offset, last_epoch, start, size = _WANTED_V12.unpack_from(body, pos)
        pos = skip_tags(body, pos + _WANTED_V12.size)
    elif version >= 9:
        index, leader_epoch, offset, start, size = _WANTED_V9.unpack_from(body, pos)
        pos += _WANTED_V9.size
    elif version >= 5:
        index, offset, start, size = _WANTED_V5.unpack_from(body, pos)
        pos += _WANTED_V5.size
    else:
        index, offset, size = _WANTED_V4.unpack_from(body, pos)
        pos += _WANTED_V4.size
    return FetchPartition(topic_id, name, index, offset, size, leader_epoch, last_epoch, start), pos


def _read_forgotten(version: int, body: memoryview, pos: int, request: FetchRequest, most: int) -> int:
    flexible = version >= FIRST_FLEXIBLE
    read_length = read_compact_array_length if flexible else read_array_length
    topics, pos = read_length(body, pos)
    check_count(topics, most)
    for _ in range(topics):
        name, topic_id, pos = _read_topic(version, body, pos)
        count, pos = read_length(body, pos)
        check_count(len(request.forgotten) + count, most)
        for _ in range(count):
            (index,) = INT32.unpack_from(body, pos)
            pos += INT32.size
            request.forgotten.append((topic_id, name, index))
        if flexible:
            pos = skip_tags(body, pos)
    return pos


def write_fetch_request(version: int, request: FetchRequest) -> bytes:
    """For followers and bulk readers, which use version 12 or newer."""
    if version < FIRST_FLEXIBLE:
        raise ValueError(f"Fetch requests are written from version {FIRST_FLEXIBLE} on")
    out = bytearray()
    if version < FIRST_WITH_REPLICA_STATE:
        out += _REPLICA_ID.pack(request.replica_id)
    out += _LIMITS.pack(
        request.max_wait_ms, request.min_bytes, request.max_bytes, 1 if request.committed_only else 0
    )
    out += _SESSION.pack(request.session_id, request.session_epoch)
    by_id = version >= FIRST_WITH_IDS
    topics = [
        list(group)
        for _, group in groupby(request.partitions, key=lambda p: p.topic_id if by_id else p.topic)
    ]
    out += compact_array_length(len(topics))
    for topic in topics:
        out += _topic_key(version, topic[0].topic, topic[0].topic_id)
        out += compact_array_length(len(topic))
        for each in topic:
            out += _WANTED_V12.pack(
                each.partition,
                each.current_leader_epoch,
                each.fetch_offset,
                each.last_fetched_epoch,
                each.log_start_offset,
                each.max_bytes,
            )
            out += b"\x00"
        out += b"\x00"
    forgotten = [
        list(group) for _, group in groupby(request.forgotten, key=lambda f: f[0] if by_id else f[1])
    ]
    out += compact_array_length(len(forgotten))
    for group in forgotten:
        out += _topic_key(version, group[0][1], group[0][0])
        out += compact_array_length(len(group))
        out += b"".join(INT32.pack(index) for _, _, index in group)
        out += b"\x00"
    out += compact_string(request.rack_id)
    state = (request.replica_id, request.replica_epoch)
    if version >= FIRST_WITH_REPLICA_STATE and state != (CONSUMER, NO_EPOCH):
        out += b"\x01" + tagged_field(1, _REPLICA_STATE.pack(*state) + b"\x00")
    else:
        out += b"\x00"
    return bytes(out)


def _topic_key(version: int, name: str, topic_id: UUID) -> bytes:
    return topic_id.bytes if version >= FIRST_WITH_IDS else compact_string(name)
