"""The two sparse indexes of a segment: offset to file position, timestamp to offset.

    .index      { relative offset int32 | position int32 }*          8 bytes an entry
    .timeindex  { timestamp int64 | relative offset int32 }*        12 bytes an entry

Offsets are relative to the segment's base offset. An entry of the offset index names the *last*
offset of a batch and where that batch begins, so the greatest entry <= an offset is where a scan
for it starts. Entries are in order, so both are searched by halving.

Kafka maps these files and fills them to their maximum beforehand. Ours hold exactly their
entries: those not written yet stay in memory (they are derived from the log, and recovery
rebuilds them), and lookups read a few pages with the caller's read function, so that a cold index
answers "not cached" where a mapped one would stall the node in a page fault. A file is open only while
it is read or written: a node of 10,000 replicas would run out of handles otherwise.

Path of the data: segment -> here on an append every `index.interval.bytes`; read when a fetch requests
an offset that is not among the latest.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, Generic, NamedTuple, TypeVar

from metadata_quorum.foundation.disk import Disk, File, is_of_disk
from metadata_quorum.foundation.primitives import Buffer

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")

_PENDING_BYTES: Final = 4096  # entries gathered before they are written to the file
_BLOCK_ENTRIES: Final = 256  # a search that has narrowed to this many reads them at once


class NotCachedError(Exception):
    """A lookup would have to wait for the device; ask again where blocking is allowed."""


class OffsetEntry(NamedTuple):
    offset: int
    position: int


class TimeEntry(NamedTuple):
    timestamp: int
    offset: int


Entry = TypeVar("Entry", OffsetEntry, TimeEntry)


class _Index(Generic[Entry]):
    """What both indexes share: entries of fixed size in order of their first field."""

    layout: struct.Struct

    __slots__ = ("_disk", "_pending", "_written", "base_offset", "last", "max_entries", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.layout.size
        self._disk = disk
        self._pending = bytearray()
        self._written: int | None = None  # entries in the file; None before it is looked at
        self.last: Entry | None = None

    def entry(self, first: int, second: int) -> Entry:
        raise NotImplementedError

    def _append(self, first: int, second: int) -> None:
        self._pending += self.layout.pack(first, second)
        self.last = self.entry(first, second)
        if len(self._pending) >= _PENDING_BYTES:
            try:
                self.write_pending()
            except OSError as error:
                if is_of_disk(error):
                    raise
                # No file can be opened now. The entry stays in memory until the next one, or a flush.

    def __len__(self) -> int:
        return self._entries_in_file() + len(self._pending) // self.layout.size

    def open(self) -> File:
        """The file; it closes when nothing (a running flush) holds it any more. It is made where there is
        none, but not again where it has been removed with its segment. Raises OSError."""
        file = self._disk.open(self.path, create=not self._written)
        if self._written is None:
            self._written = file.size() // self.layout.size
        return file

    def write_pending(self) -> None:
        """Bring the file up to date (in the page cache)."""
        if self._pending:
            file = self.open()
            written = self._entries_in_file()
            file.append((self._pending,))
            self._written = written + len(self._pending) // self.layout.size
            self._pending = bytearray()

    def load_last(self) -> Entry | None:
        """The last entry, read from the file where this process has not written one."""
        if self.last is None and self._entries_in_file():
            self.last = self._read(self._entries_in_file() - 1, 1, self.open().read)[0]
        return self.last

    def search(self, key: int, *, cached_only: bool) -> Entry | None:
        """The last entry whose first field is <= `key` (relative), or None.

        With `cached_only` raises NotCachedError instead of waiting for the device.
        """
        pending = self._pending
        size = self.layout.size
        if pending and self.layout.unpack_from(pending, 0)[0] <= key:
            return _floor(self._decode(pending), key)
        low, high = 0, self._entries_in_file()
        if not high:
            return None
        file = self.open()
        read = file.read_cached if cached_only else file.read
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            data = read(middle * size, size)
            if data is None:
                raise NotCachedError
            if self.layout.unpack_from(data)[0] <= key:
                low = middle
            else:
                high = middle
        return _floor(self._read(low, high - low, read), key)

    def entries(self) -> list[Entry]:
        """All of them, in order."""
        return self._read(0, self._entries_in_file(), self.open().read) + self._decode(self._pending)

    def truncate_to(self, offset: int) -> None:
        """Drop entries that name `offset` or a later one."""
        relative = offset - self.base_offset
        self.truncate_entries(bisect_left(self.entries(), relative, key=lambda e: e.offset))

    def truncate_entries(self, count: int) -> None:
        """Keep the first `count` entries."""
        self.write_pending()
        file = self.open()
        if count * self.layout.size < file.size():  # also where a crash has torn its only entry
            file.truncate(count * self.layout.size)
            self._written = count
            self.last = None
            self.load_last()

    def _entries_in_file(self) -> int:
        if self._written is None:
            self.open()
        assert self._written is not None
        return self._written

    def _read(self, first: int, count: int, read: Callable[[int, int], Buffer | None]) -> list[Entry]:
        if not count:
            return []
        data = read(first * self.layout.size, count * self.layout.size)
        if data is None:
            raise NotCachedError
        return self._decode(data)

    def _decode(self, data: Buffer) -> list[Entry]:
        whole = len(data) // self.layout.size * self.layout.size
        return [self.entry(a, b) for a, b in self.layout.iter_unpack(bytes(data[:whole]))]


def _floor(entries: list[Entry], key: int) -> Entry | None:
    i = bisect_right(entries, key, key=lambda e: e[0])
    return entries[i - 1] if i else None


class OffsetIndex(_Index[OffsetEntry]):
    """Relative offset -> position. Entries handed out are as stored: relative."""

    layout = OFFSET_ENTRY

    __slots__ = ()

    def entry(self, first: int, second: int) -> OffsetEntry:
        return OffsetEntry(first, second)

    def append(self, last_offset: int, position: int) -> None:
        """Note that the batch ending with `last_offset` begins at `position`."""
        self._append(last_offset - self.base_offset, position)

    def is_full(self) -> bool:
        return len(self) >= self.max_entries

    def lookup(self, offset: int, *, cached_only: bool = False) -> int:
        """A position at or before the batch that holds `offset`."""
        found = self.search(offset - self.base_offset, cached_only=cached_only)
        return found.position if found else 0

    def offset_behind(self, position: int) -> int:
        """The (absolute) offset of the first batch with an entry that begins at `position` or later.

        Raises NotCachedError where there is none, or a lookup would have to wait.
        """
        pending = self._decode(self._pending)
        read = self.open().read_cached
        low, high = 0, self._entries_in_file()
        while low < high:
            middle = (low + high) // 2
            if self._read(middle, 1, read)[0].position < position:
                low = middle + 1
            else:
                high = middle
        if low < self._entries_in_file():
            return self.base_offset + self._read(low, 1, read)[0].offset + 1
        i = bisect_left(pending, position, key=lambda e: e.position)
        if i == len(pending):
            raise NotCachedError
        return self.base_offset + pending[i].offset + 1


class TimeIndex(_Index[TimeEntry]):
    """Greatest timestamp so far -> relative offset of the batch that brought it."""

    layout = TIME_ENTRY

    __slots__ = ()

    def entry(self, first: int, second: int) -> TimeEntry:
        return TimeEntry(first, second)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry where `timestamp` exceeds the last one's."""
        last = self.load_last()
        if timestamp > (last.timestamp if last else -1):
            self._append(timestamp, offset - self.base_offset)

    def is_full(self) -> bool:
        return len(self) >= self.max_entries - 1  # the last place is kept for the entry made at the roll

    def lookup(self, timestamp: int) -> int:
        """An offset from which to scan for the first record at or after `timestamp`."""
        found = self.search(timestamp, cached_only=False)
        return self.base_offset + found.offset if found else self.base_offset


def check_order(entries: list[OffsetEntry] | list[TimeEntry]) -> Iterator[str]:
    """What is wrong with the order of an index, one sentence per wrong entry."""
    for before, after in pairwise(entries):
        if after[0] <= before[0]:
            yield f"entry {tuple(after)} does not come after {tuple(before)}"
