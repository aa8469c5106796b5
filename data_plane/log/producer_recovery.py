"""Producers' state at an offset: the newest usable snapshot, then the log from there on.

Path of the data: load.py and truncation.py -> here, in an executor or at a start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sortedcontainers import SortedDict

from data_plane.log import files
from data_plane.log.aborted import AbortedTransaction, AbortedTransactions
from data_plane.log.producer_snapshot import CorruptSnapshotError, decode_snapshot
from data_plane.log.producers import ProducerStateManager
from data_plane.log.segment import MAX_OFFSET, LogSegment
from metadata_quorum.foundation.batch import decode_batch
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk

ANY_OFFSET: Final = range(MAX_OFFSET + 1)


def remove_snapshots(disk: Disk, directory: str, offsets: range, may_block: MayBlock) -> None:
    """Remove snapshots that are no longer valid: the log was restarted, compaction has removed batches from
    before them, or they may describe batches that were truncated."""
    if not offsets:
        return
    for offset in files.offsets_in(disk, directory, files.SNAPSHOT, may_block):
        if offset in offsets:
            disk.remove(files.path_of(directory, offset, files.SNAPSHOT))


def remove_stray_snapshots(
    disk: Disk, directory: str, segments: SortedDict[int, LogSegment], may_block: MayBlock
) -> None:
    """Every clean close writes one at the log's end: only the newest is of use, and those at the beginning of
    a segment."""
    for offset in files.offsets_in(disk, directory, files.SNAPSHOT, may_block)[:-1]:
        if offset not in segments:
            disk.remove(files.path_of(directory, offset, files.SNAPSHOT))


def rebuild_producers(
    disk: Disk,
    directory: str,
    producers: ProducerStateManager,
    segments: SortedDict[int, LogSegment],
    end: int,
    may_block: MayBlock,
    *,
    aborted: AbortedTransactions | None = None,
    scanned_from: int | None = None,
) -> list[str]:
    """Bring `producers` to the state at `end`: the newest usable snapshot, then all batches behind it, also
    those below the log's start offset, as the original writer did. Returns the paths of snapshots that are of
    no use.

    With `aborted`, abort markers from `scanned_from` on are added to it: so the snapshot is one before them.
    """
    start = segments.peekitem(0)[0]
    producers.reset(start)
    useless: list[str] = []
    newest = end if scanned_from is None else scanned_from
    for offset in reversed(files.offsets_in(disk, directory, files.SNAPSHOT, may_block)):
        path = files.path_of(directory, offset, files.SNAPSHOT)
        if newest < offset <= end:
            continue
        if start <= offset <= end:
            try:
                producers.reset(offset, decode_snapshot(disk.read_bytes(path, may_block)))
                start = offset
                break
            except CorruptSnapshotError:
                pass
        useless.append(path)
    first = max(segments.bisect_right(start) - 1, 0)
    for base in list(segments)[first:]:
        for ended in _replay(producers, segments[base], start, end):
            if aborted is not None and ended.last_offset >= newest:
                aborted.add(ended, base)
    producers.next_offset = end
    return useless


def _replay(
    producers: ProducerStateManager, segment: LogSegment, start: int, end: int
) -> Iterator[AbortedTransaction]:
    if start >= end or segment.size == 0:
        return
    read = segment.file.read
    position = segment.find(start, read)
    for at, header in segment.headers(position, segment.size, read):
        if header.base_offset >= end:
            return
        if header.producer_id < 0:
            continue
        if header.is_control:
            if header.record_count == 0:  # compaction removed the marker and kept its producer's epoch
                continue
            ended = producers.update_control(header, decode_batch(read(at, header.size))[0])
            if ended is not None:
                yield ended
        else:
            producers.update(header, header.base_offset)
