"""The `.snapshot` file: producers' state before a segment, so that a start need not read older ones.

    version     int16   1
    crc         uint32  CRC-32C of what follows
    count       int32
    { producer_id int64 | epoch int16 | last_sequence int32 | last_offset int64 | offset_delta int32
    | timestamp int64 | coordinator_epoch int32 | current_txn_first_offset int64 (-1: none) }*

Only the last of a producer's batches is kept, as in Kafka: after a restart a repeat of an older one
is out of order, not a duplicate.

Off the path of the data: written when a segment is rolled and at a clean close.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from data_plane.log.producers import BatchMetadata, ProducerStateEntry
from metadata_quorum.foundation.batch import NO_SEQUENCE
from metadata_quorum.foundation.crc32c import crc32c
from metadata_quorum.foundation.model import NO_EPOCH

_VERSION: Final = 1
_PREFIX: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class CorruptSnapshotError(Exception):
    """A snapshot that must not be used; the state is rebuilt from an older one or from the log."""


def encode_snapshot(states: Mapping[int, ProducerStateEntry]) -> bytes:
    """A segment is rolled on the loop, and there may be a hundred thousand producers: those that have written
    nothing since the last snapshot are taken as they were encoded for that."""
    entries = [state.encoded or _encode(producer_id, state) for producer_id, state in states.items()]
    body = b"".join((_COUNT.pack(len(entries)), *entries))
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def _encode(producer_id: int, state: ProducerStateEntry) -> bytes:
    last = state.batches[-1] if state.batches else BatchMetadata(NO_SEQUENCE, -1, 0, state.last_timestamp)
    first_offset = state.current_txn_first_offset
    state.encoded = encoded = _ENTRY.pack(
        producer_id,
        state.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        state.last_timestamp,
        state.coordinator_epoch,
        -1 if first_offset is None else first_offset,
    )
    return encoded


def decode_snapshot(data: bytes) -> dict[int, ProducerStateEntry]:
    """Raises CorruptSnapshotError."""
    if len(data) < _PREFIX.size + _COUNT.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshotError(f"unknown version {version} of a producer snapshot")
    body = data[_PREFIX.size :]
    if crc32c(body) != crc:
        raise CorruptSnapshotError("the CRC of a producer snapshot does not match")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{count} producers announced in {len(body)} bytes")
    states: dict[int, ProducerStateEntry] = {}
    for start in range(_COUNT.size, len(body), _ENTRY.size):
        entry = _ENTRY.unpack_from(body, start)
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator, first_offset = entry
        state = ProducerStateEntry(epoch if epoch >= 0 else NO_EPOCH)
        if last_offset >= 0:
            state.batches.append(BatchMetadata(last_sequence, last_offset, delta, timestamp))
        state.last_timestamp = timestamp
        state.coordinator_epoch = coordinator
        state.current_txn_first_offset = None if first_offset < 0 else first_offset
        state.encoded = body[start : start + _ENTRY.size]
        states[producer_id] = state
    return states
