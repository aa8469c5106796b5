"""Answers to ListOffsets by time: the first record at or after a timestamp, the record with the greatest.

Time index, then offset index, then a scan of headers, then one batch opened, which may unpack to a hundred
megabytes: so a search runs outside the loop, over the segments as they were at the request.

Off the path of the data: api/offsets -> partition -> log.search_time -> here, in the executor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from data_plane.log.segment import LogSegment
from metadata_quorum.foundation.batch import BatchHeader, Record, iter_records
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.model import NO_EPOCH


class TimestampAndOffset(NamedTuple):
    """One answer of ListOffsets; all -1 where no record fits. `timestamp` in ms."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class TimeSearch:
    """For the first record at or after `timestamp` (ms), or, where that is None, for the newest."""

    segments: Sequence[LogSegment]
    log_start_offset: int
    timestamp: int | None

    def run(self, may_block: MayBlock) -> TimestampAndOffset | None:
        """None where there is no such record. Raises OSError, CorruptBatchError."""
        if self.timestamp is None:
            return greatest(self.segments)
        return first_at_or_after(self.segments, self.timestamp, self.log_start_offset)


def first_at_or_after(
    segments: Iterable[LogSegment], timestamp: int, log_start_offset: int
) -> TimestampAndOffset | None:
    """The first record from `log_start_offset` on whose timestamp is `timestamp` or later."""
    for segment in segments:
        if segment.max_timestamp < timestamp:
            continue
        scan_from = max(segment.time_index.lookup(timestamp), log_start_offset)
        start = segment.find(scan_from)
        for position, header in segment.headers(start, segment.size):
            if header.max_timestamp < timestamp:
                continue
            for record in _records(segment, position, header):
                if record.timestamp >= timestamp and record.offset >= log_start_offset:
                    return TimestampAndOffset(record.offset, record.timestamp, header.partition_leader_epoch)
    return None


def greatest(segments: Iterable[LogSegment]) -> TimestampAndOffset | None:
    """The first record that has the greatest timestamp of the log."""
    newest = max(segments, key=lambda s: s.max_timestamp, default=None)
    if newest is None or newest.max_timestamp < 0:
        return None
    # Appends go on meanwhile, on the loop. In this order: the record of that time is not before that offset.
    scan_from = newest.offset_of_max_timestamp
    greatest_ms = newest.max_timestamp
    start = newest.find(scan_from)
    for position, header in newest.headers(start, newest.size):
        if header.max_timestamp == greatest_ms:
            for record in _records(newest, position, header):
                if record.timestamp == greatest_ms:
                    return TimestampAndOffset(record.offset, record.timestamp, header.partition_leader_epoch)
    return None


def _records(segment: LogSegment, position: int, header: BatchHeader) -> Iterator[Record]:
    return iter_records(segment.file.read(position, header.size))
