"""Checking every batch of one segment, and telling a torn tail from damage in the middle.

A batch counts as good behind damage if its length fits, its magic is 2, its CRC is right and its
offset is not below what the damaged one would have reached. (A damaged base offset of the very last
batch cannot be detected: the CRC does not cover it, no batch follows, and compaction leaves gaps.)

Path of the data: recovery.py -> here; nothing else reads whole segments at a start.
"""

from __future__ import annotations

import re
from typing import Final

from data_plane.log.epochs import EpochCache
from data_plane.log.segment import LogSegment, newest_timestamp
from metadata_quorum.foundation.batch import BATCH_OVERHEAD, MAGIC, BatchHeader, check_crc, read_header
from metadata_quorum.foundation.primitives import Buffer

_CHUNK_BYTES: Final = 1024 * 1024


def scan(segment: LogSegment, epochs: EpochCache | None) -> tuple[int, int, str | None]:
    """Check every batch of a segment and rebuild its indexes.

    Returns the position and the offset where the good part ends, and what is wrong there (None: it
    is good to its end).
    """
    segment.clear_indexes()
    position, expected, end = 0, segment.base_offset, segment.size
    chunk: Buffer = b""
    chunk_start = 0
    while position < end:
        at = position - chunk_start
        if at + BATCH_OVERHEAD > len(chunk) or at + read_header(chunk, at).size > len(chunk):
            chunk, chunk_start, at = _chunk_at(segment, position), position, 0
        damage = _damage(chunk, at, expected, end - position)
        if damage is not None:
            return position, expected, damage
        header = read_header(chunk, at)
        segment.note(position, header.size, header.last_offset, newest_timestamp(header))
        if epochs is not None:
            epochs.assign(header.partition_leader_epoch, header.base_offset)
        expected = header.next_offset
        position += header.size
    return position, expected, None


def _chunk_at(segment: LogSegment, position: int) -> Buffer:
    """At least the whole batch at `position`, or what the file has of it."""
    chunk = segment.file.read(position, _CHUNK_BYTES)
    if len(chunk) < BATCH_OVERHEAD:
        return chunk
    size = min(read_header(chunk).size, segment.size - position)
    return chunk if size <= len(chunk) else segment.file.read(position, size)


def _damage(chunk: Buffer, at: int, expected: int, left: int) -> str | None:
    if left < BATCH_OVERHEAD:
        return f"{left} bytes are too few for a batch header"
    header = read_header(chunk, at)
    if header.magic != MAGIC:
        return f"magic is {header.magic}, not {MAGIC}"
    if header.size < BATCH_OVERHEAD or header.size > left:
        return f"batch claims {header.size} bytes, {left} are left"
    if header.base_offset < expected:
        return f"base offset {header.base_offset} where at least {expected} was expected"
    if header.last_offset_delta < 0:
        return f"last offset delta is {header.last_offset_delta}"
    if not check_crc(chunk, at, header):
        return "the CRC does not match"
    return None


def claimed_end(segment: LogSegment, position: int, expected: int) -> int:
    """The least offset that a batch behind the damaged one can have.

    Where the damaged header is plausible, that is what it claims; a producer's value may itself
    hold batches (a copy of another log), which must not be taken for good records behind the damage.
    """
    if segment.size - position >= BATCH_OVERHEAD:
        header: BatchHeader = read_header(segment.file.read(position, BATCH_OVERHEAD))
        plausible = header.base_offset == expected and header.magic == MAGIC
        if plausible and header.record_count == header.last_offset_delta + 1 > 0:
            return header.next_offset
    return expected


def good_batch_behind(segment: LogSegment, position: int, least_offset: int) -> bool:
    """Whether a whole, checked batch of `least_offset` or later begins behind `position`.

    At `position` itself any offset will do: a good batch whose offset falls back proves a damaged
    offset, which no CRC covers, in it or before it.
    """
    data = segment.file.read(position, segment.size - position)
    if _is_good(data, 0, 0):
        return True
    prefix = re.escape(least_offset.to_bytes(8, "big")[:4])
    candidates = re.finditer(b"(?s)(?=" + prefix + b".{12}\\x02)", data)
    return any(_is_good(data, match.start(), least_offset) for match in candidates if match.start())


def _is_good(data: bytes, at: int, least_offset: int) -> bool:
    if len(data) - at < BATCH_OVERHEAD:
        return False
    header = read_header(data, at)
    fits = BATCH_OVERHEAD <= header.size <= len(data) - at
    return (
        fits and header.base_offset >= least_offset and header.magic == MAGIC and check_crc(data, at, header)
    )
