"""One segment: a run of whole batches in a `.log` file, with its two indexes.

Only the newest segment is appended to. It remembers where its latest batches end, so that a reader
at the end of the log (a follower, a consumer that keeps up) finds its place without the index.

A read yields a slice: which bytes of which file, not the bytes. What the page cache holds is taken
at once; the rest, finding its place included, is read by the owner in an executor.

A segment that is sealed costs next to nothing: it forgets where its batches end, and once it is durable
its file is open only while it is read (a slice keeps its own open). Nor is that of an empty log open before
its first append: most partitions of a large cluster have no records.

The batches of a sealed segment reach up to where the next one begins. Where compaction or a truncation
takes the last of them away, an empty batch of one offset takes its place (`fill_to`): so a reader
that goes batch by batch gets to the end of the log, and a segment's file shows which offsets it covers.

Path of the data: log -> here -> disk on an append; reader -> log -> here -> slice on a fetch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final

from data_plane.log import files
from data_plane.log.config import LogConfig
from data_plane.log.index import NotCachedError, OffsetIndex, TimeIndex
from metadata_quorum.foundation.batch import (
    BATCH_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatchError,
    encode_batch,
    read_header,
)
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk, File
from metadata_quorum.foundation.file_region import FileRegion, ReadLater
from metadata_quorum.foundation.primitives import Buffer

MAX_OFFSET: Final = 2**63 - 1
MAX_RELATIVE_OFFSET: Final = 2**31 - 1  # the indexes keep offsets as int32 from the segment's base

_SCAN_BYTES: Final = 8192
_LATEST_BATCHES: Final = 1024  # ends remembered; half of them are dropped when the list is full
_UNKNOWN_SIZE: Final = 2**31

Read = Callable[[int, int], Buffer | None]


def headers_in(read: Read, start: int, end: int, path: str) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of the batches from `start` (where one begins) to `end`.

    The last one may claim to reach beyond `end`. Raises CorruptBatchError on an impossible length,
    NotCachedError where `read` would have to wait.
    """
    chunk: Buffer = b""
    chunk_start = position = start
    while position + BATCH_OVERHEAD <= end:
        if position - chunk_start + BATCH_OVERHEAD > len(chunk):
            fresh = read(position, min(_SCAN_BYTES, end - position))
            if fresh is None:
                raise NotCachedError
            chunk, chunk_start = fresh, position
            if len(chunk) < BATCH_OVERHEAD:
                return
        header = read_header(chunk, position - chunk_start)
        if header.size < BATCH_OVERHEAD:
            raise CorruptBatchError(
                f"{path}: batch at byte {position} claims a length of {header.batch_length}"
            )
        yield position, header
        position += header.size


def newest_timestamp(header: BatchHeader) -> int:
    """Of the records in a batch. One that compaction has emptied keeps the time of its removed records,
    for its producer's age."""
    return header.max_timestamp if header.record_count else NO_TIMESTAMP


class LogSlice:
    """Bytes of a segment that answer a read; `length` is 0 where there is nothing to read.

    Its place may still be unknown (where finding it would have blocked): then `length` is an upper
    bound, `read_cached` says None, and `read` finds it.

    The bytes are taken later, and where the log was truncated meanwhile they are others: whoever has read
    asks `is_stale`, on the loop, before the bytes go on.
    """

    __slots__ = (
        "_at_least_one", "_limit", "_max_bytes", "_truncations",
        "file", "length", "offset", "position", "segment",
    )  # fmt: skip

    def __init__(
        self, segment: LogSegment, file: File | None, offset: int, position: int, length: int, limit: int = -1
    ) -> None:
        self.segment = segment
        self.file = file  # None only where there is nothing to read
        self.offset = offset  # the requested one: the slice may begin behind it
        self.position = position
        self.length = length
        self._limit = limit  # end of the readable part; only set where the place is unknown
        self._truncations = len(segment.truncations)
        self._at_least_one = False
        self._max_bytes = length

    @classmethod
    def unplaced(
        cls, segment: LogSegment, file: File, offset: int, max_bytes: int, limit: int, at_least_one: bool
    ) -> LogSlice:
        """A slice whose place in the file is to be found by `read`."""
        made = cls(segment, file, offset, -1, min(max_bytes, limit), limit)
        made._at_least_one = at_least_one
        made._max_bytes = max_bytes
        return made

    def is_stale(self) -> bool:
        """Whether its segment was truncated since below where it ends: what was, or will be, read is not what
        was found, but perhaps another leader's records, or a part of one."""
        truncations = self.segment.truncations
        if len(truncations) == self._truncations:
            return False
        end = self.position + self.length if self._limit < 0 else self._limit
        return min(truncations[self._truncations :]) < end

    def end_offset(self) -> int:
        """An offset at or behind the end of what will be read, as near as possible without reading."""
        return self.segment.offset_behind(self.position + self.length) if self.position >= 0 else MAX_OFFSET

    def read(self, may_block: MayBlock) -> Buffer:
        """The bytes. Ends short where the log was truncated since."""
        if self.file is None:
            return b""
        self.place(may_block)
        return self.file.read(self.position, self.length) if self.length else b""

    def place(self, may_block: MayBlock) -> None:
        """Find its place in the file, where that is unknown."""
        if self.position < 0 and self.file is not None:
            segment, read = self.segment, self.file.read
            position = segment.find(self.offset, read)
            self.length = segment.length_at(position, self._max_bytes, self._limit, self._at_least_one, read)
            self.position = position

    def region(self, later: ReadLater, failed: Callable[[Exception], None]) -> FileRegion:
        """The same bytes, to be read piece by piece. Its place must be known."""
        assert self.file is not None, "there is nothing to read"
        assert self.position >= 0, "its place is not known"
        return FileRegion(self.file, self.position, self.length, later, failed, self.is_stale)

    def read_cached(self) -> Buffer | None:
        """The bytes if the page cache holds them all, else None."""
        if not self.length or self.file is None:
            return b""
        if self.position < 0:
            return None
        return self.file.read_cached(self.position, self.length)


class LogSegment:
    """See the module. Offsets are absolute, positions and sizes bytes in the `.log` file."""

    __slots__ = (
        "_batch_ends", "_bytes_since_index_entry", "_disk", "_file", "_first_timestamp",
        "_index_interval_bytes", "_largest_batch", "_max_timestamp", "_offset_ends",
        "_offset_of_max_timestamp", "_suffix",
        "base_offset", "created_ms", "index_full", "offset_index", "path", "size", "time_index",
        "truncations", "txn_index_path",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: LogConfig,
        created_ms: int,
        *,
        suffix: str = "",
        known_empty: bool = False,
    ) -> None:
        """`suffix` ends the names of its files while it is being made (cleaner.py). `known_empty`: its files
        are there, without a byte."""
        self.base_offset = base_offset
        self._suffix = suffix
        self.path = files.path_of(directory, base_offset, files.LOG) + suffix
        self.txn_index_path = files.path_of(directory, base_offset, files.TXN_INDEX) + suffix  # aborted.py
        self._disk = disk
        self._file: File | None = None if known_empty else disk.open(self.path, create=True)
        self.size = 0 if self._file is None else self._file.size()
        self.created_ms = created_ms
        index_bytes = config.segment_index_bytes
        index_path = files.path_of(directory, base_offset, files.OFFSET_INDEX) + suffix
        time_path = files.path_of(directory, base_offset, files.TIME_INDEX) + suffix
        self.offset_index = OffsetIndex(disk, index_path, base_offset, index_bytes)
        self.time_index = TimeIndex(disk, time_path, base_offset, index_bytes)
        self.index_full = False
        self._index_interval_bytes = config.index_interval_bytes
        self._bytes_since_index_entry = 0
        self._max_timestamp: int | None = None  # None: not looked up yet; -1: no record has one
        self._offset_of_max_timestamp = base_offset
        self._first_timestamp: int | None = None
        self._largest_batch = 0 if self.size == 0 else _UNKNOWN_SIZE
        self.truncations: list[int] = []
        """Positions from which on bytes were dropped, one after another: slices may still be read."""
        # next offset and end position of the latest batches; empty where they are not known
        self._offset_ends: list[int] = [base_offset] if self.size == 0 else []
        self._batch_ends: list[int] = [0] if self.size == 0 else []
        if self.size == 0:
            self._max_timestamp = -1
            if not known_empty:
                for index in (self.offset_index, self.time_index):
                    index.open()

    @property
    def file(self) -> File:
        """The log's file; opened for the caller where the segment does not hold it open itself."""
        return self._file or self._disk.open(self.path)

    def hold(self) -> None:
        """Keep the file open: it will be written."""
        self._file = self.file

    def release(self) -> None:
        """Hold the file open no longer: nothing more is written. Present readers keep theirs open."""
        self._file = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Of the log and its three indexes, as they are named now; there may be no transaction index."""
        return self.path, self.offset_index.path, self.time_index.path, self.txn_index_path

    def rename(self, suffix: str) -> None:
        """Give the files another suffix; what has them open keeps reading them.

        The log last: a `.log.swap` implies all of them, wherever a crash comes.
        """
        self.rename_indexes(suffix)
        path = self.path.removesuffix(self._suffix) + suffix
        self._disk.rename(self.path, path)
        self.path, self._suffix = path, suffix

    def rename_indexes(self, suffix: str) -> None:
        """The first part of `rename`, which continues from there."""

        def renamed(path: str) -> str:
            return path.removesuffix(self._suffix).removesuffix(suffix) + suffix

        for path in reversed(self.paths[1:]):
            if path != renamed(path) and self._disk.exists(path):
                self._disk.rename(path, renamed(path))
        self.txn_index_path = renamed(self.txn_index_path)
        for index in (self.offset_index, self.time_index):
            index.path = renamed(index.path)

    def moved_to(self, directory: str) -> None:
        """Its directory has another name."""

        def renamed(path: str) -> str:
            return f"{directory}/{path.rpartition('/')[2]}"

        self.path = renamed(self.path)
        self.txn_index_path = renamed(self.txn_index_path)
        for index in (self.offset_index, self.time_index):
            index.path = renamed(index.path)

    # --- appending

    def ready(self) -> None:
        """Open and look up what an append will need: nothing of it may fail once the bytes are written."""
        if self._file is None:
            self.offset_index.load_last()
            self.time_index.load_last()
            self.hold()
        if self._max_timestamp is None:
            self._max_timestamp = self.max_timestamp

    def append(self, data: Buffer) -> int:
        """Write at the end with one call; returns where. `note` follows for each of its batches."""
        position = self.size
        self.file.append((data,))
        self.size = position + len(data)
        return position

    def fill_to(self, end_offset: int, leader_epoch: int) -> None:
        """Its last batch ends before `end_offset`: let an empty one end there, or as far as the indexes
        reach (a gap that Apache Kafka's cleaner has left may be wider)."""
        end_offset = min(end_offset, self.base_offset + MAX_RELATIVE_OFFSET + 1)
        stand_in = encode_batch(
            (), base_offset=end_offset - 1, last_offset=end_offset - 1, leader_epoch=leader_epoch
        )
        position = self.append(stand_in)
        self.note(position, len(stand_in), end_offset - 1, NO_TIMESTAMP)

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Enter a batch at `position` into the indexes and the memory of latest batches."""
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self._add_index_entry(position, last_offset, max_timestamp)
        elif max_timestamp > self.max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        self._bytes_since_index_entry += size
        if position == 0:
            self._first_timestamp = max_timestamp
        if size > self._largest_batch:
            self._largest_batch = size
        self._offset_ends.append(last_offset + 1)
        self._batch_ends.append(position + size)
        if len(self._offset_ends) > _LATEST_BATCHES:
            del self._offset_ends[: _LATEST_BATCHES // 2]
            del self._batch_ends[: _LATEST_BATCHES // 2]

    def _add_index_entry(self, position: int, last_offset: int, max_timestamp: int) -> None:
        if max_timestamp > self.max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        self.offset_index.append(last_offset, position)
        self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
        self._bytes_since_index_entry = 0
        self.index_full = self.offset_index.is_full() or self.time_index.is_full()

    # --- reading

    def slice(self, offset: int, max_bytes: int, limit: int, at_least_one_batch: bool) -> LogSlice:
        """From the batch that holds `offset` (or the first after it) up to position `limit`."""
        file = self.file
        read = file.read_cached
        try:
            position = self.locate(offset, read, cached_only=True)
            length = self.length_at(position, max_bytes, limit, at_least_one_batch, read)
        except NotCachedError:
            return LogSlice.unplaced(self, file, offset, max_bytes, limit, at_least_one_batch)
        return LogSlice(self, file, offset, position, length)

    def length_at(self, position: int, max_bytes: int, limit: int, at_least_one: bool, read: Read) -> int:
        """How much of [position, limit) a read of `max_bytes` gets. Where the first batch does not fit: all
        of it if `at_least_one`, else nothing."""
        available = limit - position
        if available <= max_bytes:
            return max(available, 0)
        if max_bytes < self._largest_batch:
            header = next(self.headers(position, limit, read), None)
            if header is not None and header[1].size > max_bytes:
                return min(available, header[1].size) if at_least_one else 0
        return max_bytes

    def locate(self, offset: int, read: Read | None = None, *, cached_only: bool = False) -> int:
        """Position of the first batch that ends at or behind `offset`; the size where there is none.

        Only for the thread that owns the log; `find` is the part that others may use.
        """
        i = bisect_right(self._offset_ends, offset)
        if i:
            return self._batch_ends[i - 1]
        return self.find(offset, read, cached_only=cached_only)

    def find(self, offset: int, read: Read | None = None, *, cached_only: bool = False) -> int:
        """As `locate`, by index and scan only. Raises NotCachedError where the index must come from the
        cache and does not, or `read` says so."""
        end = self.size
        start = self.offset_index.lookup(offset, cached_only=cached_only)
        for position, header in self.headers(start, end, read):
            if header.base_offset + header.last_offset_delta >= offset:
                return position
        return end

    def offset_behind(self, position: int) -> int:
        """An offset at or behind the end of the batch that reaches `position`; by index, without reading
        the log. MAX_OFFSET where nothing is cached."""
        i = bisect_left(self._batch_ends, position)
        if self._batch_ends and self._batch_ends[0] <= position:
            return self._offset_ends[min(i, len(self._offset_ends) - 1)]
        try:
            return self.offset_index.offset_behind(position)
        except NotCachedError:
            return MAX_OFFSET

    def headers(self, start: int, end: int, read: Read | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """As `headers_in`, of this segment's file."""
        return headers_in(read or self.file.read, start, end, self.path)

    # --- timestamps

    @property
    def max_timestamp(self) -> int:
        """The greatest timestamp of a record here; -1 where none has one."""
        if self._max_timestamp is None:
            last = self.time_index.load_last()
            self._max_timestamp = last.timestamp if last else -1
            self._offset_of_max_timestamp = self.base_offset + (last.offset if last else 0)
        return self._max_timestamp

    @property
    def is_of_known_age(self) -> bool:
        """Whether `max_timestamp` is known without a look at the file."""
        return self._max_timestamp is not None

    def look_up_age(self, may_block: MayBlock) -> None:
        """What `max_timestamp` and `waited_for_roll_ms` read at the first call. Raises OSError."""
        self.waited_for_roll_ms(0, self.max_timestamp)

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the batch that brought `max_timestamp`."""
        return self._offset_of_max_timestamp if self.max_timestamp >= 0 else self.base_offset

    def waited_for_roll_ms(self, now_ms: int, newest_timestamp: int) -> int:
        """Age of the segment: by its records' timestamps where they have them, else by the clock."""
        if self._first_timestamp is None and self.size:
            first = next(self.headers(0, self.size), None)
            self._first_timestamp = first[1].max_timestamp if first else -1
        if self._first_timestamp is not None and self._first_timestamp >= 0 and newest_timestamp >= 0:
            return newest_timestamp - self._first_timestamp
        return now_ms - self.created_ms

    # --- changing its state

    def load_tail(self) -> int:
        """Find the end of an intact segment from its last index entry on; returns its next offset."""
        last = self.offset_index.load_last()
        self._max_timestamp = None
        next_offset = self.base_offset
        self._bytes_since_index_entry = 0
        for position, header in self.headers(last.position if last else 0, self.size):
            newest = newest_timestamp(header)
            if newest > self.max_timestamp:
                self._max_timestamp = newest
                self._offset_of_max_timestamp = header.last_offset
            if last is None or position > last.position:
                self._bytes_since_index_entry += header.size
            else:
                self._bytes_since_index_entry = header.size
            next_offset = header.next_offset
        self._offset_ends, self._batch_ends = [next_offset], [self.size]
        self.index_full = self.offset_index.is_full() or self.time_index.is_full()
        return next_offset

    def clear_indexes(self) -> None:
        """Before `note` follows again for every batch."""
        self.offset_index.truncate_entries(0)
        self.time_index.truncate_entries(0)
        self._bytes_since_index_entry = 0
        self._max_timestamp, self._offset_of_max_timestamp = -1, self.base_offset
        self._first_timestamp = None
        self._offset_ends, self._batch_ends = [self.base_offset], [0]
        self.index_full = False

    def truncate_file(self, position: int) -> None:
        """Drop the bytes from `position` on (a torn tail, after the whole batches were noted)."""
        self.truncations.append(position)
        self.file.truncate(position)
        self.size = position

    def truncate_to(self, end_offset: int, position: int, leader_epoch: int) -> None:
        """Drop every batch from `position` on; the segment ends at `end_offset` then. `leader_epoch` is that
        of the offset before."""
        self.hold()
        self.truncate_file(position)
        self.offset_index.truncate_to(end_offset)
        self.time_index.truncate_to(end_offset)
        reached = self.load_tail()
        if reached < end_offset:
            self.fill_to(end_offset, leader_epoch)
        self._offset_ends, self._batch_ends = [end_offset], [self.size]
        if position == 0:
            self._first_timestamp = None

    def bring_up_indexes(self) -> None:
        """Give the time index its last entry, and write what the files do not have yet."""
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
        self.write_indexes()

    def seal(self) -> None:
        """No more appends: bring the indexes up to date, and forget where the batches end; readers that are
        still here find it by the index."""
        self.bring_up_indexes()
        self._offset_ends, self._batch_ends = [], []

    def write_indexes(self) -> None:
        """Bring the index files up to date in the page cache."""
        self.offset_index.write_pending()
        self.time_index.write_pending()

    def files_to_sync(self) -> tuple[File, File, File]:
        """With the index files up to date."""
        self.write_indexes()
        return self.file, self.offset_index.open(), self.time_index.open()

    def close(self) -> None:
        self.write_indexes()
        self.release()
