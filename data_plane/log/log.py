"""A partition's log: appended to at the end, read from anywhere, dropped from either end.

This file is the log's state, and what readers, writers and replication do with it, in order. The parts:

    append.py        what is known of a run of batches before it is written
    log_segments.py  the segments: read, roll, drop, replace
    producers.py     sequence numbers and open transactions; aborted.py: aborted ones
    epochs.py        where each leader epoch begins
    flush.py         what is durable, and the work that makes the rest durable
    truncation.py    the part of a truncation that blocks; cleaner.py: of a compaction

Around it: load.py finds the state of a log in its files, whatever a crash has done to them (recovery.py);
retention.py deletes old segments, compact_log.py replaces them with compacted ones.

One thread owns a log; nothing here waits, except for reads of files that loading, truncation and rare
queries need. Other work that may block is returned as an object whose `run` the owner gives to an executor.

Offsets: log_start_offset <= (LSO <= high watermark, which the partition keeps) <= log_end_offset.
Everything written survives a crash of the process, and of the machine up to `recovery_point`.

Path of the data: api/produce or fetcher -> partition -> here -> segment -> disk, and back as slices.
"""

from __future__ import annotations

from typing import Final

from data_plane.log import checkpoints, files, validation
from data_plane.log.append import (
    ANY_EPOCH,
    AppendInfo,
    check_leader_run,
    check_producer,
    first_offset_expected,
    refuse_until_flushed,
    transaction_markers,
)
from data_plane.log.cleaner import CleanWork
from data_plane.log.consistency import all_or_inconsistent, check_consistent, mark_inconsistent
from data_plane.log.deletion import Deletion
from data_plane.log.flush import FlushWork, Unflushed
from data_plane.log.gap import bridge_gap
from data_plane.log.load import LoadedLog
from data_plane.log.log_segments import LogSegments, must_roll
from data_plane.log.producer_recovery import ANY_OFFSET, remove_snapshots
from data_plane.log.producer_snapshot import encode_snapshot
from data_plane.log.producers import ProducerStateManager
from data_plane.log.segment import MAX_RELATIVE_OFFSET, LogSegment, LogSlice, newest_timestamp
from data_plane.log.timestamps import TimeSearch
from data_plane.log.truncation import TruncationWork
from data_plane.log.validation import CLIENT, AppendOrigin, Batches, ValidatedRecords, Writable
from metadata_quorum.foundation.batch import (
    CONTROL_ABORT,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptBatchError,
    Record,
    control_type,
    set_offset_and_epoch,
)
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.invariants import Invariant, invariant
from metadata_quorum.foundation.primitives import Buffer
from metadata_quorum.foundation.topic_configs import LOG_APPEND_TIME

MAY_REMOVE_SNAPSHOTS: Final = MayBlock("producer snapshots must not outlive the batches they describe; rare")


class UnifiedLog:
    """See the module. `config` may be replaced at any time. `log_segments`, `unflushed`,
    `prepared_truncation` and `cleaning` are for the modules of this package that change a log."""

    def __init__(self, loaded: LoadedLog) -> None:
        self.disk = loaded.disk
        self.directory = loaded.directory
        self.config = loaded.config
        self.topic_id = loaded.identity.topic_id
        self.unidentified = loaded.identity.unidentified
        self.inconsistent = False  # a change has stopped half-way (consistency.py)
        contents = loaded.contents
        self.found_end = contents.found_end  # when it was loaded
        self.log_start_offset = contents.log_start_offset
        self.log_end_offset = contents.log_end_offset
        self.epochs = contents.epochs
        self.producers = contents.producers
        self.aborted = contents.aborted
        self.cleaned_to = 0
        """Compaction has been over everything below; kept in the log dir's cleaner-offset-checkpoint."""
        self.log_segments = LogSegments(self.disk, self.directory, contents.segments)
        self.unflushed = Unflushed(contents.recovery_point, loaded.identity.new_directory)
        if not loaded.clean:
            self.log_segments.hold_last_sealed_before(contents.recovery_point)
        self.prepared_truncation: TruncationWork | None = None  # prepared, not applied yet
        self.cleaning: CleanWork | None = None  # in the executor; valid while its segments stay as they are

    def identify(self, may_block: MayBlock) -> None:
        """Write durably which topic the log belongs to (blocks). Call it soon after the log was created, once
        the checkpoints include the log: until then the next start does not trust them for it."""
        if self.unidentified and self.topic_id is not None:
            path = f"{self.directory}/{files.PARTITION_METADATA}"
            try:
                checkpoints.write_partition_metadata(self.disk, path, self.topic_id, may_block)
            except FileNotFoundError:  # renamed or removed meanwhile
                return
            self.unidentified = False

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.log_segments.size

    @property
    def segments(self) -> list[LogSegment]:
        """Oldest first; the last one is the active segment."""
        return self.log_segments.all()

    # --- appending

    def append_as_leader(
        self,
        records: Writable | ValidatedRecords,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = CLIENT,
    ) -> AppendInfo:
        """Validate what is not validated yet, set offsets and epoch in place, write. Raises BrokerError; then
        nothing was written. Records validated earlier may have been validated under another config."""
        if not self.unflushed.truncation_is_durable:
            refuse_until_flushed(self.directory)
        config = self.config
        if isinstance(records, ValidatedRecords):
            records, batches = records
        else:
            records, batches = validation.check(records, config, now_ms, origin)
        if batches[0][1].producer_id >= 0:
            repeated = check_producer(self.producers, records, batches, origin)
            if repeated is not None:
                first, last, time_ms = repeated.first_offset, repeated.last_offset, repeated.timestamp
                return AppendInfo(first, last, time_ms, self.log_start_offset, duplicate=True)
        append_time_ms = -1
        if config.message_timestamp_type == LOG_APPEND_TIME:
            batches = validation.stamp(records, batches, now_ms)
            append_time_ms = now_ms
        if leader_epoch < self.epochs.latest:
            invariant(False, Invariant.BATCH_EPOCHS_MONOTONIC, (self.directory, leader_epoch))
        first_offset = offset = self.log_end_offset
        for position, header in batches:
            set_offset_and_epoch(records, position, offset, leader_epoch)
            offset += header.last_offset_delta + 1
        rolled = self._write(records, batches, offset, leader_epoch, now_ms)
        start, size = self.log_start_offset, len(records)
        return AppendInfo(first_offset, offset - 1, append_time_ms, start, False, rolled, size)

    def append_as_follower(
        self, records: Buffer, *, leader_epoch: int = ANY_EPOCH, now_ms: int = -1
    ) -> AppendInfo | None:
        """Append a leader's run of batches unchanged, with one write, as far as they are whole and not of an
        epoch newer than `leader_epoch`; None if there are none. Raises BrokerError as `check_leader_run`, or
        NOT_LEADER_OR_FOLLOWER while a truncation is not durable."""
        if not self.unflushed.truncation_is_durable:
            refuse_until_flushed(self.directory)
        try:
            begin = first_offset_expected(records, self.log_start_offset, self.log_end_offset)
            last_epoch = self.epochs.epoch_at(self.log_end_offset - 1)  # that with the last record
            run = check_leader_run(records, begin, leader_epoch, last_epoch)
        except CorruptBatchError as e:
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{self.directory}: {e}") from e
        batches, next_offset, size = run
        if not batches:
            return None
        view = records if size == len(records) else memoryview(records)[:size]
        if begin < self.log_end_offset:
            with self.disk.spare_files(self.log_segments.active.path):
                rolled = self._begin_inside_batch(view, batches, next_offset, now_ms)
        else:
            if next_offset - self.log_end_offset > MAX_RELATIVE_OFFSET:
                bridge_gap(self, batches[0][1].base_offset, now_ms)
            rolled = self._write(view, batches, next_offset, None, now_ms)
        first_offset = batches[0][1].base_offset
        return AppendInfo(first_offset, next_offset - 1, -1, self.log_start_offset, False, rolled, size)

    @all_or_inconsistent
    def _begin_inside_batch(self, records: Buffer, batches: Batches, next_offset: int, now_ms: int) -> bool:
        """The log's start offset lies inside the first batch; the batch is kept whole."""
        start_offset = self.log_start_offset
        self._restart_at(batches[0][1].base_offset)
        rolled = self._write(records, batches, next_offset, None, now_ms)
        self.advance_log_start(start_offset)
        return rolled

    def assign_epoch(self, epoch: int) -> None:
        """A new leader starts its epoch at the end of the log, with no record in it yet."""
        self.epochs.assign(epoch, self.log_end_offset)

    def _write(
        self, records: Buffer, batches: Batches, next_offset: int, leader_epoch: int | None, now_ms: int
    ) -> bool:
        """One write, then the state that follows from it; whether a segment was rolled before. The batches
        follow each other from the log's end on, in `leader_epoch`; None: offsets and epochs are in the
        headers. What may fail without the disk (opening a file, reading a marker) comes before the write."""
        if self.inconsistent:
            check_consistent(self)
        active = self.log_segments.active
        newest = batches[-1][1].max_timestamp
        rolled = must_roll(active, self.config, len(records), newest, next_offset, now_ms)
        if rolled:
            active = self.roll(now_ms)
        active.ready()
        try:
            markers = transaction_markers(records, batches)
        except CorruptBatchError as e:
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{self.directory}: {e}") from e
        if markers and any(control_type(marker) == CONTROL_ABORT for marker in markers.values()):
            self.unflushed.new_files |= self.aborted.ready(active.base_offset)
        try:
            start = active.append(records)
            offset = self.log_end_offset
            for position, header in batches:
                epoch = leader_epoch
                if epoch is None:
                    offset, epoch = header.base_offset, header.partition_leader_epoch
                size = LOG_OVERHEAD + header.batch_length
                last_offset = offset + header.last_offset_delta
                active.note(start + position, size, last_offset, newest_timestamp(header))
                if epoch != self.epochs.latest:
                    self.epochs.assign(epoch, offset)
                if header.producer_id >= 0:
                    if not header.is_control:
                        self.producers.update(header, offset)
                    elif position in markers:
                        self._update_control(header._replace(base_offset=offset), markers[position])
                offset = last_offset + 1
            self.log_end_offset = self.producers.next_offset = next_offset
        except Exception as error:  # noqa: BLE001
            raise mark_inconsistent(self, error)  # noqa: B904 - it has its cause
        return rolled

    def _update_control(self, header: BatchHeader, marker: Record) -> None:
        aborted = self.producers.update_control(header, marker)
        if aborted is not None:
            self.aborted.add(aborted, self.log_segments.active.base_offset)

    # --- rolling

    def roll(self, now_ms: int) -> LogSegment:
        """Close the active segment and open an empty one at the end of the log. Raises OSError; then nothing
        has changed."""
        base = self.log_end_offset
        active = self.log_segments.active
        if active.base_offset == base and active.size == 0:
            return active
        active.bring_up_indexes()
        self.log_segments.remove_files_at(base)  # left by a truncation
        self._write_producer_snapshot()
        self.unflushed.new_files = True
        try:
            return self.log_segments.roll(base, self.config, now_ms)
        except Exception:
            # The old one may grow beyond `base` now: recovery must not find a segment that begins there.
            self._remove_files_at(base)
            raise

    @all_or_inconsistent
    def _remove_files_at(self, base: int) -> None:
        self.log_segments.remove_files_at(base)

    def maybe_roll(self, now_ms: int) -> bool:
        """Roll a segment that is old enough although nothing is appended to it."""
        active = self.log_segments.active
        if active.size == 0 or active.waited_for_roll_ms(now_ms, now_ms) <= self.config.max_segment_ms:
            return False
        self.roll(now_ms)
        return True

    def _write_producer_snapshot(self) -> None:
        self.discard_truncation()  # it was prepared without this snapshot
        path = files.path_of(self.directory, self.log_end_offset, files.SNAPSHOT)
        checkpoints.write_unsynced(self.disk, path, encode_snapshot(self.producers.states))
        self.unflushed.add_snapshot(path)

    # --- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_offset: int | None = None,
        at_least_one_batch: bool = False,
    ) -> LogSlice:
        """Whole batches from the one that holds `offset`, below `upper_offset` (default: the end).

        The last batch may be cut off by `max_bytes`, the first never: where it does not fit, the slice is
        empty, or with `at_least_one_batch` holds all of it.
        Raises BrokerError(OFFSET_OUT_OF_RANGE).
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in the log's range {self.log_start_offset} to {end}",
            )
        upper = end if upper_offset is None or upper_offset > end else upper_offset
        active = self.log_segments.active
        if offset >= upper:
            return LogSlice(active, None, offset, active.size, 0)
        if offset >= active.base_offset:
            limit = active.size if upper == end else active.locate(upper)
            return active.slice(offset, max_bytes, limit, at_least_one_batch)
        return self.log_segments.read_old(offset, max_bytes, upper, end, at_least_one_batch)

    def search_time(self, timestamp: int | None) -> TimeSearch:
        """For the first record at or after `timestamp` (ms); None: for the one with the greatest."""
        return TimeSearch(self.log_segments.all(), self.log_start_offset, timestamp)

    def offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch known up to `epoch`; (-1, -1) where unknown."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def aborted_in(self, piece: LogSlice) -> tuple[tuple[int, int], ...]:
        """(producer id, first offset) of aborted transactions with records in the slice."""
        if not self.aborted.entries:
            return ()
        return self.aborted.between(piece.offset, self.log_segments.end_offset_of(piece, self.log_end_offset))

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the oldest transaction begins that is open or not yet replicated; the log's start, where the
        transaction's first records are deleted already."""
        first = self.producers.first_unstable_offset(high_watermark)
        if first is None:
            return None
        return max(first, self.log_start_offset)

    # --- truncation (truncation.py: the order of its steps)

    def prepare_truncation(self, offset: int, *, restart: bool = False) -> TruncationWork | None:
        """To drop every batch that reaches `offset`, None where there is none; with `restart` to drop all and
        begin there. Run it in an executor, make a checkpoint with the present recovery point durable, then
        call `truncate_to`."""
        check_consistent(self)
        if offset >= self.log_end_offset and not restart:
            return None
        self.cancel_cleaning()
        kept = self.log_segments.starting_up_to(-1 if restart else offset)
        work = TruncationWork(self.disk, self.directory, offset, kept)
        self.unflushed.lower_recovery_point(0 if restart else work.base_offset)
        self.cleaned_to = min(self.cleaned_to, offset)  # or a new tombstone is removed before what it deletes
        self.prepared_truncation = work
        return work

    def discard_truncation(self, work: TruncationWork | None = None) -> None:
        """What was prepared (`work`, or whatever it is) will not be applied, or is out of date: the recovery
        point may rise."""
        if work is None or self.prepared_truncation is work:
            self.prepared_truncation = None

    def truncate_to(self, work: TruncationWork) -> bool:
        """Apply a prepared truncation; False where it is out of date: nothing is changed. Nor is anything
        where it raises OSError: the process has no file descriptors for it."""
        if self.prepared_truncation is not work or not work.ready:
            return False
        check_consistent(self)
        with self.disk.spare_files(self.log_segments.active.path):
            self._truncate_to(work)
        return True

    @all_or_inconsistent
    def _truncate_to(self, work: TruncationWork) -> None:
        self.unflushed.truncation_is_durable = False
        if work.restarts_empty:
            self._restart_at(work.end)
            return
        self.cancel_cleaning()
        self.unflushed.new_files = True
        self.log_segments.drop_after(work.base_offset)
        self.log_segments.active.truncate_to(work.end, work.position, self.epochs.epoch_at(work.end - 1))
        for path in work.stale_snapshots:
            self.disk.remove(path)
        self._end_at(work.end, work.producers)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything, epochs and producers included; the next record gets `offset`. Nothing is changed
        where it raises OSError: the process has no file descriptors for it."""
        check_consistent(self)
        with self.disk.spare_files(self.log_segments.active.path):
            self._restart_at(offset)

    @all_or_inconsistent
    def _restart_at(self, offset: int) -> None:
        self.cancel_cleaning()
        self.unflushed.new_files = True
        self.log_segments.restart_at(offset, self.config)
        remove_snapshots(self.disk, self.directory, ANY_OFFSET, MAY_REMOVE_SNAPSHOTS)
        self.unflushed.forget_snapshots()
        self.epochs.clear()
        self.aborted.clear()
        self.log_start_offset = offset
        producers = ProducerStateManager()
        producers.reset(offset)
        self._end_at(offset, producers)

    def _end_at(self, offset: int, producers: ProducerStateManager) -> None:
        """The segments end at `offset` now: bring everything else there."""
        self.prepared_truncation = None
        base = self.log_segments.active.base_offset
        self.log_segments.forget_sealed_after_truncation()
        self.unflushed.truncated(base)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.cleaned_to = min(self.cleaned_to, offset)
        self.epochs.truncate_from_end(offset)
        self.aborted.truncate_from_end(offset, base)
        if self.epochs.dirty:  # and it stays so until a flush has made the file durable
            path = f"{self.directory}/{files.LEADER_EPOCHS}"
            checkpoints.write_unsynced(self.disk, path, checkpoints.encode_epochs(self.epochs.entries))
        self.producers = producers

    # --- the old end (retention.py: which segments are dropped; compact_log.py: which are replaced)

    @all_or_inconsistent
    def advance_log_start(self, offset: int) -> bool:
        """Hide records below `offset` from readers; the next sweep deletes their segments. False where the
        log starts there or later already."""
        if offset <= self.log_start_offset:
            return False
        end = self.log_end_offset
        invariant(offset <= end, Invariant.OFFSETS_IN_ORDER, (self.directory, offset, end))
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    def take_deletions(self) -> list[Deletion]:
        """Files of segments that were dropped since the last call, for the owner to remove."""
        return self.log_segments.take_deletions()

    def cancel_cleaning(self) -> None:
        """A segment is about to be truncated or deleted."""
        if self.cleaning is not None:
            self.cleaning.cancel()
            self.cleaning = None

    # --- moving to another directory (replication/replica_moves.py)

    def move_to(self, directory: str) -> None:
        """Rename the directory with all that is in it; not while a flush or a cleaning runs."""
        self.disk.move(directory)
        self.log_segments.moved_to(directory)
        self.aborted.moved_to(directory)
        self.unflushed.moved_to(directory)
        self.directory = directory

    # --- durability (flush.py)

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is durable."""
        return self.unflushed.recovery_point

    @property
    def unflushed_records(self) -> int:
        return self.log_end_offset - self.unflushed.recovery_point

    def prepare_flush(self) -> FlushWork | None:
        """What must be synced so that nothing up to the present end can be lost; None if nothing. Run it in
        an executor, then call `flush_done`."""
        return self.unflushed.prepare(
            self.disk, self.directory, self.log_end_offset, self.log_segments, self.epochs, self.aborted
        )

    def flush_done(self, work: FlushWork) -> None:
        """`work.run(may_block)` has returned: its records are durable, and the truncations before it."""
        self.unflushed.truncation_flushed(work)
        if self.prepared_truncation is None:  # otherwise it would vouch for what is about to be truncated
            self.unflushed.done(work)

    def flush_failed(self, work: FlushWork) -> None:
        """`work.run` has failed for a reason other than the disk: all of it remains to be done."""
        self.unflushed.failed(work, self.epochs)

    def close(self) -> None:
        """Bring the indexes up to date and release the files; nothing is synced."""
        self.log_segments.close()

    def close_clean(self, may_block: MayBlock) -> None:
        """Flush all (blocks), write the producers' state, close: the next start need not recover. (A log that
        is `unidentified` is identified afterwards, when the checkpoints have what they say of it.)"""
        if self.log_end_offset == 0 and self.unflushed.nothing_truncated:
            self.close()  # as it was made
            return
        self.log_segments.active.seal()
        self._write_producer_snapshot()
        work = self.prepare_flush()
        if work is not None:
            work.run(may_block)
            self.flush_done(work)
        self.close()
