"""Which transactions of a log were aborted: what a read_committed consumer needs to skip their records.

Each segment has a `.txnindex` with the transactions whose abort marker lies in it, in order of markers;
most have none, and then there is no file. All of them together are few and are kept in memory.

    .txnindex   { version int16 (0) | producer id int64 | first offset int64 | last offset int64
                | last stable offset int64 }*                                   34 bytes an entry

`last offset` is the marker's; `last stable offset` the LSO when the marker was written, so that a
reader sees where it can stop.

Path of the data: an abort marker -> log -> here; a read_committed fetch -> partition -> log -> here.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

from data_plane.log import files
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk, File

ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """Offsets of its first record and of its marker, and the LSO behind the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def decode(data: bytes) -> list[AbortedTransaction]:
    """The entries of a `.txnindex`; a torn one at the end is left out."""
    whole = len(data) // ENTRY.size * ENTRY.size
    return [AbortedTransaction(*fields) for _, *fields in ENTRY.iter_unpack(data[:whole])]


def encode(entries: Iterable[AbortedTransaction]) -> bytes:
    """Entries as they lie in the file."""
    return b"".join(ENTRY.pack(_VERSION, *entry) for entry in entries)


class AbortedTransactions:
    """See the module. Writes reach the page cache; the log's flush makes them durable."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.entries: list[AbortedTransaction] = []
        self._unsynced: dict[int, File] = {}  # by the segment's base offset

    def moved_to(self, directory: str) -> None:
        """The log's directory has another name."""
        self._directory = directory

    def load(self, bases: Iterable[int], below: int, may_block: MayBlock) -> None:
        """Read the files of the segments at `bases`; markers at or behind `below` are added again by
        the caller, and the files may be torn there."""
        self.entries = []
        for base in bases:
            path = self._path(base)
            if base < below and self._disk.exists(path):
                self.entries += decode(self._disk.read_bytes(path, may_block))
        self.entries = [entry for entry in self.entries if entry.last_offset < below]

    def ready(self, base: int) -> bool:
        """An abort marker is about to be written into the segment at `base`: open what `add` needs. Returns
        whether that has made the file: a missing one says that nothing in its segment was aborted, so its
        name must be durable before the recovery point passes the marker."""
        if base in self._unsynced:
            return False
        path = self._path(base)
        made = not self._disk.exists(path)
        self._unsynced[base] = self._disk.open(path, create=True)
        return made

    def add(self, entry: AbortedTransaction, base: int) -> None:
        """An abort marker was written into the segment at `base`."""
        self.ready(base)
        self._unsynced[base].append((encode([entry]),))
        self.entries.append(entry)

    def replaced(self, base: int, end: int, entries: Iterable[AbortedTransaction]) -> None:
        """Another segment, whose file is written already, covers what lies from `base` up to `end`."""
        first, last = self._index_of(base), self._index_of(end)
        self.entries[first:last] = entries
        for known in [known for known in self._unsynced if base <= known < end]:
            del self._unsynced[known]

    def truncate_from_end(self, offset: int, base: int) -> None:
        """The log ends at `offset`, in the segment at `base`; files of later segments are deleted."""
        for known in [known for known in self._unsynced if known > base]:
            del self._unsynced[known]
        if not self.entries or self.entries[-1].last_offset < offset:
            return
        del self.entries[self._index_of(offset) :]
        kept = self.entries[self._index_of(base) :]
        self._unsynced.pop(base, None)
        if kept:
            file = self._disk.open(self._path(base), create=True)
            file.truncate(0)
            file.append((encode(kept),))
            self._unsynced[base] = file
        else:
            self._disk.remove(self._path(base))

    def clear(self) -> None:
        """All segments are deleted, and their files with them."""
        self.entries.clear()
        self._unsynced.clear()

    def truncate_from_start(self, offset: int) -> None:
        """Segments below `offset` are deleted, and their files with them."""
        del self.entries[: self._index_of(offset)]

    def between(self, start: int, end: int) -> tuple[tuple[int, int], ...]:
        """(producer id, first offset) of those with a record in [start, end)."""
        return tuple((entry.producer_id, entry.first_offset) for entry in self.overlapping(start, end))

    def overlapping(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those with a record in [start, end)."""
        found: list[AbortedTransaction] = []
        for place in range(self._index_of(start), len(self.entries)):  # a slice would copy all that follow
            entry = self.entries[place]
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                break
        return found

    def take_unsynced(self) -> list[File]:
        """Files written since the last call."""
        unsynced = list(self._unsynced.values())
        self._unsynced = {}
        return unsynced

    def _index_of(self, last_offset: int) -> int:
        return bisect_left(self.entries, last_offset, key=lambda entry: entry.last_offset)

    def _path(self, base: int) -> str:
        return files.path_of(self._directory, base, files.TXN_INDEX)
