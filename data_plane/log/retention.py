"""A log's oldest segments are deleted: by its start offset, by time, by size.

`expired` decides: segments and limits in, a count from the oldest out. Only a prefix is ever dropped, and
nothing at or above the high watermark.

Off the path of the data: log_manager/log_sweeps.py -> here -> log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from data_plane.log.config import LogConfig
from data_plane.log.consistency import all_or_inconsistent, check_consistent
from data_plane.log.deletion import Deletion
from data_plane.log.log import UnifiedLog
from data_plane.log.segment import LogSegment

UNLIMITED = -1
DROPPED_AT_ONCE: Final = 100
"""Segments. Each is three or four files that get another name: some 80 microseconds."""


def delete_old_segments(log: UnifiedLog, now_ms: int, high_watermark: int) -> list[Deletion]:
    """Drop segments by retention and start offset, `DROPPED_AT_ONCE` at most; the deletions remove their
    files later. Raises InconsistentLogError, and OSError where a new segment cannot be made: then nothing is
    changed."""
    check_consistent(log)
    segments = log.segments
    count = expired(
        segments,
        log.config,
        now_ms=now_ms,
        high_watermark=high_watermark,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
    )
    count = min(count, DROPPED_AT_ONCE)
    if count == len(segments):
        log.roll(now_ms)
    if count:
        _drop_oldest(log, count)
    return log.take_deletions()


@all_or_inconsistent
def _drop_oldest(log: UnifiedLog, count: int) -> None:
    log.cancel_cleaning()
    log.unflushed.new_files = True
    log.log_segments.drop_oldest(count, log.config.file_delete_delay_ms)
    first = log.log_segments.first_base_offset
    if log.prepared_truncation is not None and log.prepared_truncation.base_offset < first:
        log.discard_truncation()
    log.advance_log_start(first)
    log.aborted.truncate_from_start(first)


def is_of_unknown_age(log: UnifiedLog) -> bool:
    """Whether the age of its oldest segment counts, and is to be looked up first, where that may block."""
    by_time = log.config.delete and log.config.retention_ms != UNLIMITED
    return by_time and not log.segments[0].is_of_known_age


def expired(
    segments: Sequence[LogSegment],
    config: LogConfig,
    *,
    now_ms: int,
    high_watermark: int,
    log_start_offset: int,
    log_end_offset: int,
) -> int:
    """How many of the oldest segments to drop; all of them only where the last one holds records."""
    surplus = 0
    if config.delete and config.retention_bytes != UNLIMITED:
        surplus = sum(s.size for s in segments) - config.retention_bytes
    count = 0
    for i, segment in enumerate(segments):
        last = i + 1 == len(segments)
        end = log_end_offset if last else segments[i + 1].base_offset
        if end > high_watermark or (last and segment.size == 0):
            break
        below_start = not last and end <= log_start_offset
        too_large = 0 < segment.size <= surplus
        if not (below_start or too_large or _too_old(segment, config, now_ms)):
            break
        surplus -= segment.size
        count += 1
    return count


def _too_old(segment: LogSegment, config: LogConfig, now_ms: int) -> bool:
    if not config.delete or config.retention_ms == UNLIMITED:
        return False
    if not segment.is_of_known_age:  # nothing is read here: it is asked again when that is known
        return False
    newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
    return now_ms - newest > config.retention_ms
