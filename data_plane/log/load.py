"""Opening a log: what the files say, what a crash may have done to them, and what is done about it.

    what is found                                              what is done
    ----------------------------------------------------------------------------------------------
    clean shutdown                                             indexes trusted, end of log by the last
                                                               index entry, nothing scanned
    crash: segments wholly below the recovery point            trusted (they were fsynced)
    crash: the others, and always the last                     every batch checked, indexes rebuilt
    - all batches whole, CRCs right, offsets rising            kept
    - the last batch is cut off or damaged, no good batch      truncated there: it was never acknowledged
      behind it                                                by an fsync, and its writer has crashed
    - a damaged batch with a good batch behind it, in the same
      file or in a later segment                               LogCorruptError, nothing is changed:
                                                               truncation would drop good records
    - the same, at or above the recovery point, and the        truncated there, and logged: unsynced pages
      machine was restarted since                              are lost one by one, and the replica does not
                                                               claim to be complete (log_manager/log_dirs.py)
    - later segments without a byte                            removed
    - good batches, and the disk had failed                    written again, and synced: what a failed fsync
                                                               leaves behind no later one writes
    crash: the log ends before the recovery point              the recovery point is from before a truncation:
                                                               every batch checked, all of it synced again
    - a segment that does not end where the next one begins    as one whose last batch is damaged
    an empty last segment, beyond whose beginning the one      removed
    before continues
    an index file is missing, or is no multiple of its entry   rebuilt from the log
    `.deleted`, `.cleaned`, `.tmp`; files without their `.log` removed
    `.swap` (a compaction was ending)                          takes the place of the segments it covers
    producer snapshot damaged, ahead of the log or before it   removed, an older one used
    - behind the recovery point, and the machine was           removed: it may be from before a truncation,
      restarted since                                          its removal was not durable
    the last segment is empty, and the batches before it end   an empty batch closes the gap (segment.py)
    before it begins
    leader-epoch-checkpoint missing or unreadable              rebuilt from all batches
    recovery point, not after a clean shutdown                 no later than the last segment's beginning: all
                                                               of it is synced again
    crash of the process only: the log may have been truncated synced, with its directory: nothing of before
    without a flush                                            comes back among what is written from now on
    leader-epoch-checkpoint, not after a clean shutdown        used, and rewritten by the next flush: it may
                                                               be in the page cache only
    no segment at all                                          an empty one at the log start offset
    as it was made: one segment without a byte                 taken over; nothing of it can be torn
    log start offset ahead of the end                          the log restarts there, empty: the end is lost
    - and ahead of the high watermark                          not believed, the records stay: what was not
                                                               committed cannot have been deleted
    `.txnindex` of segments that were scanned                  rebuilt from their abort markers

The parts: recovery.py finds the end of the log, segment_scan.py checks one segment's batches,
producer_recovery.py rebuilds the producers' state.

Path of the data: log_manager/log_dirs.py -> here, in an executor -> UnifiedLog(loaded).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from sortedcontainers import SortedDict

from data_plane.log import checkpoints, files, recovery
from data_plane.log.aborted import AbortedTransactions
from data_plane.log.checkpoints import PartitionMetadata
from data_plane.log.config import LogConfig
from data_plane.log.empty_log import is_as_made
from data_plane.log.epochs import EpochCache
from data_plane.log.partition_directory import PartitionDirectory
from data_plane.log.producer_recovery import (
    ANY_OFFSET,
    rebuild_producers,
    remove_snapshots,
    remove_stray_snapshots,
)
from data_plane.log.producers import ProducerStateManager
from data_plane.log.segment import MAX_OFFSET, LogSegment, headers_in
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadedLog:
    """The state with which a `UnifiedLog` starts."""

    disk: PartitionDirectory
    directory: str
    config: LogConfig
    contents: LogContents
    identity: LogIdentity
    clean: bool


class LogIdentity(NamedTuple):
    """Which topic a log belongs to, as `partition.metadata` says."""

    topic_id: UUID | None
    unidentified: bool
    """The checkpoints may still describe an earlier log of this name (`UnifiedLog.identify`)."""
    new_directory: bool
    """The directory's name is not known to be durable."""


class LogContents(NamedTuple):
    """What is found in the files, or made."""

    segments: SortedDict[int, LogSegment]
    found_end: int
    """Where the files end. Before the log's start, where that is known to be further on: it has restarted."""
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
    high_watermark: int = MAX_OFFSET,
    clean: bool,
    machine_restarted: bool = False,
    disk_failed: bool = False,
    now_ms: int,
    topic_id: UUID | None = None,
    stored: PartitionMetadata | None = None,
    sync: bool = True,
    may_block: MayBlock,
) -> LoadedLog:
    """Open or create the log in `directory`, and recover what a crash may have torn. `clean`: it was closed;
    `machine_restarted`: the machine was restarted since it was written, so any page that was not synced may
    be lost; `disk_failed`: under the same boot even, and the page cache may have what no fsync would write.
    `high_watermark`: by the checkpoint, where there is one. `stored`: its partition.metadata, where that is
    known. Without `sync` the caller makes the directory durable before the log takes appends.

    Raises LogCorruptError, and BrokerError(INCONSISTENT_TOPIC_ID) where the directory belongs to another
    topic.
    """
    place = PartitionDirectory(disk, directory)
    is_new = not place.exists(directory)
    place.make_dirs(directory)
    stored = stored or _stored_metadata(place, directory, may_block)
    _check_topic(directory, topic_id, stored)
    sizes = {} if is_new else place.sizes(directory, may_block)
    if recovery_point == log_start_offset == 0 and (is_new or is_as_made(sizes)):
        contents = _without_records(place, directory, config, now_ms, sizes)
    else:
        contents = _recovered(
            place, directory, config, recovery_point, log_start_offset, high_watermark, now_ms, may_block,
            clean=clean, machine_restarted=machine_restarted, disk_failed=disk_failed,
        )  # fmt: skip
    active: LogSegment = contents.segments.peekitem(-1)[1]
    if active.size:
        active.hold()
        active.look_up_age(may_block)
    else:
        active.release()
    if sync and not (clean or is_new):
        # The process may have died between a truncation and its flush, and the log takes appends now.
        active.file.sync(may_block)
        place.sync_dir(directory, may_block)
    contents.epochs.dirty = contents.epochs.dirty or not clean
    identity = _identify(place, directory, topic_id, stored)
    return LoadedLog(place, directory, config, contents, identity, clean)


def _without_records(
    place: PartitionDirectory, directory: str, config: LogConfig, now_ms: int, sizes: Mapping[str, int]
) -> LogContents:
    """The files are made where there are none."""
    segment = LogSegment(place, directory, 0, config, now_ms, known_empty=bool(sizes))
    epochs = EpochCache()
    epochs.dirty = files.LEADER_EPOCHS in sizes  # no epoch of it has a record
    aborted = AbortedTransactions(place, directory)
    return LogContents(SortedDict({0: segment}), 0, 0, 0, 0, epochs, ProducerStateManager(), aborted)


def _recovered(
    place: PartitionDirectory,
    directory: str,
    config: LogConfig,
    recovery_point: int,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    may_block: MayBlock,
    *,
    clean: bool,
    machine_restarted: bool,
    disk_failed: bool,
) -> LogContents:
    _complete_swaps(place, directory, may_block)
    _remove_leftovers(place, directory, may_block)
    segments = _open_segments(place, directory, config, log_start_offset, now_ms, may_block)
    epochs = _read_epochs(place, directory, may_block)
    end, scanned_from = recovery.find_end(
        place,
        segments,
        epochs,
        None if clean else recovery_point,
        may_block,
        # Of what is before the log's start some may be there and some not: the log has restarted.
        vouched_for=recovery_point if recovery_point > log_start_offset else 0,
        machine_restarted=machine_restarted,
        disk_failed=disk_failed,
    )
    if epochs is None:
        epochs = _epochs_of_batches(segments)
    begin, found_end = segments.peekitem(0)[0], end
    if log_start_offset > max(end, high_watermark):
        logger.error(
            "%s ends at offset %d, and log-start-offset-checkpoint says that it begins at %d, which nothing "
            "else knows of: the log keeps its records",
            directory, end, log_start_offset,
        )  # fmt: skip
        log_start_offset = begin
    log_start_offset = max(log_start_offset, begin)
    if log_start_offset > end:
        for segment in segments.values():
            recovery.remove_segment(place, segment)
        segments = SortedDict()
        segments[log_start_offset] = LogSegment(place, directory, log_start_offset, config, now_ms)
        end = log_start_offset
        remove_snapshots(place, directory, ANY_OFFSET, may_block)
        epochs.clear()
    if end < recovery_point:
        recovery_point = scanned_from
    recovery_point = min(recovery_point, end, recovery.close_gap(segments, epochs))
    if not clean:  # the last one may have been truncated without a sync
        recovery_point = min(recovery_point, segments.peekitem(-1)[0])
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(log_start_offset)
    if machine_restarted:
        remove_snapshots(place, directory, range(scanned_from + 1, ANY_OFFSET.stop), may_block)
    producers, aborted = _load_producers(place, directory, segments, end, scanned_from, may_block)
    return LogContents(segments, found_end, log_start_offset, end, recovery_point, epochs, producers, aborted)


# --- whose log it is ---------------------------------------------------------------------------


def _stored_metadata(disk: Disk, directory: str, may_block: MayBlock) -> PartitionMetadata:
    return checkpoints.read_partition_metadata(disk, f"{directory}/{files.PARTITION_METADATA}", may_block)


def _check_topic(directory: str, topic_id: UUID | None, stored: PartitionMetadata) -> None:
    if topic_id is not None and stored.topic_id is not None and stored.topic_id != topic_id:
        raise BrokerError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"{directory} belongs to topic id {stored.topic_id}, not {topic_id}",
        )


def _identify(disk: Disk, directory: str, topic_id: UUID | None, stored: PartitionMetadata) -> LogIdentity:
    if topic_id is not None and stored.topic_id is None:
        checkpoints.begin_partition_metadata(disk, f"{directory}/{files.PARTITION_METADATA}", topic_id)
    known_id = topic_id or stored.topic_id
    unidentified = known_id is not None and not stored.known_to_checkpoints
    # A log that is identified has a durable name.
    return LogIdentity(known_id, unidentified, new_directory=unidentified or stored.topic_id is None)


# --- segments ----------------------------------------------------------------------------------


def _open_segments(
    disk: Disk, directory: str, config: LogConfig, log_start_offset: int, now_ms: int, may_block: MayBlock
) -> SortedDict[int, LogSegment]:
    segments: SortedDict[int, LogSegment] = SortedDict()
    for base in files.offsets_in(disk, directory, files.LOG, may_block):
        segments[base] = LogSegment(disk, directory, base, config, now_ms)
        segments[base].release()
    if not segments:
        segments[log_start_offset] = LogSegment(disk, directory, log_start_offset, config, now_ms)
    return segments


def _complete_swaps(disk: Disk, directory: str, may_block: MayBlock) -> None:
    """A cleaned segment was complete when it got its `.swap` name, and so were its indexes; the old segments
    may still exist, or not."""
    for base in files.offsets_in(disk, directory, files.LOG + files.SWAP, may_block):
        swap = files.path_of(directory, base, files.LOG) + files.SWAP
        file = disk.open(swap)
        end = base
        for _, header in headers_in(file.read, 0, file.size(), swap):
            end = header.next_offset
        file.close()
        for old in files.offsets_in(disk, directory, files.LOG, may_block):
            if base < old < end:
                for suffix in files.SEGMENT_SUFFIXES:
                    disk.remove(files.path_of(directory, old, suffix))
        # It may have lost the end of a transaction that they contain.
        remove_snapshots(disk, directory, range(end), may_block)
        disk.sync_dir(directory, may_block)  # before the `.swap` name disappears, which says so
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


# --- producers ---------------------------------------------------------------------------------


def _load_producers(
    disk: Disk,
    directory: str,
    segments: SortedDict[int, LogSegment],
    end: int,
    scanned_from: int,
    may_block: MayBlock,
) -> tuple[ProducerStateManager, AbortedTransactions]:
    aborted = AbortedTransactions(disk, directory)
    aborted.load(segments, scanned_from, may_block)
    for base in segments.irange(scanned_from):
        disk.remove(files.path_of(directory, base, files.TXN_INDEX))
    producers = ProducerStateManager()
    useless_snapshots = rebuild_producers(
        disk, directory, producers, segments, end, may_block, aborted=aborted, scanned_from=scanned_from
    )
    for useless in useless_snapshots:
        disk.remove(useless)
    remove_stray_snapshots(disk, directory, segments, may_block)
    return producers, aborted
