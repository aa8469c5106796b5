"""The control records of `__cluster_metadata`: the leader of a term, and the two ends of a checkpoint.

    key    int16 version (0) | int16 type
    value  struct in flexible encoding, see foundation/codec.py

On the path of the data: metadata_log.py and snapshot.py write and read them; image.py never sees one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from metadata_quorum.foundation.batch import CONTROL_KEY
from metadata_quorum.foundation.codec import Int16, Int32, Int64, Schema, decode_with
from metadata_quorum.foundation.primitives import Buffer

CONTROL_LEADER_CHANGE: Final = 2
CONTROL_SNAPSHOT_HEADER: Final = 3
CONTROL_SNAPSHOT_FOOTER: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """A member of the quorum."""

    voter_id: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChangeMessage:
    """First batch of a controller's term: its leader, and the voters that elected it."""

    version: Int16 = 0
    leader_id: Int32
    voters: tuple[Voter, ...]
    granting_voters: tuple[Voter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeaderRecord:
    """First batch of a checkpoint."""

    version: Int16 = 0
    last_contained_log_timestamp: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFooterRecord:
    """Last batch of a checkpoint; without it the file is torn."""

    version: Int16 = 0


ControlRecord = LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord

_CONTROL_TYPES: Final[dict[int, type[ControlRecord]]] = {
    CONTROL_LEADER_CHANGE: LeaderChangeMessage,
    CONTROL_SNAPSHOT_HEADER: SnapshotHeaderRecord,
    CONTROL_SNAPSHOT_FOOTER: SnapshotFooterRecord,
}
_CONTROL_NUMBERS: Final = {cls: number for number, cls in _CONTROL_TYPES.items()}


def encode_control(record: ControlRecord) -> tuple[bytes, bytes]:
    """Key and value of a control record."""
    out = bytearray()
    Schema.of(type(record)).write(out, record, 0)
    return CONTROL_KEY.pack(0, _CONTROL_NUMBERS[type(record)]), bytes(out)


def decode_control(key: Buffer, value: Buffer) -> ControlRecord | None:
    """The control record, or None for a type that means nothing to us. Raises `ValueError`."""
    if len(key) != CONTROL_KEY.size:
        raise ValueError(f"control record key of {len(key)} bytes")
    cls = _CONTROL_TYPES.get(CONTROL_KEY.unpack(key)[1])
    if cls is None:
        return None
    record: ControlRecord = decode_with(lambda reader: Schema.of(cls).read(reader, 0), value)
    return record
