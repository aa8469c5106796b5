"""How many records a reader of committed records still gets from an offset on: the honest lag of a group.

Offsets overstate it. A transaction's marker takes one, aborted records are never delivered, and compaction
removes records and leaves their offsets. The headers of the batches and the list of aborted transactions tell
all of that: no record is read. Offsets without a record are kept as `Gap`s, and headers are looked at once:

    RecordCounter.next_work -> CountWork.run (executor) -> RecordCounter.add -> RecordCounter.left

Behind the last stable offset nobody knows yet what will be delivered: there every offset counts, and the
answer is not exact. Nor is it below where the look began, nor inside a batch that compaction has thinned.

Off the path of the data: api/record_counts -> here.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from data_plane.log.aborted import AbortedTransaction
from data_plane.log.log import UnifiedLog
from data_plane.log.segment import LogSegment
from metadata_quorum.foundation.batch import BatchHeader, CorruptBatchError
from metadata_quorum.foundation.blocking import MayBlock

MOST_GAPS: Final = 10_000
"""Gaps of one log that are kept in memory, at 24 bytes each."""


class RecordsLeft(NamedTuple):
    """Records from an offset to the high watermark; an upper bound if it is not exact."""

    records: int
    exact: bool


class Gap(NamedTuple):
    """Offsets of which `missing` have no record for a reader: all of them, or what compaction took."""

    start: int
    end: int
    missing: int

    @property
    def is_whole(self) -> bool:
        return self.missing == self.end - self.start


class RecordCounter:
    """Of one log, as long as nothing of it is compacted or truncated."""

    def __init__(self, start: int) -> None:
        self.start = start
        """From here on ..."""
        self.end = start
        """... up to here the headers were looked at."""
        self._starts, self._ends = array("q"), array("q")
        """Of the gaps."""
        self._missing_up_to = array("q")
        """The offsets without a record up to the end of each gap."""

    @property
    def gaps(self) -> int:
        """How many are kept."""
        return len(self._starts)

    def serves(self, offset: int) -> bool:
        """Whether one that begins there would know no more."""
        return self.start <= offset <= self.end and (not self._is_full or self.start == offset)

    @property
    def _is_full(self) -> bool:
        """It looks no further."""
        return self.gaps >= MOST_GAPS

    def next_work(self, log: UnifiedLog, last_stable_offset: int, most_batches: int) -> CountWork | None:
        """A look at the batches behind those that are known; None where there is nothing to look at."""
        if self.end >= last_stable_offset or self._is_full:
            return None
        segments = list(log.log_segments.starting_up_to(last_stable_offset - 1).values())
        first = bisect_right([each.base_offset for each in segments], self.end) - 1
        aborted = log.aborted.overlapping(self.end, last_stable_offset)
        return CountWork(segments[max(first, 0) :], aborted, self.end, last_stable_offset, most_batches)

    def add(self, counted: Counted) -> None:
        """Dropped where another look was faster."""
        if counted.start == self.end:
            for gap in counted.gaps:
                self._add_gap(gap)
            self.end = counted.end

    def _add_gap(self, gap: Gap) -> None:
        last = self.gaps - 1
        missing = gap.missing + (self._missing_up_to[last] if self.gaps else 0)
        if self.gaps and self._ends[last] == gap.start and self._gap(last).is_whole and gap.is_whole:
            self._ends[last], self._missing_up_to[last] = gap.end, missing
            return
        self._starts.append(gap.start)
        self._ends.append(gap.end)
        self._missing_up_to.append(missing)

    def _gap(self, place: int) -> Gap:
        before = self._missing_up_to[place - 1] if place else 0
        return Gap(self._starts[place], self._ends[place], self._missing_up_to[place] - before)

    def left(self, offset: int, high_watermark: int) -> RecordsLeft:
        """From the offset on. The counter may have looked further since that was the high watermark."""
        if offset >= high_watermark:
            return RecordsLeft(0, True)
        missing, is_exact = self._missing_below(offset)
        records = high_watermark - offset - (self._missing_below(high_watermark)[0] - missing)
        return RecordsLeft(max(records, 0), is_exact and offset >= self.start and self.end >= high_watermark)

    def _missing_below(self, offset: int) -> tuple[int, bool]:
        """Whether that is exact: of a batch that compaction has thinned, it is taken for even."""
        place = bisect_right(self._starts, offset) - 1
        if place < 0:
            return 0, True
        gap = self._gap(place)
        if offset >= gap.end:
            return self._missing_up_to[place], True
        before = self._missing_up_to[place] - gap.missing
        inside = gap.missing * (offset - gap.start) // (gap.end - gap.start)
        return before + inside, gap.is_whole or offset == gap.start


class Counted(NamedTuple):
    """What one look has found, up to `end`."""

    start: int
    end: int
    batches: int
    gaps: Sequence[Gap]


@dataclass(frozen=True, slots=True)
class CountWork:
    """One look at headers, over the segments as they were at the question."""

    segments: Sequence[LogSegment]
    aborted: Iterable[AbortedTransaction]
    start: int
    end: int
    most_batches: int

    def run(self, may_block: MayBlock) -> Counted:
        """Ends early where a segment was deleted meanwhile."""
        aborted = _by_producer(self.aborted)
        gaps: list[Gap] = []
        reached, batches = self.start, 0
        try:
            for segment in self.segments:
                position = segment.find(reached) if segment.base_offset < reached else 0
                for _, header in segment.headers(position, segment.size):
                    if header.base_offset >= self.end or batches >= self.most_batches:
                        return Counted(self.start, reached, batches, gaps)
                    batches += 1
                    if header.base_offset > reached:  # compaction has left nothing of these
                        gaps.append(Gap(reached, header.base_offset, header.base_offset - reached))
                    missing = _missing(header, aborted)
                    if missing:
                        gaps.append(Gap(header.base_offset, header.next_offset, missing))
                    reached = header.next_offset
        except (OSError, CorruptBatchError):
            pass
        return Counted(self.start, reached, batches, gaps)


def _missing(header: BatchHeader, aborted: dict[int, list[AbortedTransaction]]) -> int:
    """Offsets of a batch that no reader of committed records gets a record of."""
    offsets = header.last_offset_delta + 1
    if header.is_control or (header.is_transactional and _is_aborted(header, aborted)):
        return offsets
    return offsets - header.record_count


def _is_aborted(header: BatchHeader, aborted: dict[int, list[AbortedTransaction]]) -> bool:
    its = aborted.get(header.producer_id, [])
    place = bisect_right(its, header.base_offset, key=lambda each: each.last_offset)
    return place < len(its) and its[place].first_offset <= header.base_offset


def _by_producer(aborted: Iterable[AbortedTransaction]) -> dict[int, list[AbortedTransaction]]:
    """In order of their markers, as they are given."""
    found: dict[int, list[AbortedTransaction]] = {}
    for each in aborted:
        found.setdefault(each.producer_id, []).append(each)
    return found
