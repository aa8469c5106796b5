"""Snapshots of the state machine: on disk, and on their way from the leader to a follower.

A snapshot replaces the log up to (index, term). It is on the device before the journal is
trimmed, so at every moment snapshot and journal together are the whole history. A snapshot that
does not check out stops the voter: leading with an empty state would be worse.

File `snapshot-<index>`, big-endian:

     0  4s   magic "KRS1"
     4  u64  index of the last command in it
    12  u64  term of that command
    20  u32  rolling hash of all commands up to index, and of what came of them
    24  u64  length of the state
    32  u32  CRC-32 of the state
    36  ...  the state, as StateMachine.snapshot gave it
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass, replace
from typing import Final

from metadata_quorum.foundation.blocking import RAFT
from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.raft.messages import MalformedFrame, SnapshotChunk

_HEADER: Final = struct.Struct(">4sQQIQI")
_MAGIC: Final = b"KRS1"
_PREFIX: Final = "snapshot-"
_NAME: Final = re.compile(_PREFIX + "[0-9]{20}")
_TEMPORARY: Final = ".tmp"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state after the command at `index`."""

    index: int
    term: int
    digest: int
    data: bytes
    crc: int

    @staticmethod
    def of(index: int, term: int, digest: int, data: bytes) -> Snapshot:
        return Snapshot(index, term, digest, data, zlib.crc32(data))


class SnapshotStore:
    """The snapshots in a voter's directory; one at rest, two for a moment."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        for name in disk.list(directory, RAFT):
            if name.startswith(_PREFIX) and name.endswith(_TEMPORARY):
                disk.remove(f"{directory}/{name}")  # the process was killed while it wrote

    def save(self, snapshot: Snapshot) -> None:
        """Durable on return."""
        head = _HEADER.pack(
            _MAGIC, snapshot.index, snapshot.term, snapshot.digest, len(snapshot.data), snapshot.crc
        )
        self._disk.write_atomic(self._path(snapshot.index), head + snapshot.data, RAFT)

    def latest(self) -> Snapshot | None:
        """The newest one, None where none was ever taken; `FatalError` if it is damaged."""
        while names := self._names():
            try:
                return self._load(f"{self._directory}/{names[-1]}")
            except FileNotFoundError:
                if names == self._names():
                    raise
                # Read beside the loop: a newer one took its place meanwhile.
        return None

    def prune(self, keep: int) -> None:
        """Remove those older than the one at `keep`."""
        for name in self._names():
            if name < _name(keep):
                self._disk.remove(f"{self._directory}/{name}")

    def _load(self, path: str) -> Snapshot:
        raw = self._disk.read_bytes(path, RAFT)
        if len(raw) >= _HEADER.size:
            magic, index, term, digest, length, crc = _HEADER.unpack_from(raw)
            data = raw[_HEADER.size :]
            if magic == _MAGIC and length == len(data) and crc == zlib.crc32(data):
                return Snapshot(index, term, digest, data, crc)
        raise FatalError(
            ExitCode.QUORUM_DISK_LOST,
            f"the metadata snapshot {path} is damaged. Remove its directory and format this voter again "
            "(kraft storage format) to let it rejoin.",
        )

    def _names(self) -> list[str]:
        return [
            name
            for name in self._disk.list(self._directory, RAFT)
            if _NAME.fullmatch(name)  # whatever else is here is somebody's copy
        ]

    def _path(self, index: int) -> str:
        return f"{self._directory}/{_name(index)}"


def _name(index: int) -> str:
    return f"{_PREFIX}{index:020d}"


@dataclass(slots=True)
class OutgoingSnapshot:
    """The leader's side of one transfer: a chunk, its answer, the next chunk.

    Heartbeats meanwhile are probes, chunks without data. Links keep their order, so the answer to
    a probe that still wants the last chunk's bytes says that the chunk was lost; until then nothing
    is sent twice, however slow the link.
    """

    snapshot: Snapshot
    offset: int = 0
    """Offset of the last chunk sent."""
    seq: int = 0
    """Number of the message that carried that chunk."""

    def chunk(self, term: int, seq: int, max_bytes: int) -> SnapshotChunk:
        """The chunk that the follower needs."""
        self.seq = seq
        return self._message(term, seq, self.snapshot.data[self.offset : self.offset + max_bytes])

    def probe(self, term: int, seq: int) -> SnapshotChunk:
        """An empty chunk, which only asks for the offset."""
        return self._message(term, seq, b"")

    def wants(self, index: int, seq: int, offset: int) -> bool:
        """Take a follower's answer; whether a chunk is to be sent now."""
        progress = offset > self.offset
        lost = seq > self.seq
        if index != self.snapshot.index or not (progress or lost):
            return False
        self.offset = min(offset, len(self.snapshot.data))
        return True

    def _message(self, term: int, seq: int, data: bytes) -> SnapshotChunk:
        s = self.snapshot
        return SnapshotChunk(
            term=term, seq=seq, index=s.index, index_term=s.term, digest=s.digest, crc=s.crc,
            total=len(s.data), offset=self.offset, data=data,
        )  # fmt: skip


class IncomingSnapshot:
    """The follower's side: pieces of one snapshot, taken in order."""

    def __init__(self, first: SnapshotChunk) -> None:
        self._first = replace(first, data=b"")
        self._data = bytearray()

    def is_of(self, chunk: SnapshotChunk) -> bool:
        """Whether the piece belongs to the snapshot that is being put together."""
        return _identity(chunk) == _identity(self._first)

    @property
    def wanted(self) -> int:
        """Offset of the next piece."""
        return len(self._data)

    @property
    def index(self) -> int:
        return self._first.index

    def take(self, chunk: SnapshotChunk) -> bool:
        """Add the piece if it is the next one; whether that completes it."""
        if chunk.offset == len(self._data):
            self._data += chunk.data
        return len(self._data) >= self._first.total

    def put_together(self) -> Snapshot:
        """Of what is complete; takes as long as it is large. Raises `MalformedFrame` where the pieces do
        not give what the leader announced."""
        first, data = self._first, bytes(self._data)
        if len(data) != first.total or zlib.crc32(data) != first.crc:
            raise MalformedFrame(f"snapshot {first.index} arrived damaged")
        return Snapshot(first.index, first.index_term, first.digest, data, first.crc)


def _identity(chunk: SnapshotChunk) -> tuple[int, int, int, int]:
    return (chunk.index, chunk.index_term, chunk.crc, chunk.total)
