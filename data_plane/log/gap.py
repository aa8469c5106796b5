"""A gap in a leader's log that is wider than the indexes of one segment reach.

Apache Kafka's cleaner leaves the offsets of removed records empty, two thousand millions of them and more in
an old `__consumer_offsets`. A follower begins a segment where its log ends, and could enter nothing into
its indexes that lies so far behind. So it takes segments that hold one empty batch each across the gap.

Path of the data: log.append_as_follower -> here -> segment, before the batches behind the gap.
"""

from __future__ import annotations

from typing import Protocol

from data_plane.log.consistency import all_or_inconsistent, check_consistent
from data_plane.log.epochs import EpochCache
from data_plane.log.log_segments import LogSegments
from data_plane.log.producers import ProducerStateManager
from data_plane.log.segment import MAX_RELATIVE_OFFSET, LogSegment


class GrowingLog(Protocol):
    """What is needed of a log that is to go on behind a gap."""

    directory: str
    inconsistent: bool
    log_end_offset: int
    epochs: EpochCache
    producers: ProducerStateManager
    log_segments: LogSegments

    def roll(self, now_ms: int) -> LogSegment: ...


def bridge_gap(log: GrowingLog, offset: int, now_ms: int) -> None:
    """Let the log end at `offset`, without a record from its present end on. Raises InconsistentLogError, and
    OSError where a segment cannot be made: then the log ends in the gap, and the next run goes on there."""
    check_consistent(log)
    while log.log_end_offset < offset:
        active = log.log_segments.active
        end = min(offset, active.base_offset + MAX_RELATIVE_OFFSET + 1)
        if log.log_end_offset < end:
            active.ready()
            _fill_to(log, end)
        if end < offset:
            log.roll(now_ms)


@all_or_inconsistent
def _fill_to(log: GrowingLog, end: int) -> None:
    log.log_segments.active.fill_to(end, log.epochs.latest)
    log.log_end_offset = log.producers.next_offset = end
