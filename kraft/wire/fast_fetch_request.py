"""Fetch's requests, read and written by hand in all versions; see fast_fetch.py.

    Request   int32 replica_id (to v14) | int32 max_wait_ms | int32 min_bytes | int32 max_bytes
              | int8 isolation | int32 session_id, int32 session_epoch (v7) | array of topics
              | array of forgotten topics (v7) | string rack_id (v11)
              | tags 0: cluster id (v12), 1: replica state (v15)
      topic          string name (v13: uuid) | array of partitions
      partition      int32 index | int32 current_leader_epoch (v9) | int64 fetch_offset
                     | int32 last_fetched_epoch (v12) | int64 log_start_offset (v5) | int32 max_bytes
                     | tag 0: replica directory id (v17), tag 1: high watermark (v18)
From v12 on strings and arrays are compact and each struct ends with tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby
from typing import Final
from uuid import UUID

from fetch.messages import CONSUMER, FetchPartition, FetchRequest
from kraft.wire.bridge import MalformedMessage
from kraft.wire.fast_fetch import (
    FIRST_FLEXIBLE,
    FIRST_WITH_IDS,
    FIRST_WITH_REPLICA_STATE,
    read_topic,
    topic_runs,
)
from kraft.wire.limits import MAX_PARTITIONS, check_count
from metadata_quorum.foundation.model import NO_EPOCH
from metadata_quorum.foundation.primitives import (
    INT32,
    compact_array_length,
    compact_string,
    read_array_length,
    read_compact_array_length,
    read_compact_string,
    read_string,
    read_tags,
    skip_tags,
)

_REPLICA_ID: Final = INT32
_LIMITS: Final = struct.Struct(
    ">i"  # max_wait_ms
    "i"  # min_bytes
    "i"  # max_bytes
    "b"  # isolation_level
)
_LIMITS_V7: Final = struct.Struct(
    ">i"  # max_wait_ms
    "i"  # min_bytes
    "i"  # max_bytes
    "b"  # isolation_level
    "i"  # session_id
    "i"  # session_epoch
)
_REPLICA_STATE: Final = struct.Struct(
    ">i"  # replica_id
    "q"  # replica_epoch
)
_ONE_REPLICA_STATE: Final = bytes((1, 1, _REPLICA_STATE.size + 1))
"""One tagged field: tag 1, and how many bytes it takes, with its own (no) tagged fields."""
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
    "b"  # number of tagged fields
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
    if version >= 7:
        (
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            isolation,
            request.session_id,
            request.session_epoch,
        ) = _LIMITS_V7.unpack_from(body, pos)
        pos += _LIMITS_V7.size
    else:
        request.max_wait_ms, request.min_bytes, request.max_bytes, isolation = _LIMITS.unpack_from(body, pos)
        pos += _LIMITS.size
    request.committed_only = isolation == 1
    topics, pos = read_length(body, pos)
    check_count(topics, most)
    for _ in range(topics):
        name, topic_id, pos = read_topic(version, body, pos)
        count, pos = read_length(body, pos)
        check_count(count, most, len(request.partitions))
        for _ in range(count):
            wanted, pos = _read_wanted(version, body, pos, name, topic_id)
            request.partitions.append(wanted)
        if flexible:
            pos = skip_tags(body, pos)
    if version >= 7:
        pos = _read_forgotten(version, body, pos, request, most)
    if version >= 11:
        rack, pos = read_compact_string(body, pos) if flexible else read_string(body, pos)
        if rack is None:
            raise ValueError("a rack id that is null")
        request.rack_id = rack
    if flexible and body[pos]:
        _read_request_tags(version, body, pos, request)
    return request


def _read_request_tags(version: int, body: memoryview, pos: int, request: FetchRequest) -> None:
    start = pos + len(_ONE_REPLICA_STATE)
    has_state = version >= FIRST_WITH_REPLICA_STATE
    if has_state and body[pos:start] == _ONE_REPLICA_STATE and not body[start + _REPLICA_STATE.size]:
        request.replica_id, request.replica_epoch = _REPLICA_STATE.unpack_from(body, start)
        return  # every follower's

    def on_tag(tag: int, data: memoryview) -> None:
        end = len(data)
        if tag == 1 and has_state:
            request.replica_id, request.replica_epoch = _REPLICA_STATE.unpack_from(data, 0)
            end = skip_tags(data, _REPLICA_STATE.size)
        elif tag == 0:
            request.cluster_id, end = read_compact_string(data, 0)
        if end != len(data):
            raise ValueError(f"a tagged field {tag} of {len(data)} bytes")

    read_tags(body, pos, on_tag)


def _read_wanted(
    version: int, body: memoryview, pos: int, name: str, topic_id: UUID
) -> tuple[FetchPartition, int]:
    leader_epoch = last_epoch = NO_EPOCH
    start = -1
    if version >= 12:
        index, leader_epoch, offset, last_epoch, start, size, tags = _WANTED_V12.unpack_from(body, pos)
        pos += _WANTED_V12.size
        if tags:
            pos = skip_tags(body, pos - 1)
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
        name, topic_id, pos = read_topic(version, body, pos)
        count, pos = read_length(body, pos)
        check_count(count, most, len(request.forgotten))
        for _ in range(count):
            (index,) = INT32.unpack_from(body, pos)
            pos += INT32.size
            request.forgotten.append((topic_id, name, index))
        if flexible:
            pos = skip_tags(body, pos)
    return pos


def write_fetch_request(version: int, request: FetchRequest) -> bytes:
    """For followers and bulk readers, which use version 12 or newer. Raises `ValueError` for an older one."""
    if version < FIRST_FLEXIBLE:
        raise ValueError(f"Fetch requests are written from version {FIRST_FLEXIBLE} on")
    out = bytearray()
    if version < FIRST_WITH_REPLICA_STATE:
        out += _REPLICA_ID.pack(request.replica_id)
    out += _LIMITS_V7.pack(
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        1 if request.committed_only else 0,
        request.session_id,
        request.session_epoch,
    )
    by_id = version >= FIRST_WITH_IDS
    partitions = request.partitions
    topics = topic_runs(partitions, by_id)
    out += compact_array_length(len(topics))
    for start, end in topics:
        first = partitions[start]
        out += first.topic_id.bytes if by_id else compact_string(first.topic)
        out += compact_array_length(end - start)
        for each in partitions if len(topics) == 1 else partitions[start:end]:
            out += _WANTED_V12.pack(
                each.partition,
                each.current_leader_epoch,
                each.fetch_offset,
                each.last_fetched_epoch,
                each.log_start_offset,
                each.max_bytes,
                0,
            )
        out.append(0)
    out += _forgotten(request.forgotten, by_id) if request.forgotten else compact_array_length(0)
    out += compact_string(request.rack_id)
    state = (request.replica_id, request.replica_epoch)
    if version >= FIRST_WITH_REPLICA_STATE and state != (CONSUMER, NO_EPOCH):
        out += _ONE_REPLICA_STATE + _REPLICA_STATE.pack(*state) + b"\x00"
    else:
        out.append(0)
    return bytes(out)


def _forgotten(forgotten: Sequence[tuple[UUID, str, int]], by_id: bool) -> bytes:
    topics = [list(group) for _, group in groupby(forgotten, key=lambda f: f[0] if by_id else f[1])]
    out = bytearray(compact_array_length(len(topics)))
    for topic in topics:
        topic_id, name, _ = topic[0]
        out += topic_id.bytes if by_id else compact_string(name)
        out += compact_array_length(len(topic))
        out += b"".join(INT32.pack(index) for _, _, index in topic)
        out.append(0)
    return bytes(out)
