"""The messages between voters, and their bytes. Nothing from the network is ever unpickled.

    voter.py -> encode() -> RaftLink -> (controller listener of the peer) -> decode() -> voter.py

Every frame starts with the same header (big-endian throughout):

     0  u8   version of this format
     1  u8   message type
     2  16s  incarnation of the sender (a voter whose disk was lost comes back as another one)
    18  u64  term
    26  ...  fields of the message

`decode` takes bytes from a peer: whatever is short, long, or out of bounds is a `MalformedFrame`
(a `ValueError`), upon which the caller closes that connection.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, NamedTuple
from uuid import UUID

from metadata_quorum.foundation.primitives import uuid_of

VERSION: Final = 1
_HEADER: Final = struct.Struct(">BB16sQ")
_ENTRY: Final = struct.Struct(">QI")  # term, length of the command; the index follows from `prev_index`
MAX_ENTRIES: Final = 65_536

LogEntry = tuple[bytes, int, int]
"""(command, index, term), as PySyncObj keeps them; the command's first byte is its `EntryKind`."""


class EntryKind(IntEnum):
    """First byte of a log entry. 0 and 1 are PySyncObj's; 2 and 3 (its membership and code-version
    commands) are not used here: voters are static."""

    COMMAND = 0
    NO_OP = 1
    NONCE = 16
    """Proof for a voter that lost its disk; see admission.py."""


_KINDS: Final = frozenset(int(kind) for kind in EntryKind)


class Ack(IntEnum):
    """A follower's answer to an append."""

    MATCHED = 0
    """Everything below `next_index` is durable here and equals the leader's log."""
    REWIND = 1
    """`prev_index` is missing or conflicts here; try again from `next_index`."""
    STALE = 2
    """The message came from an older term than the header's; step down."""
    BUSY = 3
    """A snapshot is being taken in: alive, but its log cannot be compared."""


@dataclass(frozen=True, slots=True)
class PreVoteRequest:
    """Would you vote for me in `term` (one above my own), if I asked? Changes nothing at either end."""

    CODE: ClassVar[int] = 1
    FIELDS: ClassVar[struct.Struct] = struct.Struct(">QQQ")
    term: int
    round: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class PreVoteReply:
    """`term` is the answering voter's own."""

    CODE: ClassVar[int] = 2
    FIELDS: ClassVar[struct.Struct] = struct.Struct(">Q?")
    term: int
    round: int
    granted: bool


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Vote for me in `term`."""

    CODE: ClassVar[int] = 3
    FIELDS: ClassVar[struct.Struct] = struct.Struct(">QQ")
    term: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class VoteReply:
    """My vote in `term` is yours. Refusals are not sent."""

    CODE: ClassVar[int] = 4
    FIELDS: ClassVar[struct.Struct] = struct.Struct("")
    term: int


@dataclass(frozen=True, slots=True)
class Append:
    """Entries after (prev_index, prev_term); without entries a heartbeat or a commit's news.

    `seq` counts the leader's messages to this follower and comes back in the answer. `digest` is
    the rolling hash of all commands up to `commit_index` and of what came of them, compared by the
    follower (`Invariant.STATE_MACHINE_SAFETY`).
    """

    CODE: ClassVar[int] = 5
    FIELDS: ClassVar[struct.Struct] = struct.Struct(">QQQQI")
    term: int
    seq: int
    prev_index: int
    prev_term: int
    commit_index: int
    digest: int
    entries: tuple[LogEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class AppendReply:
    """Answer to `Append`, and to a complete snapshot. `counts` is False while the voter is mute."""

    CODE: ClassVar[int] = 6
    FIELDS: ClassVar[struct.Struct] = struct.Struct(">QBQ?")
    term: int
    seq: int
    ack: int
    next_index: int
    counts: bool


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """`data` is the piece at `offset` of a snapshot that replaces the log up to (index, index_term)."""

    CODE: ClassVar[int] = 7
    FIELDS: ClassVar[struct.Struct] = struct.Struct(">QQQIIQQ")
    term: int
    seq: int
    index: int
    index_term: int
    digest: int
    crc: int
    total: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SnapshotReply:
    """The follower needs the snapshot's bytes from `offset` on."""

    CODE: ClassVar[int] = 8
    FIELDS: ClassVar[struct.Struct] = struct.Struct(">QQQ")
    term: int
    seq: int
    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class Hello:
    """First message on a connection, and its answer. A question carries the `nonce` that its sender
    drew at its start, an answer repeats it in `echo`, which proves that it is not an old voter's last
    word; `vouch` then says that nothing committed ever needed the asking incarnation (admission.py)."""

    CODE: ClassVar[int] = 9
    FIELDS: ClassVar[struct.Struct] = struct.Struct(">iQQ??")
    term: int
    leader_id: int
    nonce: int
    echo: int
    mute: bool
    vouch: bool


@dataclass(frozen=True, slots=True)
class Rejoin:
    """A mute voter asks the leader to commit its nonce on all other voters."""

    CODE: ClassVar[int] = 10
    FIELDS: ClassVar[struct.Struct] = struct.Struct(">Q")
    term: int
    nonce: int


@dataclass(frozen=True, slots=True)
class Admit:
    """The nonce is at `index` in the log of every other voter: the receiver counts again."""

    CODE: ClassVar[int] = 11
    FIELDS: ClassVar[struct.Struct] = struct.Struct(">QQ")
    term: int
    nonce: int
    index: int


Message = (
    PreVoteRequest
    | PreVoteReply
    | VoteRequest
    | VoteReply
    | Append
    | AppendReply
    | SnapshotChunk
    | SnapshotReply
    | Hello
    | Rejoin
    | Admit
)

_TYPES: Final[dict[int, type[Message]]] = {
    t.CODE: t
    for t in (
        PreVoteRequest,
        PreVoteReply,
        VoteRequest,
        VoteReply,
        Append,
        AppendReply,
        SnapshotChunk,
        SnapshotReply,
        Hello,
        Rejoin,
        Admit,
    )
}


class MalformedFrame(ValueError):
    """A peer sent what no voter of ours would send; the caller closes the connection."""


class Frame(NamedTuple):
    """A decoded frame: its sender, and the message."""

    incarnation: UUID
    message: Message


def encode(incarnation: UUID, message: Message) -> bytes:
    """The frame's bytes."""
    head = _HEADER.pack(VERSION, message.CODE, incarnation.bytes, message.term)
    names = message.__slots__[1:]
    match message:
        case Append(entries=entries):
            fields = [getattr(message, name) for name in names if name != "entries"]
            parts = [head, message.FIELDS.pack(*fields), struct.pack(">I", len(entries))]
            for command, _, term in entries:
                parts.append(_ENTRY.pack(term, len(command)))
                parts.append(command)
            return b"".join(parts)
        case SnapshotChunk(data=data):
            fields = [getattr(message, name) for name in names if name != "data"]
            return b"".join((head, message.FIELDS.pack(*fields), struct.pack(">I", len(data)), data))
        case _:
            return head + message.FIELDS.pack(*(getattr(message, name) for name in names))


def decode(frame: bytes) -> Frame:
    """The message in `frame`. Raises `MalformedFrame` unless it is one whole message and nothing else."""
    try:
        version, code, incarnation, term = _HEADER.unpack_from(frame)
        if version != VERSION:
            raise MalformedFrame(f"Raft frame of version {version}, {VERSION} is spoken here")
        kind = _TYPES.get(code)
        if kind is None:
            raise MalformedFrame(f"unknown Raft message type {code}")
        fields = kind.FIELDS.unpack_from(frame, _HEADER.size)
        position = _HEADER.size + kind.FIELDS.size
        if kind is Append:
            entries, position = _read_entries(frame, position, prev_index=fields[1], newest_term=term)
            fields = (*fields, entries)
        elif kind is SnapshotChunk:
            (length,) = struct.unpack_from(">I", frame, position)
            position += 4
            fields = (*fields, frame[position : position + length])
            position += length
    except struct.error as e:
        raise MalformedFrame(f"truncated Raft frame of {len(frame)} bytes") from e
    if position != len(frame):
        raise MalformedFrame(f"Raft frame of {len(frame)} bytes, its content says {position}")
    return Frame(uuid_of(incarnation), kind(term, *fields))


def _read_entries(
    frame: bytes, position: int, *, prev_index: int, newest_term: int
) -> tuple[tuple[LogEntry, ...], int]:
    (count,) = struct.unpack_from(">I", frame, position)
    position += 4
    if count > MAX_ENTRIES:
        raise MalformedFrame(f"{count} entries in one append, {MAX_ENTRIES} at most")
    entries: list[LogEntry] = []
    for index in range(prev_index + 1, prev_index + 1 + count):
        term, length = _ENTRY.unpack_from(frame, position)
        position += _ENTRY.size
        command = frame[position : position + length]
        position += length
        if not command or command[0] not in _KINDS:
            raise MalformedFrame(f"log entry {index} is of no known kind")
        if position > len(frame):
            raise MalformedFrame(f"log entry {index} claims {length} bytes, the frame ends before")
        if term > newest_term:
            raise MalformedFrame(f"log entry {index} of term {term} in a message of term {newest_term}")
        entries.append((command, index, term))
    return tuple(entries), position
