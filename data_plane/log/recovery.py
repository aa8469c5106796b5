"""Opening a log: what the files say, what a crash may have done to them, and what is done about it.

    what is found                                              what is done
    ----------------------------------------------------------------------------------------------
    clean shutdown                                             indexes trusted, end of log by the last
                                                               index entry, nothing scanned
    crash: segments wholly below the recovery point            trusted (they were fsynced)
    crash: the others, and always the last                     every batch checked, indexes made again
    - all batches whole, CRCs right, offsets rising            kept
    - the last batch is cut or damaged, nothing good behind it cut there: it was never acknowledged
                                                               by an fsync, and its writer died
    - a damaged batch with a good batch behind it, in the same
      file or in a later segment                               LogCorruptError, nothing is touched:
                                                               cutting would drop good records
    - the same, at or above the recovery point, and the        cut there, and told: pages that were not synced
      machine has been booted since                            are lost one by one, and the replica does not
                                                               claim to be whole (log_manager/log_dirs.py)
    - later segments that hold no byte                         removed
    crash: the log ends before the recovery point              which tells of what was cut away since: every
                                                               batch checked, all of it synced anew
    - a segment that does not end where the next one begins    as one whose last batch is damaged
    an empty last segment, beyond whose beginning the one      removed
    before goes on
    an index file is missing, or is no multiple of its entry   made again from the log
    `.deleted`, `.cleaned`, `.tmp`; files without their `.log` removed
    `.swap` (a compaction was ending)                          takes the place of the segments it covers
    producer snapshot damaged, ahead of the log or before it   removed, an older one taken
    - behind the recovery point, and the machine has been      removed: what was cut away may have left it,
      booted since                                             its removal was not durable
    the last segment is empty, and the batches before it end   an empty batch closes the gap (segment.py)
    before it begins
    leader-epoch-checkpoint missing or unreadable              made again from all batches
    recovery point, not after a clean shutdown                 no later than the last segment's beginning: all
                                                               of it is synced anew
    leader-epoch-checkpoint, not after a clean shutdown        taken, and written anew by the next flush: it
                                                               may be in the page cache only
    no segment at all                                          an empty one at the log start offset
    log start offset ahead of the end                          the log begins anew there
    `.txnindex` of segments that were scanned                  made again from their abort markers

A batch counts as good behind damage if its length fits, its magic is 2, its CRC is right and its
offset is not below what the damaged one would have reached. (A damaged base offset of the very last
batch cannot be told: the CRC does not cover it, nothing stands behind it, and compaction leaves gaps.)

Way of the data: Log.open -> here; nothing else reads whole segments.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sortedcontainers import SortedDict

from data_plane.log import checkpoints, files
from data_plane.log.aborted import AbortedTransaction, AbortedTransactions
from data_plane.log.config import LogConfig
from data_plane.log.epochs import EpochCache
from data_plane.log.index import OFFSET_ENTRY, TIME_ENTRY
from data_plane.log.producer_snapshot import CorruptSnapshotError, decode_snapshot
from data_plane.log.producers import ProducerStateManager
from data_plane.log.segment import MAX_OFFSET, LogSegment, headers_in, newest_timestamp
from metadata_quorum.foundation.batch import (
    BATCH_OVERHEAD,
    MAGIC,
    BatchHeader,
    CorruptBatchError,
    check_crc,
    decode_batch,
    read_header,
)
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Buffer, Disk

logger = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 1024 * 1024
ANY_OFFSET: Final = range(MAX_OFFSET + 1)


class LogCorruptError(Exception):
    """Damage with good records behind it. The log must go offline or be fetched again; never cut.

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


@dataclass(slots=True)
class LoadedLog:
    """What `load` hands to the Log."""

    segments: SortedDict[int, LogSegment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: EpochCache
    producers: ProducerStateManager
    aborted: AbortedTransactions


def load(
    disk: Disk,
    directory: str,
    config: LogConfig,
    *,
    recovery_point: int,
    log_start_offset: int,
    clean: bool,
    machine_restarted: bool = False,
    now_ms: int,
    may_block: MayBlock,
) -> LoadedLog:
    """Open every segment of the directory, recovering what a crash may have torn."""
    disk.make_dirs(directory)
    _complete_swaps(disk, directory, may_block)
    _remove_leftovers(disk, directory, may_block)
    segments: SortedDict[int, LogSegment] = SortedDict()
    for base in _offsets(disk, directory, files.LOG, may_block):
        segments[base] = LogSegment(disk, directory, base, config, now_ms)
        segments[base].release()
    if not segments:
        segments[log_start_offset] = LogSegment(disk, directory, log_start_offset, config, now_ms)
    epochs = _read_epochs(disk, directory, may_block)
    end, scanned_from = _find_end(
        disk,
        segments,
        epochs,
        None if clean else recovery_point,
        may_block,
        machine_restarted=machine_restarted,
    )
    if epochs is None:
        epochs = _epochs_of_batches(segments)
    log_start_offset = max(log_start_offset, segments.peekitem(0)[0])
    if log_start_offset > end:
        for segment in segments.values():
            _remove_segment(disk, segment)
        segments = SortedDict()
        segments[log_start_offset] = LogSegment(disk, directory, log_start_offset, config, now_ms)
        end = log_start_offset
        remove_snapshots(disk, directory, ANY_OFFSET, may_block)
        epochs.clear()
    if end < recovery_point:
        recovery_point = scanned_from
    recovery_point = min(recovery_point, end, _close_gap(segments, epochs))
    if not clean:  # the last one may have been cut without a sync
        recovery_point = min(recovery_point, segments.peekitem(-1)[0])
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(log_start_offset)
    if machine_restarted:
        remove_snapshots(disk, directory, range(scanned_from + 1, ANY_OFFSET.stop), may_block)
    producers = ProducerStateManager()
    aborted = AbortedTransactions(disk, directory)
    aborted.load(segments, scanned_from, may_block)
    for base in segments.irange(scanned_from):
        disk.remove(files.path_of(directory, base, files.TXN_INDEX))
    for useless in rebuild_producers(
        disk,
        directory,
        producers,
        segments,
        end,
        may_block,
        aborted=aborted,
        told_from=scanned_from,
    ):
        disk.remove(useless)
    _remove_stray_snapshots(disk, directory, segments, may_block)
    segments.peekitem(-1)[1].hold()
    epochs.dirty = epochs.dirty or not clean
    return LoadedLog(segments, log_start_offset, end, recovery_point, epochs, producers, aborted)


def _offsets(disk: Disk, directory: str, suffix: str, may_block: MayBlock) -> list[int]:
    offsets = (files.offset_of(name, suffix) for name in disk.list(directory, may_block))
    return sorted(offset for offset in offsets if offset is not None)


def _complete_swaps(disk: Disk, directory: str, may_block: MayBlock) -> None:
    """A cleaned segment was whole when it got its `.swap` name, and so were its indexes; the old ones may
    be there, or not."""
    for base in _offsets(disk, directory, files.LOG + files.SWAP, may_block):
        swap = files.path_of(directory, base, files.LOG) + files.SWAP
        file = disk.open(swap)
        end = base
        for _, header in headers_in(file.read, 0, file.size(), swap):
            end = header.next_offset
        file.close()
        for old in _offsets(disk, directory, files.LOG, may_block):
            if base < old < end:
                for suffix in files.SEGMENT_SUFFIXES:
                    disk.remove(files.path_of(directory, old, suffix))
        # It may have lost the end of a transaction that they tell of.
        remove_snapshots(disk, directory, range(end), may_block)
        disk.sync_dir(directory, may_block)  # before the name goes that says so
        for suffix in (files.TXN_INDEX, files.OFFSET_INDEX, files.TIME_INDEX, files.LOG):  # the log last
            path = files.path_of(directory, base, suffix)
            if disk.exists(path + files.SWAP):
                disk.rename(path + files.SWAP, path)


def _remove_leftovers(disk: Disk, directory: str, may_block: MayBlock) -> None:
    names = disk.list(directory, may_block)
    logs = {name.removesuffix(files.LOG) for name in names if name.endswith(files.LOG)}
    for name in names:
        stem, _, kind = name.partition(".")
        orphan = f".{kind}" in (files.OFFSET_INDEX, files.TIME_INDEX, files.TXN_INDEX) and stem not in logs
        if orphan or name.endswith((files.DELETED, files.CLEANED, files.SWAP, ".tmp")):
            disk.remove(f"{directory}/{name}")


def _remove_segment(disk: Disk, segment: LogSegment) -> None:
    segment.file.close()
    for path in segment.paths:
        disk.remove(path)


# --- epochs ------------------------------------------------------------------------------------


def _read_epochs(disk: Disk, directory: str, may_block: MayBlock) -> EpochCache | None:
    path = f"{directory}/{files.LEADER_EPOCHS}"
    try:
        if not disk.exists(path) or not disk.read_bytes(path, may_block):  # its contents were not durable yet
            return None
        return EpochCache(checkpoints.read_epochs(disk, path, may_block))
    except checkpoints.CheckpointError:
        return None


def _epochs_of_batches(segments: SortedDict[int, LogSegment]) -> EpochCache:
    epochs = EpochCache()
    for segment in segments.values():
        for _, header in segment.headers(0, segment.size):
            epochs.assign(header.partition_leader_epoch, header.base_offset)
    return epochs


# --- segments ----------------------------------------------------------------------------------


def _find_end(
    disk: Disk,
    segments: SortedDict[int, LogSegment],
    epochs: EpochCache | None,
    recovery_point: int | None,
    may_block: MayBlock,
    *,
    machine_restarted: bool,
) -> tuple[int, int]:
    """The end offset of the log, after whatever recovery it needs, and the offset from which on it was
    scanned (its end: nothing was). No recovery point: a clean close."""
    _drop_abandoned(disk, segments, recovery_point)
    last_base, last = segments.peekitem(-1)
    if recovery_point is None:
        _rebuild_damaged_indexes(disk, segments, list(segments), may_block)
        try:
            end: int = last.load_tail()
            return end, end
        except CorruptBatchError:
            recovery_point = last_base  # not so clean: look at its end as after a crash
    end, scanned_from = _recover(
        disk, segments, epochs, recovery_point, may_block, machine_restarted=machine_restarted
    )
    if end < recovery_point and scanned_from > segments.peekitem(0)[0]:
        # It tells of records that are gone, cut away since perhaps: where, and what of it and of
        # what was written behind it has reached the disk, nothing says. Nor is anything good dropped for it.
        end, scanned_from = _recover(disk, segments, epochs, 0, may_block, machine_restarted=False)
    return end, scanned_from


def _drop_abandoned(disk: Disk, segments: SortedDict[int, LogSegment], recovery_point: int | None) -> None:
    """A roll that came to nothing may have left an empty segment, beyond whose beginning the one before it
    went on. (Where that one is going to be scanned, the scan tells.)"""
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
        _remove_segment(disk, last)
        del segments[base]


def _recover(
    disk: Disk,
    segments: SortedDict[int, LogSegment],
    epochs: EpochCache | None,
    recovery_point: int,
    may_block: MayBlock,
    *,
    machine_restarted: bool,
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
            # it was left by a roll that came to nothing.
            damage = f"the next segment begins at offset {following}"
        if damage is None:
            if base != bases[-1]:
                segment.seal()
            continue
        behind = [b for b in bases[i + 1 :] if segments[b].size]
        claimed = _claimed_end(segment, position, end)
        if behind or good_batch_behind(segment, position, claimed):
            if not machine_restarted or end < recovery_point:
                raise LogCorruptError(segment.path, position, end, damage)
            lost = segment.size - position + sum(segments[b].size for b in behind)
            logger.warning(
                "%s is cut at byte %d (offset %d), %d bytes with good batches among them go: %s. The machine "
                "went down or the disk failed, and nothing from offset %d on had been synced",
                segment.path, position, end, lost, damage, recovery_point,
            )  # fmt: skip
        for later in reversed(bases[i + 1 :]):  # whoever dies here leaves no hole
            _remove_segment(disk, segments.pop(later))
        segment.cut(position)
        # Nothing of it may come back among what is going to be written in its place.
        segment.file.sync(may_block)
        disk.sync_dir(segment.path.rpartition("/")[0], may_block)
        break
    return end, bases[first]


def _close_gap(segments: SortedDict[int, LogSegment], epochs: EpochCache) -> int:
    """Let the last batch end where the log does; returns from which offset on something is to be synced."""
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
    """Of segments that no flush will touch again."""
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


def scan(segment: LogSegment, epochs: EpochCache | None) -> tuple[int, int, str | None]:
    """Check every batch of a segment and make its indexes again.

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
    """At least the whole batch at `position`, as far as the file goes."""
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


def _claimed_end(segment: LogSegment, position: int, expected: int) -> int:
    """The least offset that a batch behind the damaged one can have.

    Where the damaged header is believable, that is what it claims; a producer's value may itself
    hold batches (a copy of another log), which must not pass for good records behind the damage.
    """
    if segment.size - position >= BATCH_OVERHEAD:
        header: BatchHeader = read_header(segment.file.read(position, BATCH_OVERHEAD))
        believable = header.base_offset == expected and header.magic == MAGIC
        if believable and header.record_count == header.last_offset_delta + 1 > 0:
            return header.next_offset
    return expected


def good_batch_behind(segment: LogSegment, position: int, least_offset: int) -> bool:
    """Whether a whole, checked batch of `least_offset` or later begins behind `position`.

    At `position` itself any offset will do: a good batch whose offset falls back betrays a damaged
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


# --- producers ---------------------------------------------------------------------------------


def remove_snapshots(disk: Disk, directory: str, offsets: range, may_block: MayBlock) -> None:
    """They hold no longer: the log begins anew, compaction has taken batches from before them, or nothing
    says that they are of this log and not of what was cut away."""
    if not offsets:
        return
    for offset in _offsets(disk, directory, files.SNAPSHOT, may_block):
        if offset in offsets:
            disk.remove(files.path_of(directory, offset, files.SNAPSHOT))


def _remove_stray_snapshots(
    disk: Disk, directory: str, segments: SortedDict[int, LogSegment], may_block: MayBlock
) -> None:
    """Every clean close leaves one at the log's end: only the newest is of use, and a segment's own."""
    for offset in _offsets(disk, directory, files.SNAPSHOT, may_block)[:-1]:
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
    told_from: int | None = None,
) -> list[str]:
    """Bring `producers` to the state after `end`: the newest usable snapshot, then the log: all of
    it, also what lies below its start offset, for so did who wrote it. Returns the paths of snapshots
    that are of no use.

    With `aborted`, abort markers from `told_from` on are told to it: the snapshot is one before them.
    """
    start = segments.peekitem(0)[0]
    producers.reset(start)
    useless: list[str] = []
    newest = end if told_from is None else told_from
    for offset in reversed(_offsets(disk, directory, files.SNAPSHOT, may_block)):
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
            if header.record_count == 0:  # compaction took the marker and left its producer's epoch
                continue
            ended = producers.update_control(header, decode_batch(read(at, header.size))[0])
            if ended is not None:
                yield ended
        else:
            producers.update(header, header.base_offset)
