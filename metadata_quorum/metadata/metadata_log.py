"""`__cluster_metadata-0` on disk: segments of batches, and `.checkpoint` snapshots beside them.

    00000000000000000000.log                     batches from that offset on, Kafka's v2 format
    00000000000000001200-0000000003.checkpoint   everything below offset 1200, written in epoch 3
    partition.metadata                           version and topic id, as every partition has

What is here is derived: apply appends one batch per command, and a restart rewinds to the end of
Raft's snapshot and derives the rest again. So nothing is fsynced on append, and a log that cannot be
rewound simply starts again at the snapshot.

Bounded: a checkpoint rolls the segment, and segments and checkpoints older than the previous
checkpoint are deleted; a follower that is further behind than that fetches the checkpoint.
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, NamedTuple

from metadata_quorum.foundation.batch import BATCH_OVERHEAD, BatchHeader, check_crc, iter_headers, read_header
from metadata_quorum.foundation.blocking import RAFT, MayBlock
from metadata_quorum.foundation.disk import Disk, File, make_dirs_durably
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.invariants import Invariant, invariant
from metadata_quorum.foundation.model import METADATA_TOPIC_ID
from metadata_quorum.foundation.primitives import Buffer
from metadata_quorum.foundation.uuids import uuid_text

SEGMENT_BYTES: Final = 16 << 20
INDEX_INTERVAL_BYTES: Final = 4096
CHECKPOINTS_KEPT: Final = 2

_TEMPORARY: Final = ".tmp"
_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_CHECKPOINT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """A checkpoint: everything below `end_offset`, the last of it written in `epoch`."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A snapshot's file."""

    disk: Disk
    path: str

    def piece(self, position: int, max_bytes: int, may_block: MayBlock) -> tuple[int, bytes]:
        """The file's size, and its bytes from `position` on, for FetchSnapshot; no more of it is read.
        Raises `BrokerError`."""
        try:
            file = self.disk.open(self.path)
        except FileNotFoundError:
            raise BrokerError(ErrorCode.SNAPSHOT_NOT_FOUND, self.path) from None
        try:
            size = file.size()
            if not 0 <= position < max(size, 1):
                raise BrokerError(ErrorCode.POSITION_OUT_OF_RANGE, f"position {position} of {size}")
            return size, file.read(position, min(max_bytes, size - position))
        finally:
            file.close()


class _Segment:
    """One `.log` file, with every few kilobytes' first batch remembered."""

    def __init__(self, file: File, path: str, base_offset: int) -> None:
        self.file = file
        self.path = path
        self.base_offset = base_offset
        self.next_offset = base_offset
        self._offsets: list[int] = []
        self._positions: list[int] = []

    def note(self, position: int, header: BatchHeader) -> None:
        """Note that a batch begins at `position`."""
        if not self._positions or position - self._positions[-1] >= INDEX_INTERVAL_BYTES:
            self._offsets.append(header.base_offset)
            self._positions.append(position)
        self.next_offset = header.next_offset

    def position_before(self, offset: int) -> int:
        """Where to begin looking for `offset`."""
        found = bisect_right(self._offsets, offset) - 1
        return self._positions[found] if found >= 0 else 0


class MetadataLog:
    """The log and its checkpoints in one directory."""

    def __init__(self, disk: Disk, directory: str, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []
        self._epochs: list[tuple[int, int]] = []  # (epoch, its first offset), both increasing
        make_dirs_durably(disk, directory, RAFT)
        for name in disk.list(directory, RAFT):
            if name.endswith(_TEMPORARY):
                disk.remove(self._path(name))  # the process was killed while it wrote
        self._write_partition_metadata()
        self._checkpoints = sorted(
            SnapshotId(int(match[1]), int(match[2]))
            for name in disk.list(directory, RAFT)
            if (match := _CHECKPOINT.fullmatch(name))
        )
        self._written: deque[SnapshotId] = deque()
        """Checkpoints that were written beside the loop since the last look."""
        self._writing = Lock()
        self._newest: SnapshotId | None = None
        """The checkpoint written last."""

    @property
    def start_offset(self) -> int:
        """First offset that can be read."""
        return self._segments[0].base_offset if self._segments else 0

    @property
    def end_offset(self) -> int:
        """Offset of the next record. All below it is committed: it is the high watermark too."""
        return self._segments[-1].next_offset if self._segments else 0

    @property
    def last_epoch(self) -> int:
        """Epoch of the newest batch, -1 where none is known."""
        return self._epochs[-1][0] if self._epochs else -1

    def rewind(self, end_offset: int, epoch: int) -> None:
        """Make `end_offset` the end: keep the whole batches below it, or start empty there.

        `epoch` is that of the record before `end_offset`, used where nothing is kept.
        """
        if self._segments and self.end_offset < end_offset:  # open, and obsolete
            self._begin_at(end_offset, epoch)
            return
        self.close()
        self._segments, self._epochs = [], []
        bases = [
            int(m[1]) for name in self._disk.list(self._directory, RAFT) if (m := _SEGMENT.fullmatch(name))
        ]
        for base in bases:
            if base < end_offset and (not self._segments or base == self.end_offset):
                self._recover(base, end_offset)
            else:
                self._disk.remove(self._path(f"{base:020d}.log"))
        if self.end_offset != end_offset or not self._segments:
            self._begin_at(end_offset, epoch)
        for stale in [c for c in self.checkpoints if c.end_offset > end_offset]:
            self._remove_checkpoint(stale)

    def append(self, batch: Buffer) -> None:
        """Append one batch that continues the log."""
        header = read_header(batch)
        if self._written:
            _ = self.checkpoints
        invariant(
            header.base_offset == self.end_offset,
            Invariant.STATE_MACHINE_SAFETY,
            (header.base_offset, self.end_offset),
        )
        if not self._segments or self._segments[-1].file.size() + len(batch) > self._segment_bytes:
            self._roll()
        segment = self._segments[-1]
        position = segment.file.size()
        segment.file.append([batch])
        segment.note(position, header)
        self._note_epoch(header)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on: at most `max_bytes`, but at least one.

        Empty at the end of the log. Raises `BrokerError`, OFFSET_OUT_OF_RANGE, before its start or beyond
        its end.
        """
        if offset == self.end_offset:
            return b""
        if not self.start_offset <= offset < self.end_offset:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in {self.start_offset}..{self.end_offset}",
            )
        segment = self._segments[bisect_right([s.base_offset for s in self._segments], offset) - 1]
        position = segment.position_before(offset)
        data = segment.file.read(position, max(max_bytes, BATCH_OVERHEAD) + 2 * INDEX_INTERVAL_BYTES)
        start = 0
        while (header := read_header(data, start)).next_offset <= offset:
            start += header.size
            if start + BATCH_OVERHEAD > len(data):
                position, start = position + start, 0
                data = segment.file.read(position, max(max_bytes, BATCH_OVERHEAD))
        if header.size > min(max_bytes, len(data) - start):
            return segment.file.read(position + start, header.size)
        end = start
        for pos, header in iter_headers(data, start):
            if pos + header.size - start > max_bytes:
                break
            end = pos + header.size
        return data[start:end]

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` that the log knows, and the offset after its last record;
        (-1, -1) where it knows none."""
        found = bisect_right([e for e, _ in self._epochs], epoch) - 1
        if found < 0:
            return -1, -1
        last = found + 1 == len(self._epochs)
        return self._epochs[found][0], self.end_offset if last else self._epochs[found + 1][1]

    # -- checkpoints ------------------------------------------------------------

    @property
    def latest_checkpoint(self) -> SnapshotId | None:
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def checkpoints(self) -> Sequence[SnapshotId]:
        """The checkpoints that are kept, oldest first."""
        while self._written:
            self._take_in(self._written.popleft())
        return self._checkpoints

    def write_checkpoint(self, snapshot_id: SnapshotId, data: Buffer) -> None:
        """Keep a snapshot. May be called beside the loop: the log takes it in at its next call.

        One's own and a leader's may come at once from two threads, and be the same one where no command
        between them changed the metadata.
        """
        path = self._path(snapshot_id.file_name)
        with self._writing:
            if snapshot_id == self._newest and self._disk.exists(path):
                return
            self._disk.write_atomic(path, data, RAFT)
            self._newest = snapshot_id
            self._written.append(snapshot_id)

    def _take_in(self, snapshot_id: SnapshotId) -> None:
        """Delete what the newest checkpoint and the one before it replace."""
        if snapshot_id in self._checkpoints:
            return
        self._checkpoints = sorted([*self._checkpoints, snapshot_id])
        if self._segments and self._segments[-1].next_offset > self._segments[-1].base_offset:
            self._roll()
        while len(self._checkpoints) > CHECKPOINTS_KEPT:
            self._remove_checkpoint(self._checkpoints[0])
        if len(self._checkpoints) == CHECKPOINTS_KEPT:
            self._delete_segments_below(self._checkpoints[0].end_offset)

    def checkpoint(self, snapshot_id: SnapshotId) -> Checkpoint:
        """A checkpoint, to be read. Raises `BrokerError`, SNAPSHOT_NOT_FOUND, where it is gone."""
        if snapshot_id not in self.checkpoints:
            raise BrokerError(ErrorCode.SNAPSHOT_NOT_FOUND, snapshot_id.file_name)
        return Checkpoint(self._disk, self._path(snapshot_id.file_name))

    def close(self) -> None:
        for segment in self._segments:
            segment.file.close()

    # -- inside -------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return posixpath.join(self._directory, name)

    def _remove_checkpoint(self, snapshot_id: SnapshotId) -> None:
        self._disk.remove(self._path(snapshot_id.file_name))
        self._checkpoints.remove(snapshot_id)

    def _delete_segments_below(self, offset: int) -> None:
        while len(self._segments) > 1 and self._segments[0].next_offset <= offset:
            segment = self._segments.pop(0)
            segment.file.close()
            self._disk.remove(segment.path)

    def _roll(self) -> None:
        base = self.end_offset
        path = self._path(f"{base:020d}.log")
        self._segments.append(_Segment(self._disk.open(path, create=True), path, base))

    def _begin_at(self, offset: int, epoch: int) -> None:
        for segment in self._segments:
            segment.file.close()
            self._disk.remove(segment.path)
        path = self._path(f"{offset:020d}.log")
        self._disk.remove(path)
        self._segments = [_Segment(self._disk.open(path, create=True), path, offset)]
        self._epochs = [(epoch, offset)] if epoch >= 0 else []

    def _recover(self, base: int, end_offset: int) -> None:
        """Take in the whole batches of a segment that are below `end_offset`; truncate the rest."""
        path = self._path(f"{base:020d}.log")
        segment = _Segment(self._disk.open(path), path, base)
        data = segment.file.read(0, segment.file.size())
        kept = 0
        try:
            for pos, header in iter_headers(data):
                in_order = header.base_offset == segment.next_offset and header.next_offset <= end_offset
                if not in_order or not check_crc(data, pos, header):
                    break
                segment.note(pos, header)
                self._note_epoch(header)
                kept = pos + header.size
        except ValueError:
            pass  # a length that no batch can have: nothing from there on is kept
        segment.file.truncate(kept)
        self._segments.append(segment)

    def _note_epoch(self, header: BatchHeader) -> None:
        epoch = header.partition_leader_epoch
        if epoch > self.last_epoch:
            self._epochs.append((epoch, header.base_offset))

    def _write_partition_metadata(self) -> None:
        path = self._path("partition.metadata")
        if not self._disk.exists(path):
            topic_id = uuid_text(METADATA_TOPIC_ID)
            self._disk.write_atomic(path, f"version: 0\ntopic_id: {topic_id}".encode(), RAFT)
