"""The segments of one log: sorted by base offset, gapless, never empty; the last one is the active segment.

Opens, seals, drops and replaces segments. It does not decide when: `UnifiedLog` does. Files of dropped
segments are renamed to `*.deleted` at once and removed later (`take_deletions`), so that open slices can
be read to their end.

Path of the data: log -> here -> segment -> disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sortedcontainers import SortedDict

from data_plane.log import files
from data_plane.log.cleaner import Replacement
from data_plane.log.config import LogConfig
from data_plane.log.deletion import Deletion
from data_plane.log.segment import MAX_RELATIVE_OFFSET, LogSegment, LogSlice
from metadata_quorum.foundation.disk import Disk, File

_HELD_SEGMENTS: Final = 16  # sealed since the last flush, and held open for the next one
OPENED_BY_A_FLUSH: Final = 100
"""Segments. A flush of more of them, as the first one after a lost recovery point may be, syncs the whole
directory: a process may not have so many files open."""


def must_roll(
    active: LogSegment, config: LogConfig, added: int, newest_timestamp: int, next_offset: int, now_ms: int
) -> bool:
    """Whether `added` bytes, after which the log ends at `next_offset`, belong in a new segment.
    Timestamps in ms."""
    if active.size == 0:
        return False
    return (
        active.size + added > config.segment_bytes
        or active.index_full
        or next_offset - 1 - active.base_offset > MAX_RELATIVE_OFFSET
        or active.waited_for_roll_ms(now_ms, newest_timestamp) > config.max_segment_ms
    )


class LogSegments:
    """See the module. The owner marks the directory as changed (flush.py) before it calls what changes it."""

    def __init__(self, disk: Disk, directory: str, by_base: SortedDict[int, LogSegment]) -> None:
        self._disk = disk
        self._directory = directory
        self._by_base = by_base
        self.active: LogSegment = by_base.peekitem(-1)[1]
        self._sealed_since_flush: list[LogSegment] = []
        self._deletions: list[Deletion] = []

    # --- what there is

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._by_base.values())

    @property
    def first_base_offset(self) -> int:
        first: int = self._by_base.peekitem(0)[0]
        return first

    def all(self) -> list[LogSegment]:
        """Oldest first; the last one is active."""
        return list(self._by_base.values())

    def starting_up_to(self, offset: int) -> SortedDict[int, LogSegment]:
        """The segments whose base offset is `offset` or lower."""
        return SortedDict((base, self._by_base[base]) for base in self._by_base.irange(maximum=offset))

    # --- reading

    def read_old(
        self, offset: int, max_bytes: int, upper: int, log_end_offset: int, at_least_one_batch: bool
    ) -> LogSlice:
        """Read from a segment that is not the active one, or from the next where compaction left a gap."""
        first = self._by_base.bisect_right(offset) - 1
        bases = self._by_base.keys()
        for i in range(first, len(bases)):
            segment: LogSegment = self._by_base[bases[i]]
            end = bases[i + 1] if i + 1 < len(bases) else log_end_offset
            limit = segment.size if upper >= end else segment.locate(upper)
            found = segment.slice(offset, max_bytes, limit, at_least_one_batch)
            if found.position < limit or upper <= end:
                break  # there is something, though it may not fit
        return found

    def end_offset_of(self, piece: LogSlice, log_end_offset: int) -> int:
        """An offset at or behind the end of the slice, no farther than the end of its segment (which may
        be a later one than that of the requested offset)."""
        i = self._by_base.bisect_right(max(piece.offset, piece.segment.base_offset))
        end: int = self._by_base.keys()[i] if i < len(self._by_base) else log_end_offset
        return min(piece.end_offset(), end)

    # --- rolling

    def roll(self, base: int, config: LogConfig, now_ms: int) -> LogSegment:
        """Seal the active segment and open an empty one at `base`. Raises OSError; files at `base` may
        exist then, and `remove_files_at` must remove them."""
        sealed = self.active
        opened = LogSegment(self._disk, self._directory, base, config, now_ms)
        sealed.seal()
        self._hold_for_flush(sealed)
        self.active = self._by_base[base] = opened
        return opened

    def remove_files_at(self, base: int) -> None:
        """Remove whatever files a segment at `base` would have."""
        for suffix in files.SEGMENT_SUFFIXES:
            self._disk.remove(files.path_of(self._directory, base, suffix))

    def _hold_for_flush(self, sealed: LogSegment) -> None:
        self._sealed_since_flush.append(sealed)
        if len(self._sealed_since_flush) > _HELD_SEGMENTS:
            self._sealed_since_flush[-_HELD_SEGMENTS - 1].release()

    # --- dropping and replacing

    def drop_after(self, base: int) -> None:
        """Drop the segments behind the one at `base`, which becomes active. Newest first, so that a crash
        leaves no hole."""
        for later in list(self._by_base.irange(minimum=base, inclusive=(False, False), reverse=True)):
            self._drop(later, delay_ms=0)
        self.active = self._by_base.peekitem(-1)[1]

    def restart_at(self, offset: int, config: LogConfig) -> None:
        """Drop all segments and open an empty one at `offset`."""
        for base in list(self._by_base):
            self._drop(base, delay_ms=0)
        created_ms = self.active.created_ms
        self.active = LogSegment(self._disk, self._directory, offset, config, created_ms)
        self._by_base[offset] = self.active

    def drop_oldest(self, count: int, delay_ms: int) -> None:
        """Drop segments from the start of the log; their files go after the delay."""
        for base in list(self._by_base)[:count]:
            self._drop(base, delay_ms)

    def replace(self, replacement: Replacement, delay_ms: int) -> None:
        """Put a cleaned segment in the place of those that it was made from."""
        first, *others = replacement.old
        # The producer snapshot before the first one is valid for the new one, too.
        self._rename_away(first, delay_ms)
        for segment in others:
            self._drop(segment.base_offset, delay_ms)
        self._by_base[first.base_offset] = replacement.new

    def finish_replacing(self, replacements: Sequence[Replacement]) -> None:
        """The old names are durably removed: the new segments get their final names."""
        for replacement in replacements:
            if self._by_base.get(replacement.new.base_offset) is replacement.new:
                replacement.new.rename("")

    def take_deletions(self) -> list[Deletion]:
        """What has been dropped since the last call: the caller removes the files."""
        deletions, self._deletions = self._deletions, []
        return deletions

    def _drop(self, base: int, delay_ms: int) -> None:
        self._rename_away(self._by_base.pop(base), delay_ms)
        snapshot = files.path_of(self._directory, base, files.SNAPSHOT)
        if self._disk.exists(snapshot):
            self._disk.rename(snapshot, snapshot + files.DELETED)
            self._deletions.append(Deletion(self._disk, [snapshot + files.DELETED], delay_ms, 0))

    def _rename_away(self, segment: LogSegment, delay_ms: int) -> None:
        segment.rename(files.DELETED)
        if segment in self._sealed_since_flush:
            self._sealed_since_flush.remove(segment)
        self._deletions.append(Deletion(self._disk, segment.paths, delay_ms, segment.size))

    # --- durability

    def hold_last_sealed_before(self, offset: int) -> None:
        """After an unclean start: the segment that ends at the recovery point `offset` may have been sealed
        after its last flush."""
        behind = self._by_base.bisect_right(offset)
        self._sealed_since_flush = self.all()[max(behind - 2, 0) : behind - 1]

    def forget_sealed_after_truncation(self) -> None:
        """The active segment, and whatever was behind it, is no longer sealed."""
        base = self.active.base_offset
        self._sealed_since_flush = [s for s in self._sealed_since_flush if s.base_offset < base]

    @property
    def has_sealed_since_flush(self) -> bool:
        return bool(self._sealed_since_flush)

    def take_unsynced(self, recovery_point: int) -> list[File] | None:
        """Files that may hold bytes that are not durable; None where they are too many to be opened."""
        first = max(self._by_base.bisect_right(recovery_point) - 1, 0)
        # Sealing writes into the indexes, also of a segment that was durable to its end before.
        segments = dict.fromkeys([*self._sealed_since_flush, *self.all()[first:]])
        unsynced: list[File] | None = None
        if len(segments) > OPENED_BY_A_FLUSH:
            for segment in segments:
                segment.write_indexes()
        else:
            unsynced = [file for segment in segments for file in segment.files_to_sync()]
        for segment in self._sealed_since_flush:
            segment.release()
        self._sealed_since_flush = []
        return unsynced

    # --- the directory

    def moved_to(self, directory: str) -> None:
        """The log's directory has been renamed."""
        for segment in self._by_base.values():
            segment.moved_to(directory)
        self._directory = directory

    def close(self) -> None:
        for segment in self._by_base.values():
            segment.close()
