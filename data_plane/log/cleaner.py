"""One compaction of a log: which of its segments, and the files that take their place.

    plan (on the loop)      segments from the log's start to the end of what may be cleaned; None where
                            too little of it is dirty
    CleanWork.run (executor) reads the dirty part for the newest offset of each key, then every segment
                            of the plan, and writes what stays into new ones, several small ones into one
    replace_segments (loop), sync_dir (executor), finish_replacing (loop): compact_log.py

    name of a new segment's files      what a crash leaves is
    -----------------------------------------------------------------------------------------
    00…42.log.cleaned                  removed at the next start: the old ones are all there
    00…42.log.swap   (whole, synced)   the truth: the next start drops the old ones that it covers
    00…42.log                          done; the old ones end in `.deleted`

The results of one pass depend on each other (a tombstone is removed because every older value is): so the new
segments get their `.swap` names one after another from the oldest on, each durable before the next.

A log that is truncated, or loses a segment, meanwhile cancels the pass first: no `.swap` may exist beside
records that were written after it. Once `replace_segments` has started there is no way back: the new segments
are the log.

A batch that cannot be decoded ends the pass with UncleanableError; the log stays as it was.

Path of the data: log_manager/log_cleaner.py chooses the log -> here -> log -> recovery.py after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Final, TypeVar

from data_plane.log import aborted as txn_index
from data_plane.log import files
from data_plane.log.aborted import AbortedTransaction
from data_plane.log.compaction import (
    CleanedTransactionMetadata,
    CompactionPass,
    Newest,
    newest_records,
    note_newest,
)
from data_plane.log.config import LogConfig
from data_plane.log.segment import MAX_RELATIVE_OFFSET, LogSegment, newest_timestamp
from metadata_quorum.foundation.batch import BatchHeader, CorruptBatchError, read_header
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.invariants import InvariantViolation
from metadata_quorum.foundation.primitives import Buffer

Result = TypeVar("Result")

DEFAULT_MAP_BYTES: Final = 128 * 1024 * 1024  # log.cleaner.dedupe.buffer.size
_MAP_ENTRY_BYTES: Final = 140  # a key's place in a dict, its object and its offset, without its bytes


class UncleanableError(Exception):
    """A batch that a pass could not decode or rewrite."""


class CleaningAbortedError(Exception):
    """The pass was cancelled while it read."""


@dataclass(frozen=True, slots=True)
class LogToClean:
    """How much of a log may be cleaned, and whether it is time. Offsets; sizes in bytes."""

    segments: Sequence[LogSegment]  # from the log's start
    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool  # max.compaction.lag.ms has passed

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > config.min_cleanable_dirty_ratio)


def log_to_clean(
    segments: Sequence[LogSegment], first_dirty: int, upper_offset: int, config: LogConfig, now_ms: int
) -> LogToClean:
    """Whole segments below `upper_offset` (the last stable offset) and out of `min.compaction.lag.ms`;
    never the active one."""
    cleanable: list[LogSegment] = []
    clean_bytes = dirty_bytes = 0
    overdue = False
    end = segments[0].base_offset
    for segment, following in pairwise(segments):
        if following.base_offset > upper_offset:
            break
        min_lag = config.min_compaction_lag_ms
        if min_lag > 0 and now_ms - segment.max_timestamp < min_lag:  # which may have to be read
            break
        end = following.base_offset
        cleanable.append(segment)
        if end <= first_dirty:
            clean_bytes += segment.size
        else:
            dirty_bytes += segment.size
            max_lag = config.max_compaction_lag_ms
            overdue = overdue or (max_lag < now_ms and segment.waited_for_roll_ms(now_ms, now_ms) > max_lag)
    return LogToClean(
        cleanable, max(first_dirty, segments[0].base_offset), end, clean_bytes, dirty_bytes, overdue
    )


@dataclass(slots=True)
class Replacement:
    """Old segments, in order, the one that takes their place, where they end, and the aborted transactions
    whose markers lie there still."""

    old: list[LogSegment]
    new: LogSegment
    end: int
    aborted: list[AbortedTransaction]


@dataclass(slots=True)
class CleanWork:
    """See the module. The loop must not use the new segments before `run` has returned."""

    disk: Disk
    directory: str
    config: LogConfig
    to_clean: LogToClean
    now_ms: int
    live_producers: Collection[int]
    aborted: Sequence[AbortedTransaction] = ()
    max_map_bytes: int = DEFAULT_MAP_BYTES
    replacements: list[Replacement] = field(default_factory=list)
    cleaned_to: int = 0
    """The first offset that is dirty now."""
    last_removed: int = -1
    """A snapshot from before it may contain a transaction whose end, or a producer whose newest batch, is no
    longer in the log."""
    cancelled: bool = False
    replacing: bool = False
    """The new segments are the log's, or on their way to be: they are not to be discarded."""
    _naming: Lock = field(default_factory=Lock)

    def run(self, may_block: MayBlock) -> None:
        """Read and write; on return the new segments are durable under their `.swap` names, unless the work
        was cancelled. Raises OSError, and UncleanableError; then `discard` what has been made."""
        try:
            self._write(may_block)
        except CleaningAbortedError:
            return
        for replacement in self.replacements:
            replacement.new.rename_indexes(files.SWAP)
            self._sync_names(may_block)
            with self._naming:
                if self.cancelled:
                    return
                replacement.new.rename(files.SWAP)
            self._sync_names(may_block)

    def _write(self, may_block: MayBlock) -> None:
        latest, newest, self.cleaned_to = self._newest_offsets()
        cleaning = CompactionPass(
            latest,
            self.cleaned_to,
            self.now_ms,
            self.config.delete_retention_ms,
            self.live_producers,
            newest,
            CleanedTransactionMetadata(self.aborted),
        )
        sources = [s for s in self.to_clean.segments if s.base_offset < self.cleaned_to]
        end = min((s.base_offset for s in self.to_clean.segments[len(sources) :]), default=self.to_clean.end)
        for group, group_end in _groups(sources, end, self.config.segment_bytes):
            self._rewrite(group, group_end, cleaning, may_block)
        self.last_removed = max(cleaning.removed, default=-1)

    def give_up(self) -> None:
        """Nobody needs it any more: `run` ends soon, and what it has made is discarded."""
        self.cancelled = True

    def cancel(self) -> None:
        """The log is about to change beneath the new segments (`run` may be at work meanwhile): none has a
        name any more, nor gets one, that a start takes for the truth. Durable with the log's next flush."""
        with self._naming:
            self.cancelled = True
            for replacement in self.replacements:
                log = files.path_of(self.directory, replacement.new.base_offset, files.LOG)
                self.disk.remove(log + files.SWAP)

    def _sync_names(self, may_block: MayBlock) -> None:
        self.disk.sync_dir(self.directory, may_block)

    def discard(self, may_block: MayBlock) -> None:
        """Remove the new segments, durably: the log has changed meanwhile, or they could not be written. Not
        if `replace_segments` has started: then the next start completes it."""
        if self.replacing:
            return
        self.cancel()
        for replacement in self.replacements:
            for path in replacement.new.paths:
                self.disk.remove(path)
            replacement.new.release()
        self._sync_names(may_block)

    def _batches(self, segment: LogSegment) -> Iterator[tuple[Buffer, BatchHeader]]:
        for found in batches_of(segment):
            if self.cancelled:  # there may be hours of work left
                raise CleaningAbortedError
            yield found

    def _newest_offsets(self) -> tuple[dict[bytes, int], dict[int, Newest], int]:
        """Key -> newest offset over the dirty part, as far as memory allows; producers' newest batches; and
        how far that was."""
        latest: dict[bytes, int] = {}
        newest: dict[int, Newest] = {}
        used = 0
        transactions = CleanedTransactionMetadata(self.aborted)
        for segment in self.to_clean.segments:
            for data, header in self._batches(segment):
                note_newest(newest, header)
                look = partial(newest_records, transactions, data, header, self.to_clean.first_dirty)
                for record in _opened(segment, header, look):
                    if record.key is None:
                        continue
                    if record.key not in latest:
                        used += _MAP_ENTRY_BYTES + len(record.key)
                    latest[record.key] = record.offset
                if used > self.max_map_bytes:
                    return latest, newest, header.next_offset
        return latest, newest, self.to_clean.end

    def _rewrite(
        self, group: list[LogSegment], end: int, cleaning: CompactionPass, may_block: MayBlock
    ) -> None:
        base = group[0].base_offset
        for suffix in (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX, files.TXN_INDEX):
            self.disk.remove(files.path_of(self.directory, base, suffix) + files.CLEANED)
        new = LogSegment(
            self.disk, self.directory, base, self.config, group[-1].created_ms, suffix=files.CLEANED
        )
        replacement = Replacement(group, new, end, [])
        self.replacements.append(replacement)
        reached, epoch = base, -1
        for segment in group:
            for data, header in self._batches(segment):
                epoch = header.partition_leader_epoch
                kept = _opened(segment, header, partial(cleaning.clean, data, header))
                if kept is None:
                    continue
                position = new.append(kept)
                new.note(position, len(kept), header.last_offset, newest_timestamp(read_header(kept)))
                reached = header.next_offset
        if reached < end:
            new.fill_to(end, epoch)
        new.seal()
        for file in new.files_to_sync():
            file.sync(may_block)
        new.release()
        for entry in self.aborted:
            if base <= entry.last_offset < end and cleaning.is_needed(entry):
                replacement.aborted.append(entry)
        self._write_txn_index(replacement, may_block)

    def _write_txn_index(self, replacement: Replacement, may_block: MayBlock) -> None:
        """Also an empty one, which then replaces what the old ones had."""
        if replacement.aborted or any(self.disk.exists(s.txn_index_path) for s in replacement.old):
            file = self.disk.open(replacement.new.txn_index_path, create=True)
            file.append((txn_index.encode(replacement.aborted),))
            file.sync(may_block)
            file.close()


def _opened(segment: LogSegment, header: BatchHeader, work: Callable[[], Result]) -> Result:
    """What compaction keeps of a batch. Raises UncleanableError, whatever is wrong with its records."""
    try:
        return work()
    except (OSError, InvariantViolation):
        raise
    except Exception as e:
        raise UncleanableError(f"{segment.path}: batch at offset {header.base_offset}: {e!r}") from e


def batches_of(segment: LogSegment) -> Iterator[tuple[Buffer, BatchHeader]]:
    """Every whole batch of a segment with its header. Raises UncleanableError at a damaged one."""
    read = segment.file.read
    try:
        for position, header in segment.headers(0, segment.size, read):
            yield read(position, header.size), header
    except CorruptBatchError as e:
        raise UncleanableError(str(e)) from e


def _groups(segments: Sequence[LogSegment], end: int, max_bytes: int) -> list[tuple[list[LogSegment], int]]:
    """Neighbours that fit into one segment together, even if nothing of them is removed; where each ends."""
    groups: list[tuple[list[LogSegment], int]] = []
    size = 0
    ends = [*(s.base_offset for s in segments[1:]), end]
    for segment, next_base in zip(segments, ends, strict=True):
        size += segment.size
        group = groups[-1][0] if groups else []
        if group and size <= max_bytes and next_base - group[0].base_offset <= MAX_RELATIVE_OFFSET:
            groups[-1] = ([*group, segment], next_base)
        else:
            groups.append(([segment], next_base))
            size = segment.size
    return groups
