"""Answers to ListOffsets by time: the first record at or after a timestamp, the record with the greatest.

Time index, then offset index, then a scan of headers, then one batch opened: the only reads of
records that a broker does, and a rare question.

Beside the data's way: api/list_offsets -> partition -> log -> here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from data_plane.log.segment import Segment
from metadata_quorum.batch import BatchHeader, Record, iter_records


class TimestampedOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


def first_at_or_after(
    segments: Iterable[Segment], timestamp: int, log_start_offset: int
) -> TimestampedOffset | None:
    """The first record from `log_start_offset` on whose timestamp is `timestamp` or later."""
    for segment in segments:
        if segment.max_timestamp < timestamp:
            continue
        scan_from = max(segment.time_index.lookup(timestamp), log_start_offset)
        start = segment.locate(scan_from)
        for position, header in segment.headers(start, segment.size):
            if header.max_timestamp < timestamp:
                continue
            for record in _records(segment, position, header):
                if record.timestamp >= timestamp and record.offset >= log_start_offset:
                    return TimestampedOffset(record.offset, record.timestamp, header.partition_leader_epoch)
    return None


def greatest(segments: Iterable[Segment]) -> TimestampedOffset | None:
    """The first record that has the greatest timestamp of the log."""
    newest = max(segments, key=lambda s: s.max_timestamp, default=None)
    if newest is None or newest.max_timestamp < 0:
        return None
    start = newest.locate(newest.offset_of_max_timestamp)
    for position, header in newest.headers(start, newest.size):
        if header.max_timestamp == newest.max_timestamp:
            for record in _records(newest, position, header):
                if record.timestamp == newest.max_timestamp:
                    return TimestampedOffset(record.offset, record.timestamp, header.partition_leader_epoch)
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> Iterator[Record]:
    return iter_records(segment.file.read(position, header.size))
