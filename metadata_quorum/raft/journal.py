"""The voter's durable state in one append-only file: log entries, term and vote, commit index.

PySyncObj calls it as its journal; `voter.py` calls `sync` before any message leaves that depends
on what was written. One file in one order means that power loss can only take a tail off: a
vote never survives without the log it was given for, a commit index never without its entries.

The file is a row of frames, one per `sync` (big-endian):

     0  4s   magic "KRJ1"
     4  u32  CRC-32 of everything behind it, to the end of the frame
     8  u32  length of the body
    12  u64  position of this frame in the file
    20  u64  durable: how many bytes of the file were known to be on the device before this frame
    28  ...  body: records, each a kind byte and its fields

A frame that does not check out is the torn tail of a power loss, and is truncated, unless a later
frame proves that those bytes had been durable: then the device lost data, and the voter refuses to
start rather than forget a vote or an acknowledged entry.

What is read at the start may be no more than the page cache of a process that was killed before its
fsync, or whose fsync failed: the kernel then shows bytes that the device does not have, and calls their
pages clean. So opening writes the whole journal into a new file, before anything in it counts.

The log's first element stands in for everything that the snapshot covers (`base_index`,
`base_term`); it is never applied and never sent. Trimming writes a whole new file and renames it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, overload
from uuid import UUID

from metadata_quorum.foundation.blocking import RAFT
from metadata_quorum.foundation.disk import Disk, File
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.invariants import Invariant, invariant
from metadata_quorum.raft.messages import EntryKind, LogEntry

FILE_NAME: Final = "journal"
NOBODY: Final = -1

_MAGIC: Final = b"KRJ1"
_FRAME: Final = struct.Struct(">4sIIQQ")
_CRC_STARTS: Final = 8

_BASE: Final = 1  # u64 index, u64 term          everything up to here is in the snapshot
_TERM: Final = 2  # u64 term, i32 voted for      (-1: nobody)
_ENTRY: Final = 3  # u64 index, u64 term, u32 length, command
_TRUNCATE: Final = 4  # u64 index                 entries from here on are gone
_COMMIT: Final = 5  # u64 index
_ADMITTED: Final = 6  # u16 count, then per peer i32 voter, 16s incarnation (see admission.py)

_BASE_FIELDS: Final = struct.Struct(">BQQ")
_TERM_FIELDS: Final = struct.Struct(">BQi")
_ENTRY_FIELDS: Final = struct.Struct(">BQQI")
_INDEX_FIELDS: Final = struct.Struct(">BQ")
_ADMITTED_FIELDS: Final = struct.Struct(">BH")
_PEER_FIELDS: Final = struct.Struct(">i16s")

GENESIS: Final[LogEntry] = (bytes([EntryKind.NO_OP]), 1, 0)
"""PySyncObj's first entry, the same in every log."""


class RaftJournal:
    """The log as a list of entries, and the file behind it."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """Opens and recovers. `FatalError` where the file is missing or damaged."""
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._entries: list[LogEntry] = [GENESIS]
        self._term = 0
        self._voted_for = NOBODY
        self._commit = GENESIS[1]
        self._admitted: Mapping[int, UUID] | None = None
        self._pending: list[bytes] = []
        self._urgent = False
        """Whether something pending must be on the device before the next message leaves. A commit
        index alone need not: it is written with the next entry, and other voters send it again."""
        self._durable_index = 0
        if not disk.exists(self._path):
            raise FatalError(
                ExitCode.QUORUM_DISK_LOST,
                f"{self._path} is missing although this voter was formatted: its part of the metadata "
                f"log is lost. Remove {directory} and format it again (kraft storage format) to let it "
                "rejoin.",
            )
        self.read_to = self.read_on(disk.read_bytes(self._path, RAFT), 0)
        """Where the last whole frame ended in the file as it was found."""
        self._file: File = disk.open(self._path)
        self._durable_bytes: int
        self._rewrite(self._entries, self._commit)

    @staticmethod
    def create(disk: Disk, directory: str, *, admitted: bool) -> None:
        """Write the journal of a voter that knows nothing yet."""
        body = _INDEX_FIELDS.pack(_COMMIT, GENESIS[1])
        if admitted:
            body += _pack_admitted({})
        disk.write_atomic(f"{directory}/{FILE_NAME}", _pack_frame(body, position=0, durable=0), RAFT)

    # -- what PySyncObj calls -------------------------------------------------------------

    def add(self, command: bytes, index: int, term: int) -> None:
        """Append one entry."""
        invariant(index == self.last_index + 1, Invariant.RAFT_LOG_DENSE, (index, self.last_index))
        self._entries.append((command, index, term))
        self._note(_ENTRY_FIELDS.pack(_ENTRY, index, term, len(command)) + command)

    @overload
    def __getitem__(self, item: int) -> LogEntry: ...
    @overload
    def __getitem__(self, item: slice) -> list[LogEntry]: ...
    def __getitem__(self, item: int | slice) -> LogEntry | list[LogEntry]:
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    def setRaftCommitIndex(self, index: int) -> None:
        """Note a commit. What is committed is on the device first."""
        if index == self._commit:
            return
        invariant(
            index > self._commit,
            Invariant.TERM_AND_COMMIT_MONOTONIC,
            ("commit goes back", self._commit, index),
        )
        self.sync()
        invariant(
            index <= self._durable_index,
            Invariant.DURABLE_BEFORE_COUNTED,
            ("commit", index, "durable", self._durable_index),
        )
        self._commit = index
        self._pending.append(_INDEX_FIELDS.pack(_COMMIT, index))

    def getRaftCommitIndex(self) -> int:
        return self._commit

    def setCurrentTerm(self, term: int, voted_for: int | None) -> None:
        """Note term and vote; `sync` makes them durable before any message depends on them."""
        vote = NOBODY if voted_for is None else voted_for
        invariant(
            term >= self._term, Invariant.TERM_AND_COMMIT_MONOTONIC, ("term goes back", self._term, term)
        )
        invariant(
            term > self._term or self._voted_for in (NOBODY, vote),
            Invariant.TERM_AND_COMMIT_MONOTONIC,
            ("vote changes within term", term, self._voted_for, vote),
        )
        self._term, self._voted_for = term, vote
        self._note(_TERM_FIELDS.pack(_TERM, term, vote))

    def getCurrentTerm(self) -> int:
        return self._term

    def getVotedForNodeId(self) -> int | None:
        return None if self._voted_for == NOBODY else self._voted_for

    def onOneSecondTimer(self) -> None:
        """PySyncObj flushes its metadata here; ours is durable before it matters."""

    def _destroy(self) -> None:
        self.close()

    # -- what the voter calls -------------------------------------------------------------

    @property
    def base_index(self) -> int:
        return self._entries[0][1]

    @property
    def last_index(self) -> int:
        return self._entries[-1][1]

    @property
    def last_term(self) -> int:
        return self._entries[-1][2]

    @property
    def durable_index(self) -> int:
        """Entries up to here are on the device."""
        return self._durable_index

    @property
    def admitted(self) -> Mapping[int, UUID] | None:
        """None while this voter is mute; else the incarnations it started the quorum with."""
        return self._admitted

    def term_at(self, index: int) -> int | None:
        """The term of the entry at `index` (or of the snapshot's last); None outside the log."""
        position = index - self._entries[0][1]
        return self._entries[position][2] if 0 <= position < len(self._entries) else None

    def entries_from(self, index: int, max_bytes: int, max_count: int) -> tuple[LogEntry, ...]:
        """Entries from `index` on, one at least, as many as fit."""
        taken: list[LogEntry] = []
        size = 0
        start = index - self._entries[0][1]
        for position in range(start, min(len(self._entries), start + max_count)):
            entry = self._entries[position]
            size += len(entry[0])
            if taken and size > max_bytes:
                break
            taken.append(entry)
        return tuple(taken)

    def truncate_from(self, index: int) -> None:
        """Drop the entries from `index` on: they conflict with the leader's."""
        invariant(
            index > self._commit,
            Invariant.TERM_AND_COMMIT_MONOTONIC,
            ("truncation at", index, "commit", self._commit),
        )
        del self._entries[index - self.base_index :]
        self._durable_index = min(self._durable_index, self.last_index)
        self._note(_INDEX_FIELDS.pack(_TRUNCATE, index))

    def admit(self, peers: Mapping[int, UUID]) -> None:
        """Write down that this voter counts."""
        self._admitted = dict(peers)
        self._note(_pack_admitted(self._admitted))

    def close(self) -> None:
        self._file.close()

    def sync(self) -> None:
        """Put everything that was noted so far on the device, with one write and one fsync."""
        if not self._urgent:
            return
        body = b"".join(self._pending)
        frame = _pack_frame(body, position=self._file.size(), durable=self._durable_bytes)
        self._file.append([frame])
        self._file.sync(RAFT)
        self._forget_pending()
        self._durable_bytes = self._file.size()
        self._durable_index = self.last_index

    def trim_to(self, index: int, term: int) -> None:
        """A durable snapshot covers everything up to `index`: keep what follows it, if the log
        really goes through (index, term), else nothing. Raises OSError; then nothing has changed."""
        if self.term_at(index) == term:
            kept = self._entries[index - self.base_index + 1 :]
        else:
            invariant(
                index > self._commit,
                Invariant.TERM_AND_COMMIT_MONOTONIC,
                ("snapshot conflicts below commit", index, self._commit),
            )
            kept = []
        self._rewrite([(GENESIS[0], index, term), *kept], max(self._commit, index))

    def _rewrite(self, entries: list[LogEntry], commit: int) -> None:
        """All that is known, into a new file, durable on return. Raises OSError; then nothing has changed."""
        parts = [
            _BASE_FIELDS.pack(_BASE, entries[0][1], entries[0][2]),
            _TERM_FIELDS.pack(_TERM, self._term, self._voted_for),
        ]
        if self._admitted is not None:
            parts.append(_pack_admitted(self._admitted))
        for command, index, term in entries[1:]:
            parts.append(_ENTRY_FIELDS.pack(_ENTRY, index, term, len(command)) + command)
        parts.append(_INDEX_FIELDS.pack(_COMMIT, commit))
        directory, _, _ = self._path.rpartition("/")
        temporary = self._path + ".tmp"
        self._disk.remove(temporary)
        file = self._disk.open(temporary, create=True)
        file.append([_pack_frame(b"".join(parts), position=0, durable=0)])
        file.sync(RAFT)
        self._disk.rename(temporary, self._path)
        self._file.close()  # and its handle is free for the directory's
        self._file, self._entries, self._commit = file, entries, commit
        try:
            self._disk.sync_dir(directory, RAFT)
        except OSError as e:  # whatever it is: what is written from now on would hang in the air
            raise FatalError(ExitCode.DISK_FAILED, f"{directory} cannot be made durable: {e}") from e
        self._forget_pending()
        self._durable_bytes = self._file.size()
        self._durable_index = self.last_index

    def _note(self, record: bytes) -> None:
        self._pending.append(record)
        self._urgent = True

    def _forget_pending(self) -> None:
        self._pending.clear()
        self._urgent = False

    # -- recovery ------------------------------------------------------------------------------

    def read_on(self, data: bytes, position: int) -> int:
        """Take in the frames of the file from there on; where the last whole one ends. Also for who looks on
        from outside, at a file that has only grown. Raises FatalError where it is damaged."""
        for body, end in _frames(data, position):
            for record in _records(body, self._path):
                self._replay(record)
            position = end
        if position < len(data):
            self._judge_tail(data, position)
        if position == 0:
            raise self._damaged(0)
        self._term = max(self._term, self.last_term)
        if self._commit > self.last_index:
            raise self._damaged(position)
        return position

    def _judge_tail(self, data: bytes, bad: int) -> None:
        """Returns if what starts at `bad` is a torn tail; raises if it had been durable once."""
        at = data.find(_MAGIC, bad + 1)
        while at != -1:
            if _frame_body(data, at) is not None and _FRAME.unpack_from(data, at)[4] > bad:
                raise self._damaged(bad)
            at = data.find(_MAGIC, at + 1)

    def _replay(self, record: tuple[int, tuple[int, ...], bytes]) -> None:
        kind, fields, payload = record
        if kind == _BASE:
            self._entries = [(GENESIS[0], fields[0], fields[1])]
        elif kind == _TERM:
            self._term, self._voted_for = fields
        elif kind == _ENTRY:
            if fields[0] != self.last_index + 1:
                raise self._damaged(fields[0])
            self._entries.append((payload, fields[0], fields[1]))
        elif kind == _TRUNCATE:
            del self._entries[fields[0] - self.base_index :]
        elif kind == _COMMIT:
            self._commit = fields[0]
        else:
            peers = _PEER_FIELDS.iter_unpack(payload)
            self._admitted = {peer: UUID(bytes=incarnation) for peer, incarnation in peers}

    def _damaged(self, position: int) -> FatalError:
        return FatalError(
            ExitCode.QUORUM_DISK_LOST,
            f"{self._path} is damaged at {position} in a part that had been written safely: this voter "
            "may have forgotten votes or entries. Remove its directory and format it again (kraft storage "
            "format) to let it rejoin.",
        )


def has_taken_part(disk: Disk, directory: str) -> bool:
    """Whether that voter has been in an election. For who looks on from outside, and changes nothing. Raises
    OSError."""
    path = f"{directory}/{FILE_NAME}"
    frames = _frames(disk.read_bytes(path, RAFT), 0)
    records = (record for body, _ in frames for record in _records(body, path))
    return any(kind == _TERM and fields[0] > 0 for kind, fields, _ in records)


def _pack_admitted(peers: Mapping[int, UUID]) -> bytes:
    listed = b"".join(_PEER_FIELDS.pack(peer, peers[peer].bytes) for peer in sorted(peers))
    return _ADMITTED_FIELDS.pack(_ADMITTED, len(peers)) + listed


def _pack_frame(body: bytes, *, position: int, durable: int) -> bytes:
    head = _FRAME.pack(_MAGIC, 0, len(body), position, durable)
    crc = zlib.crc32(body, zlib.crc32(head[_CRC_STARTS:]))
    return _FRAME.pack(_MAGIC, crc, len(body), position, durable) + body


def _frame_body(data: bytes, at: int) -> bytes | None:
    """The body of the frame at `at`, None if there is no whole one."""
    if at + _FRAME.size > len(data):
        return None
    magic, crc, length, position, _ = _FRAME.unpack_from(data, at)
    end = at + _FRAME.size + length
    if magic != _MAGIC or position != at or end > len(data):
        return None
    if zlib.crc32(memoryview(data)[at + _CRC_STARTS : end]) != crc:
        return None
    return data[at + _FRAME.size : end]


def _frames(data: bytes, at: int) -> Iterator[tuple[bytes, int]]:
    """The body of each frame from there on, and where it ends, before the first that is not whole."""
    while (body := _frame_body(data, at)) is not None:
        at += _FRAME.size + len(body)
        yield body, at


def _records(body: bytes, path: str) -> Iterator[tuple[int, tuple[int, ...], bytes]]:
    """(kind, fields, payload) of each record in a frame whose CRC is right."""
    at = 0
    while at < len(body):
        kind = body[at]
        payload = b""
        if kind == _ENTRY:
            _, *fields, length = _ENTRY_FIELDS.unpack_from(body, at)
            at += _ENTRY_FIELDS.size
            payload = body[at : at + length]
            at += length
        elif kind == _ADMITTED:
            _, count = _ADMITTED_FIELDS.unpack_from(body, at)
            fields = []
            at += _ADMITTED_FIELDS.size
            payload = body[at : at + count * _PEER_FIELDS.size]
            at += len(payload)
        else:
            layout = {_BASE: _BASE_FIELDS, _TERM: _TERM_FIELDS}.get(kind, _INDEX_FIELDS)
            if kind > _ADMITTED:
                raise FatalError(ExitCode.LOG_DIR_UNUSABLE, f"{path} was written by a newer version of kraft")
            _, *fields = layout.unpack_from(body, at)
            at += layout.size
        yield kind, tuple(fields), payload
