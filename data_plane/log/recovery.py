"""Where a log ends after a crash: which segments are scanned, what is truncated, what must not be.

load.py has the table of what is found and what is done about it.

Path of the data: load.py -> here -> segment_scan.py.
"""

from __future__ import annotations

import logging
from typing import Final

from sortedcontainers import SortedDict

from data_plane.log.epochs import EpochCache
from data_plane.log.index import OFFSET_ENTRY, TIME_ENTRY
from data_plane.log.segment import MAX_OFFSET, LogSegment
from data_plane.log.segment_scan import claimed_end, good_batch_behind, scan
from metadata_quorum.foundation.batch import CorruptBatchError
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk

logger = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 1024 * 1024


class LogCorruptError(Exception):
    """Damage with good records behind it. The log must go offline or be fetched again; never truncated.

    `offset` is the first offset that cannot be read.
    """

    def __init__(self, path: str, position: int, offset: int, what: str) -> None:
        super().__init__(
            f"{path} is corrupt at byte {position} (offset {offset}): {what}. "
            f"Good batches may lie behind it, so nothing was truncated"
        )
        self.path = path
        self.position = position
        self.offset = offset


def find_end(
    disk: Disk,
    segments: SortedDict[int, LogSegment],
    epochs: EpochCache | None,
    recovery_point: int | None,
    may_block: MayBlock,
    *,
    vouched_for: int,
    machine_restarted: bool,
    disk_failed: bool,
) -> tuple[int, int]:
    """The end offset of the log, after whatever recovery it needs, and the offset from which on it was
    scanned (its end: nothing was). No recovery point: a clean close. `vouched_for`: records below it were
    durable. `disk_failed`: those that are scanned are written again."""
    _drop_abandoned(disk, segments, recovery_point)
    last_base, last = segments.peekitem(-1)
    if recovery_point is None:
        _rebuild_damaged_indexes(disk, segments, list(segments), may_block)
        try:
            end: int = last.load_tail()
            return end, end
        except CorruptBatchError:
            recovery_point = last_base  # not so clean: check its end as after a crash
    end, scanned_from = _recover(
        disk, segments, epochs, recovery_point, vouched_for, may_block,
        machine_restarted=machine_restarted, disk_failed=disk_failed,
    )  # fmt: skip
    if end < vouched_for and scanned_from > segments.peekitem(0)[0]:
        # The recovery point is from before a truncation, perhaps: nothing says where that was, nor which
        # later pages have reached the disk. So scan everything, and drop nothing that is good.
        end, scanned_from = _recover(
            disk, segments, epochs, 0, 0, may_block, machine_restarted=False, disk_failed=disk_failed
        )
    return end, scanned_from


def _drop_abandoned(disk: Disk, segments: SortedDict[int, LogSegment], recovery_point: int | None) -> None:
    """A roll that failed may have left an empty segment, although the one before it continued beyond its base
    offset. (Where that one is scanned anyway, the scan finds this out.)"""
    while len(segments) > 1 and not segments.peekitem(-1)[1].size:
        base, last = segments.peekitem(-1)
        if recovery_point is not None and recovery_point < base:
            return
        try:
            reached = segments.peekitem(-2)[1].load_tail()
        except CorruptBatchError:
            return
        if reached <= base:
            return
        remove_segment(disk, last)
        del segments[base]


def _recover(
    disk: Disk,
    segments: SortedDict[int, LogSegment],
    epochs: EpochCache | None,
    recovery_point: int,
    vouched_for: int,
    may_block: MayBlock,
    *,
    machine_restarted: bool,
    disk_failed: bool,
) -> tuple[int, int]:
    """Check what may not have been synced; returns the end of the log and the offset checked from."""
    bases = list(segments)
    first: int = max(segments.bisect_right(recovery_point) - 1, 0)
    _rebuild_damaged_indexes(disk, segments, bases[:first], may_block)
    if first:  # flushed up to its end, and sealed only then, perhaps
        segments[bases[first - 1]].load_tail()
        segments[bases[first - 1]].seal()
    if epochs is not None:
        epochs.truncate_from_end(bases[first])  # the scan finds the later ones
    end: int = bases[first]
    for i, base in enumerate(bases[first:], start=first):
        segment: LogSegment = segments[base]
        position, end, damage = scan(segment, epochs)
        following = bases[i + 1] if base != bases[-1] else end
        if damage is None and (end > following or (end != following and following > recovery_point)):
            # The records between are lost; or the next one had been removed, and its name has come back; or
            # it was left by a roll that failed.
            damage = f"the next segment begins at offset {following}"
        if disk_failed:
            _write_again(segment, position, may_block)
        if damage is None:
            if base != bases[-1]:
                segment.seal()
            continue
        behind = [b for b in bases[i + 1 :] if segments[b].size]
        claimed = claimed_end(segment, position, end)
        if behind or good_batch_behind(segment, position, claimed):
            if not machine_restarted or end < vouched_for:
                raise LogCorruptError(segment.path, position, end, damage)
            lost = segment.size - position + sum(segments[b].size for b in behind)
            logger.warning(
                "%s is truncated at byte %d (offset %d), %d bytes with good batches among them go: %s. The "
                "machine went down or the disk failed, and nothing from offset %d on had been synced",
                segment.path, position, end, lost, damage, recovery_point,
            )  # fmt: skip
        _cut(disk, segments, base, position, may_block)
        break
    return end, bases[first]


def _cut(
    disk: Disk, segments: SortedDict[int, LogSegment], base: int, position: int, may_block: MayBlock
) -> None:
    """End the log in the segment of that base offset, at that byte."""
    while segments.peekitem(-1)[0] > base:  # newest first: a crash leaves no hole
        remove_segment(disk, segments.popitem(-1)[1])
    segment: LogSegment = segments[base]
    segment.truncate_file(position)
    # Nothing of it may reappear among what is written in its place.
    segment.file.sync(may_block)
    disk.sync_dir(segment.path.rpartition("/")[0], may_block)


def _write_again(segment: LogSegment, end: int, may_block: MayBlock) -> None:
    """An fsync that failed has left pages of it that count as written, and are not: only as changed ones are
    they written by the next. That is this one: another copy of the log may be removed in favour of it."""
    file = segment.file
    for start in range(0, end, _CHUNK_BYTES):
        file.write_at(start, file.read(start, min(_CHUNK_BYTES, end - start)))
    file.sync(may_block)


def close_gap(segments: SortedDict[int, LogSegment], epochs: EpochCache) -> int:
    """Let the last batch end where the log does; returns the offset from which on a sync is needed."""
    base, last = segments.peekitem(-1)
    if last.size or len(segments) == 1:
        return MAX_OFFSET
    before: LogSegment = segments.peekitem(-2)[1]
    if before.load_tail() >= base:
        return MAX_OFFSET
    before.fill_to(base, epochs.epoch_at(base - 1))
    before.seal()
    return before.base_offset


def _rebuild_damaged_indexes(
    disk: Disk, segments: SortedDict[int, LogSegment], bases: list[int], may_block: MayBlock
) -> None:
    """Rebuild missing or damaged indexes of segments that no later flush will sync."""
    for base in bases:
        segment: LogSegment = segments[base]
        intact = True
        for index, entry in ((segment.offset_index, OFFSET_ENTRY), (segment.time_index, TIME_ENTRY)):
            present = disk.exists(index.path)
            intact = intact and present and index.open().size() % entry.size == 0
        if not intact and segment.size:
            position, end, damage = scan(segment, None)
            if damage is not None:
                raise LogCorruptError(segment.path, position, end, damage)
            segment.seal()
            for file in segment.files_to_sync():
                file.sync(may_block)


def remove_segment(disk: Disk, segment: LogSegment) -> None:
    segment.file.close()
    for path in segment.paths:
        disk.remove(path)
