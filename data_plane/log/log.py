"""A partition's log: segments by base offset, appended to at the end, read from anywhere.

One thread owns it; nothing here waits, but for reads of files that recovery, truncation and rare
questions need. What may block otherwise comes out as an effect (effects.py).

Offsets: log_start_offset <= (LSO <= high watermark, which the partition keeps) <= log_end_offset.
Files survive the death of the process at once, of the machine up to `recovery_point`.

Way of the data: api/produce or fetcher -> partition -> here -> segment -> disk, and back by slices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from sortedcontainers import SortedDict

from data_plane.log import checkpoints, files, recovery, retention, validation
from data_plane.log.cleaner import DEFAULT_MAP_BYTES, CleanWork, LogToClean, log_to_clean
from data_plane.log.config import LogConfig
from data_plane.log.consistency import all_or_inconsistent, check_consistent, mark_inconsistent
from data_plane.log.cut import CutWork
from data_plane.log.effects import Deletion, FlushWork
from data_plane.log.partition_directory import PartitionDirectory
from data_plane.log.producer_snapshot import encode_snapshot
from data_plane.log.producers import BatchMetadata, ProducerStateManager
from data_plane.log.recovery import LogCorruptError
from data_plane.log.segment import MAX_RELATIVE_OFFSET, LogSegment, LogSlice, newest_timestamp
from data_plane.log.timestamps import TimeSearch
from data_plane.log.validation import CLIENT, AppendOrigin, Batches, ValidatedRecords, Writable
from metadata_quorum.foundation.batch import (
    CONTROL_ABORT,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptBatchError,
    Record,
    control_type,
    decode_batch,
    iter_headers,
    set_offset_and_epoch,
)
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk, File
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.invariants import invariant
from metadata_quorum.foundation.topic_configs import LOG_APPEND_TIME

_NO_MARKERS: Final[Mapping[int, Record]] = {}
_HELD_FILES: Final = 16  # of segments that were sealed since the last flush
CUT: Final = MayBlock("snapshots of producers must not outlive the batches that they tell of, and it is rare")

__all__ = ["AppendInfo", "UnifiedLog", "LogCorruptError", "AppendOrigin"]


class AppendInfo(NamedTuple):
    """What became of an append."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 where the topic keeps the producer's times
    log_start_offset: int
    duplicate: bool = False  # nothing was written; the offsets are those of the first time
    rolled: bool = False  # a segment was closed: flush it soon
    size: int = 0


class UnifiedLog:
    """See the module. `config` may be replaced at any time."""

    def __init__(
        self,
        place: PartitionDirectory,
        directory: str,
        config: LogConfig,
        loaded: recovery.LoadedLog,
        topic_id: UUID | None,
    ) -> None:
        self.disk = place
        self.directory = directory
        self.config = config
        self.topic_id = topic_id
        self.unidentified = False
        self.inconsistent = False  # a change has stopped half-way (consistency.py)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.aborted = loaded.aborted
        self._segments: SortedDict[int, LogSegment] = loaded.segments
        self._active: LogSegment = loaded.segments.peekitem(-1)[1]
        self._deletions: list[Deletion] = []
        self._new_directory = True  # as long as it is not known to be durable
        self._new_files = True  # directory entries that no flush has made durable yet
        self._truncations = 0
        self._pending_snapshots: list[str] = []
        self._cut: CutWork | None = None  # that is to come
        self._cleaning: CleanWork | None = None  # in the executor; its segments are as it found them
        self._unsynced: list[File] = []  # by a flush that could not be done
        self._just_sealed: list[LogSegment] = []  # since the last flush; held open for the next one
        self.cleaned_to = 0
        """Compaction has been over everything below; kept in the log dir's cleaner-offset-checkpoint."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        recovery_point: int,
        log_start_offset: int,
        clean: bool,
        machine_restarted: bool = False,
        now_ms: int,
        topic_id: UUID | None = None,
        may_block: MayBlock,
    ) -> UnifiedLog:
        """Open or create the log in `directory`; `machine_restarted`: the machine has, since it was written,
        so that any page that was not synced may be gone. Raises recovery.LogCorruptError, and
        BrokerError(INCONSISTENT_TOPIC_ID) where the directory belongs to another topic.
        """
        disk = PartitionDirectory(disk, directory)
        disk.make_dirs(directory)
        metadata = f"{directory}/{files.PARTITION_METADATA}"
        stored_id = checkpoints.read_partition_metadata(disk, metadata, may_block)
        if topic_id is not None and stored_id is not None and stored_id != topic_id:
            raise BrokerError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{directory} belongs to topic id {stored_id}, not {topic_id}",
            )
        loaded = recovery.load(
            disk,
            directory,
            config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
            machine_restarted=machine_restarted,
            now_ms=now_ms,
            may_block=may_block,
        )
        log = cls(disk, directory, config, loaded, topic_id or stored_id)
        if not clean:  # the segment that ends at the recovery point may have been sealed since
            behind = loaded.segments.bisect_right(loaded.recovery_point)
            log._just_sealed = log.segments[max(behind - 2, 0) : behind - 1]
        if topic_id is not None and stored_id is None:
            checkpoints.begin_partition_metadata(disk, metadata, topic_id)
        log.unidentified = log.topic_id is not None and not checkpoints.is_known_to_checkpoints(
            disk, metadata, may_block
        )
        # What is identified has a durable name.
        log._new_directory = log.unidentified or stored_id is None
        return log

    def identify(self, may_block: MayBlock) -> None:
        """Write down durably whose log it is; blocks. To be done soon after it was made, once the checkpoints
        tell of it: until then the next start takes nothing from them for it."""
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
        return sum(segment.size for segment in self._segments.values())

    @property
    def segments(self) -> list[LogSegment]:
        """Oldest first; the last one is appended to."""
        return list(self._segments.values())

    # --- appending

    def append_as_leader(
        self,
        records: Writable | ValidatedRecords,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = CLIENT,
    ) -> AppendInfo:
        """Check what is not checked yet, give offsets and epoch in place, write. Raises BrokerError; then
        nothing was written. What has been checked shortly before may have been so under another config."""
        config = self.config
        if isinstance(records, ValidatedRecords):
            records, batches = records
        else:
            records, batches = validation.check(records, config, now_ms, origin)
        if batches[0][1].producer_id >= 0:
            repeated = self._judge_producer(records, batches, origin)
            if repeated is not None:
                return AppendInfo(
                    repeated.first_offset, repeated.last_offset, -1, self.log_start_offset, duplicate=True
                )
        append_time_ms = -1
        if config.message_timestamp_type == LOG_APPEND_TIME:
            batches = validation.stamp(records, batches, now_ms)
            append_time_ms = now_ms
        first_offset = offset = self.log_end_offset
        offsets: list[int] = []
        for position, header in batches:
            set_offset_and_epoch(records, position, offset, leader_epoch)
            offsets.append(offset)
            offset += header.last_offset_delta + 1
        invariant(leader_epoch >= self.epochs.latest, "P8", (self.directory, leader_epoch))
        rolled = self._write(records, batches, offsets, (leader_epoch,) * len(batches), now_ms)
        return AppendInfo(
            first_offset,
            offset - 1,
            append_time_ms,
            self.log_start_offset,
            rolled=rolled,
            size=len(records),
        )

    def append_as_follower(
        self, records: memoryview | bytes | bytearray, *, now_ms: int = -1
    ) -> AppendInfo | None:
        """Append a leader's run of batches as it is, with one write; None where no batch is whole.

        Raises BrokerError(CORRUPT_MESSAGE), or OFFSET_OUT_OF_RANGE where the run does not go on
        at the log's end. A batch that is cut at the end of the run is left for the next fetch.
        """
        batches: Batches = []
        offsets: list[int] = []
        end = 0
        try:
            expected = begin = self._begin_of(records)
            for position, header in iter_headers(records):
                validation.check_from_leader(records, position, header, expected)
                batches.append((position, header))
                offsets.append(header.base_offset)
                expected = header.base_offset + header.last_offset_delta + 1
                end = position + LOG_OVERHEAD + header.batch_length
        except CorruptBatchError as e:
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{self.directory}: {e}") from e
        if not batches:
            return None
        view = records if end == len(records) else memoryview(records)[:end]
        epochs = [header.partition_leader_epoch for _, header in batches]
        if begin < self.log_end_offset:
            rolled = self._begin_inside_batch(view, batches, offsets, epochs, now_ms)
        else:
            rolled = self._write(view, batches, offsets, epochs, now_ms)
        return AppendInfo(offsets[0], expected - 1, -1, self.log_start_offset, rolled=rolled, size=end)

    def _begin_of(self, records: memoryview | bytes | bytearray) -> int:
        """Where a leader's run has to begin. An empty follower starts where its leader does, which may be
        inside a batch (DeleteRecords): then the log begins with the whole batch, and only its start offset
        lies inside.
        """
        end = self.log_end_offset
        first = next(iter_headers(records), None) if self.log_start_offset == end else None
        inside = first is not None and first[1].base_offset < end <= first[1].last_offset
        return first[1].base_offset if first is not None and inside else end

    @all_or_inconsistent
    def _begin_inside_batch(
        self,
        records: memoryview | bytes | bytearray,
        batches: Batches,
        offsets: list[int],
        epochs: Sequence[int],
        now_ms: int,
    ) -> bool:
        start_offset = self.log_start_offset
        self.truncate_fully_and_start_at(offsets[0])
        rolled = self._write(records, batches, offsets, epochs, now_ms)
        self.advance_log_start(start_offset)
        return rolled

    def assign_epoch(self, epoch: int) -> None:
        """A new leader opens its epoch at the end of the log, with no record in it yet."""
        self.epochs.assign(epoch, self.log_end_offset)

    def _judge_producer(
        self, records: Writable, batches: Batches, origin: AppendOrigin
    ) -> BatchMetadata | None:
        """What a client has sent before. Raises BrokerError where it is not its turn."""
        if origin is CLIENT:
            return self.producers.check(batches[0][1])
        for position, header in batches:
            marker = decode_batch(records, position)[0] if header.is_control else None
            self.producers.check_coordinated(header, marker)
        return None

    def _write(
        self,
        records: memoryview | bytes | bytearray,
        batches: Batches,
        offsets: list[int],
        epochs: Sequence[int],
        now_ms: int,
    ) -> bool:
        """One write, then the state that follows from it; whether a segment was rolled before.

        What may fail of itself (a file to open, a marker to read) comes before the write.
        """
        if self.inconsistent:
            check_consistent(self)
        last_header = batches[-1][1]
        next_offset = offsets[-1] + last_header.last_offset_delta + 1
        active = self._active
        rolled = self._must_roll(active, len(records), last_header.max_timestamp, next_offset, now_ms)
        if rolled:
            active = self.roll(now_ms)
        active.ready()
        try:
            markers = self._markers_in(records, batches)
        except CorruptBatchError as e:
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{self.directory}: {e}") from e
        try:
            start = active.append(records)
            for (position, header), offset, epoch in zip(batches, offsets, epochs, strict=True):
                size = LOG_OVERHEAD + header.batch_length
                last_offset = offset + header.last_offset_delta
                active.note(start + position, size, last_offset, newest_timestamp(header))
                if epoch != self.epochs.latest:
                    self.epochs.assign(epoch, offset)
                if header.producer_id >= 0:
                    if not header.is_control:
                        self.producers.update(header, offset)
                    elif position in markers:
                        self._take_marker(header._replace(base_offset=offset), markers[position])
            self.log_end_offset = self.producers.next_offset = next_offset
        except Exception as error:  # noqa: BLE001
            raise mark_inconsistent(self, error)  # noqa: B904 - it has its cause
        return rolled

    def _markers_in(self, records: memoryview | bytes | bytearray, batches: Batches) -> Mapping[int, Record]:
        """Markers of transactions, by the position of their batch. What aborts are noted in is opened."""
        markers: dict[int, Record] | None = None
        for position, header in batches:
            if header.producer_id < 0 or not header.is_control:
                continue
            inside = decode_batch(records, position)
            if inside:  # compaction may have left a control batch empty
                markers = markers or {}
                markers[position] = inside[0]
                if control_type(inside[0]) == CONTROL_ABORT:
                    self.aborted.ready(self._active.base_offset)
        return markers or _NO_MARKERS

    def _take_marker(self, header: BatchHeader, marker: Record) -> None:
        aborted = self.producers.update_control(header, marker)
        if aborted is not None:
            self.aborted.add(aborted, self._active.base_offset)

    # --- rolling

    def _must_roll(
        self, active: LogSegment, added: int, newest_timestamp: int, next_offset: int, now_ms: int
    ) -> bool:
        if active.size == 0:
            return False
        config = self.config
        return (
            active.size + added > config.segment_bytes
            or active.index_full
            or next_offset - 1 - active.base_offset > MAX_RELATIVE_OFFSET
            or active.waited_for_roll_ms(now_ms, newest_timestamp) > config.max_segment_ms
        )

    def roll(self, now_ms: int) -> LogSegment:
        """Close the active segment and begin an empty one at the end of the log. Raises OSError; then nothing
        has changed."""
        base = self.log_end_offset
        if self._active.base_offset == base and self._active.size == 0:
            return self._active
        sealed = self._active
        sealed.bring_up_indexes()
        for suffix in files.SEGMENT_SUFFIXES:  # left by a truncation
            self.disk.remove(files.path_of(self.directory, base, suffix))
        self._write_producer_snapshot()
        self._new_files = True
        try:
            made = LogSegment(self.disk, self.directory, base, self.config, now_ms)
            sealed.seal()
        except Exception:
            # The old one may go on beyond `base` now: a segment that begins there must not be found.
            self._no_segment_at(base)
            raise
        self._just_sealed.append(sealed)
        if len(self._just_sealed) > _HELD_FILES:
            self._just_sealed[-_HELD_FILES - 1].release()
        self._active = self._segments[base] = made
        return made

    @all_or_inconsistent
    def _no_segment_at(self, base: int) -> None:
        for suffix in files.SEGMENT_SUFFIXES:
            self.disk.remove(files.path_of(self.directory, base, suffix))

    def maybe_roll(self, now_ms: int) -> bool:
        """Roll a segment that is old enough although nothing is appended to it."""
        active = self._active
        if active.size == 0 or active.waited_for_roll_ms(now_ms, now_ms) <= self.config.max_segment_ms:
            return False
        self.roll(now_ms)
        return True

    def _write_producer_snapshot(self) -> None:
        self.forgo_cut()  # it does not know of this snapshot
        path = files.path_of(self.directory, self.log_end_offset, files.SNAPSHOT)
        checkpoints.write_unsynced(self.disk, path, encode_snapshot(self.producers.states))
        self._pending_snapshots.append(path)

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

        The last batch may be cut by `max_bytes`, the first never: where it does not fit there is nothing, or
        with `at_least_one_batch` all of it.
        Raises BrokerError(OFFSET_OUT_OF_RANGE).
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in the log's range {self.log_start_offset} to {end}",
            )
        upper = end if upper_offset is None or upper_offset > end else upper_offset
        active = self._active
        if offset >= upper:
            return LogSlice(active, active.file, offset, active.size, 0)
        if offset >= active.base_offset:
            limit = active.size if upper == end else active.locate(upper)
            return active.slice(offset, max_bytes, limit, at_least_one_batch)
        return self._read_old(offset, max_bytes, upper, at_least_one_batch)

    def _read_old(self, offset: int, max_bytes: int, upper: int, at_least_one_batch: bool) -> LogSlice:
        """From a segment that is not the last, or the next one where compaction left a gap."""
        first = self._segments.bisect_right(offset) - 1
        bases = self._segments.keys()
        for i in range(first, len(bases)):
            segment: LogSegment = self._segments[bases[i]]
            end = bases[i + 1] if i + 1 < len(bases) else self.log_end_offset
            limit = segment.size if upper >= end else segment.locate(upper)
            found = segment.slice(offset, max_bytes, limit, at_least_one_batch)
            if found.position < limit or upper <= end:
                break  # there is something, though it may not fit
        return found

    def search_time(self, timestamp: int | None) -> TimeSearch:
        """For the first record at or after `timestamp` (ms); None: for the one with the greatest."""
        return TimeSearch(list(self._segments.values()), self.log_start_offset, timestamp)

    def offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch known up to `epoch`; (-1, -1) where unknown."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def aborted_in(self, piece: LogSlice) -> tuple[tuple[int, int], ...]:
        """(producer id, first offset) of aborted transactions with records in what is read."""
        if not self.aborted.entries:
            return ()
        return self.aborted.between(piece.offset, self._end_of(piece))

    def _end_of(self, piece: LogSlice) -> int:
        """An offset behind the slice, no farther than its segment: which may be a later one than that
        which covers the offset asked for."""
        i = self._segments.bisect_right(max(piece.offset, piece.segment_base))
        end: int = self._segments.keys()[i] if i < len(self._segments) else self.log_end_offset
        return min(piece.end_offset(), end)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the oldest open, or not yet replicated, transaction begins; where the log does, if the
        transaction's first records are gone already."""
        first = self.producers.first_unstable_offset(high_watermark)
        return first if first is None else max(first, self.log_start_offset)

    # --- dropping from the end

    def prepare_cut(self, offset: int) -> CutWork | None:
        """To drop every batch that reaches `offset`; None where there is none. Run it in an executor, let a
        checkpoint become durable that knows the recovery point of now, then `truncate_to` (cut.py)."""
        check_consistent(self)
        if offset >= self.log_end_offset:
            return None
        self._cancel_cleaning()
        left = SortedDict((base, self._segments[base]) for base in self._segments.irange(maximum=offset))
        work = CutWork(self.disk, self.directory, offset, left)
        self.recovery_point = min(self.recovery_point, work.base_offset)
        self.cleaned_to = min(self.cleaned_to, offset)  # or a new tombstone goes before what it deletes
        self._cut = work
        return work

    @property
    def is_to_be_cut(self) -> bool:
        return self._cut is not None

    def forgo_cut(self) -> None:
        """What was prepared is not to be done, or not as it was prepared: the recovery point may rise."""
        self._cut = None

    @all_or_inconsistent
    def truncate_to(self, work: CutWork) -> bool:
        """Drop what `work` was prepared to drop; False where that has been overtaken: nothing is changed."""
        if self._cut is not work or not work.ready:
            return False
        if work.begins_anew:
            self.truncate_fully_and_start_at(work.end)
            return True
        self._cancel_cleaning()
        for base in reversed(list(self._segments.irange(minimum=work.base_offset, inclusive=(False, False)))):
            # The newest first: whoever dies here leaves no hole.
            self._schedule_deletion(self._segments.pop(base), due_ms=0)
        self._active = self._segments.peekitem(-1)[1]
        self._active.truncate_to(work.end, work.position, self.epochs.epoch_at(work.end - 1))
        for path in work.stale_snapshots:
            self.disk.remove(path)
        self._end_at(work.end, work.producers)
        return True

    @all_or_inconsistent
    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the next record is `offset`. Nothing that was known holds any longer: neither
        epochs nor producers, nor a snapshot that no segment takes along."""
        for base in list(self._segments):
            self._schedule_deletion(self._segments.pop(base), due_ms=0)
        recovery.remove_snapshots(self.disk, self.directory, recovery.ANY_OFFSET, CUT)
        self._pending_snapshots.clear()
        self.epochs.clear()
        self.aborted.clear()
        created_ms = self._active.created_ms
        self._active = LogSegment(self.disk, self.directory, offset, self.config, created_ms)
        self._segments[offset] = self._active
        self._new_files = True
        self.log_start_offset = offset
        producers = ProducerStateManager()
        producers.reset(offset)
        self._end_at(offset, producers)

    def _end_at(self, offset: int, producers: ProducerStateManager) -> None:
        self._cut = None
        self._truncations += 1
        self._just_sealed = [s for s in self._just_sealed if s.base_offset < self._active.base_offset]
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        # The cut itself is to be synced, or what it took away comes back: under later segments, in the end.
        self.recovery_point = min(self.recovery_point, self._active.base_offset)
        self._new_files = True
        self.cleaned_to = min(self.cleaned_to, offset)
        self.epochs.truncate_from_end(offset)
        self.aborted.truncate_from_end(offset, self._active.base_offset)
        if self.epochs.dirty:  # and it stays so until a flush has made the file durable
            self._write_epochs()
        self.producers = producers

    def _write_epochs(self) -> None:
        """Without waiting for the device: a flush makes it durable."""
        path = f"{self.directory}/{files.LEADER_EPOCHS}"
        checkpoints.write_unsynced(self.disk, path, checkpoints.encode_epochs(self.epochs.entries))

    # --- dropping from the start

    @all_or_inconsistent
    def advance_log_start(self, offset: int) -> bool:
        """Records below `offset` are gone for readers; their segments go with the next sweep."""
        if offset <= self.log_start_offset:
            return False
        invariant(offset <= self.log_end_offset, "P5", (self.directory, offset, self.log_end_offset))
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    @all_or_inconsistent
    def delete_old_segments(self, now_ms: int, high_watermark: int) -> list[Deletion]:
        """Take segments out by retention and start offset; the effects remove their files later."""
        segments = self.segments
        count = retention.expired(
            segments,
            self.config,
            now_ms=now_ms,
            high_watermark=high_watermark,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
        )
        if count == len(segments):
            self.roll(now_ms)
        due_ms = now_ms + self.config.file_delete_delay_ms
        for segment in segments[:count]:
            del self._segments[segment.base_offset]
            self._schedule_deletion(segment, due_ms)
        if count:
            first: int = self._segments.peekitem(0)[0]
            if self._cut is not None and self._cut.base_offset < first:
                self.forgo_cut()
            self.advance_log_start(first)
            self.aborted.truncate_from_start(first)
        return self.take_deletions()

    def take_deletions(self) -> list[Deletion]:
        """Deletions that a truncation or a sweep has left to the owner."""
        deletions, self._deletions = self._deletions, []
        return deletions

    def _schedule_deletion(self, segment: LogSegment, due_ms: int) -> None:
        """Rename the files away; open slices keep reading theirs."""
        self._set_aside(segment, due_ms)
        snapshot = files.path_of(self.directory, segment.base_offset, files.SNAPSHOT)
        if self.disk.exists(snapshot):
            self.disk.rename(snapshot, snapshot + files.DELETED)
            self._deletions.append(Deletion(self.disk, [snapshot + files.DELETED], due_ms, 0))

    def _set_aside(self, segment: LogSegment, due_ms: int) -> None:
        self._cancel_cleaning()
        segment.rename(files.DELETED)
        if segment in self._just_sealed:
            self._just_sealed.remove(segment)
        self._new_files = True
        self._deletions.append(Deletion(self.disk, segment.paths, due_ms, segment.size))

    # --- compaction (cleaner.py says how it goes)

    def to_clean(self, upper_offset: int, now_ms: int) -> LogToClean:
        """What a compaction could clean below `upper_offset`, the last stable offset."""
        return log_to_clean(self.segments, self.cleaned_to, upper_offset, self.config, now_ms)

    def plan_cleaning(
        self, to_clean: LogToClean, now_ms: int, max_map_bytes: int = DEFAULT_MAP_BYTES
    ) -> CleanWork:
        """The work for an executor; then `replace`, `sync_dir` in the executor, `finish_replacing`."""
        self._cleaning = CleanWork(
            self.disk,
            self.directory,
            self.config,
            to_clean,
            now_ms,
            frozenset(self.producers.states),
            tuple(self.aborted.entries),
            max_map_bytes,
        )
        return self._cleaning

    def _cancel_cleaning(self) -> None:
        """A segment is about to be cut or deleted."""
        if self._cleaning is not None:
            self._cleaning.cancel()
            self._cleaning = None

    @all_or_inconsistent
    def replace(self, work: CleanWork, now_ms: int) -> bool:
        """Put the cleaned segments in the place of the old ones; False where those are no longer there
        (truncated, deleted): then nothing is changed."""
        if self._cleaning is not work or work.cancelled:
            return False
        self._cleaning = None
        self.forgo_cut()  # its segments and positions are no longer these
        work.replacing = True
        due_ms = now_ms + self.config.file_delete_delay_ms
        for replacement in work.replacements:
            first, *others = replacement.old
            self._set_aside(first, due_ms)  # the state of producers before it holds for the new one too
            for segment in others:
                del self._segments[segment.base_offset]
                self._schedule_deletion(segment, due_ms)
            self._segments[first.base_offset] = replacement.new
            self.aborted.replaced(first.base_offset, replacement.end, replacement.aborted)
        recovery.remove_snapshots(self.disk, self.directory, range(work.last_removed + 1), CUT)
        self.cleaned_to = work.cleaned_to
        return True

    @all_or_inconsistent
    def finish_replacing(self, work: CleanWork) -> None:
        """The old names are durably gone: the new segments get theirs."""
        for replacement in work.replacements:
            if self._segments.get(replacement.new.base_offset) is replacement.new:
                replacement.new.rename("")
        self._new_files = True

    # --- moving to another directory (replication/replica_moves.py)

    def take_state(self, other: UnifiedLog) -> None:
        """What `other`, of which this is a copy, knows beyond its batches: producers whose records are
        gone already, an epoch without records."""
        invariant(self.log_end_offset == other.log_end_offset, "P7", (self.directory, other.directory))
        self.config = other.config
        self.producers = other.producers
        self.epochs = other.epochs
        self.epochs.dirty = True

    def set_aside(self, directory: str) -> None:
        """Another log may take the directory's name now. What is still done to this one in the executor goes
        to the directory under its new name."""
        self.disk.move(directory)

    def move_to(self, directory: str) -> None:
        """Rename the directory with all that is in it; not while a flush or a cleaning runs."""
        self.disk.move(directory)
        for segment in self._segments.values():
            segment.moved_to(directory)
        self.aborted.moved_to(directory)
        self._pending_snapshots = [f"{directory}/{p.rpartition('/')[2]}" for p in self._pending_snapshots]
        self.directory = directory
        self._new_files = True

    # --- making it durable

    @property
    def unflushed_records(self) -> int:
        return self.log_end_offset - self.recovery_point

    def prepare_flush(self) -> FlushWork | None:
        """What must be synced so that nothing up to the present end can be lost; None if nothing.

        Run it in an executor, then tell `flush_done`.
        """
        behind = self.recovery_point < self.log_end_offset or self.epochs.dirty
        new = self._new_files or self._new_directory
        left = new or self._pending_snapshots or self._just_sealed or self._unsynced
        if not (behind or left):
            return None
        first = max(self._segments.bisect_right(self.recovery_point) - 1, 0)
        # Sealing wrote into the indexes: also of one that was durable up to its end before.
        segments = dict.fromkeys([*self._just_sealed, *self.segments[first:]])
        unsynced = [f for segment in segments for f in segment.files_to_sync()]
        unsynced += self._unsynced
        for segment in self._just_sealed:
            segment.release()
        self._just_sealed = []
        unsynced += self.aborted.take_unsynced()
        epochs = checkpoints.encode_epochs(self.epochs.entries) if self.epochs.dirty else None
        work = FlushWork(
            self.disk,
            self.directory,
            self.log_end_offset,
            unsynced,
            self._pending_snapshots,
            f"{self.directory}/{files.LEADER_EPOCHS}",
            epochs,
            self._new_files,
            self._new_directory,
            self._truncations,
        )
        self._pending_snapshots = []
        self._unsynced = []
        self.epochs.dirty = False
        self._new_files = self._new_directory = False
        return work

    def flush_done(self, work: FlushWork) -> None:
        """`work.run(may_block)` has returned: its records are durable."""
        if self._cut is not None:
            return  # it vouches for what is going to be cut
        if work.generation == self._truncations and work.offset > self.recovery_point:
            self.recovery_point = work.offset

    def flush_failed(self, work: FlushWork) -> None:
        """`work.run` has met what is not the disk's fault: all of it is still to be done."""
        self._unsynced += work.files
        self._pending_snapshots = [*work.snapshots, *self._pending_snapshots]
        self.epochs.dirty |= work.epochs is not None
        self._new_files |= work.new_files
        self._new_directory |= work.new_directory

    # --- ending

    def close(self) -> None:
        """Bring the indexes up to date and release the files; nothing is synced."""
        for segment in self._segments.values():
            segment.close()

    def close_clean(self, may_block: MayBlock) -> None:
        """Flush all (blocks), write the producers' state, close: the next start need not recover."""
        self.identify(may_block)
        self._active.seal()
        self._write_producer_snapshot()
        work = self.prepare_flush()
        if work is not None:
            work.run(may_block)
            self.flush_done(work)
        self.close()
