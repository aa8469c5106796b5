"""The control records of `__cluster_metadata`: the leader of a term, and the two ends of a checkpoint.

    key    int16 version (0) | int16 type
    value  struct in flexible encoding, see foundation/codec.py; its first field is its version

On the path of the data: metadata_log.py and snapshot.py write and read them; image.py never sees one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from metadata_quorum.foundation.batch import CONTROL_KEY
from metadata_quorum.foundation.codec import (
    Int16,
    Int32,
    Int64,
    Schema,
    Since,
    String,
    UInt16,
    Uuid,
    decode_with,
)
from metadata_quorum.foundation.model import ZERO_UUID
from metadata_quorum.foundation.primitives import Buffer

CONTROL_LEADER_CHANGE: Final = 2
CONTROL_SNAPSHOT_HEADER: Final = 3
CONTROL_SNAPSHOT_FOOTER: Final = 4
CONTROL_KRAFT_VOTERS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """A member of the quorum."""

    voter_id: Int32
    voter_directory_id: Annotated[Uuid, Since(1)] = ZERO_UUID


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


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterEndpoint:
    """Where a voter listens."""

    name: String
    host: String
    port: UInt16


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRange:
    """The levels of kraft.version that a voter supports."""

    min_supported_version: Int16
    max_supported_version: Int16


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredVoter:
    """A member of a quorum whose voters may change."""

    voter_id: Int32
    voter_directory_id: Uuid
    endpoints: tuple[VoterEndpoint, ...]
    kraft_version_feature: VersionRange


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersRecord:
    """The voters from here on, where the quorum is dynamic; only Apache Kafka writes it."""

    version: Int16 = 0
    voters: tuple[RegisteredVoter, ...]


ControlRecord = LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | VotersRecord

_CONTROL_TYPES: Final[dict[int, type[ControlRecord]]] = {
    CONTROL_LEADER_CHANGE: LeaderChangeMessage,
    CONTROL_SNAPSHOT_HEADER: SnapshotHeaderRecord,
    CONTROL_SNAPSHOT_FOOTER: SnapshotFooterRecord,
    CONTROL_KRAFT_VOTERS: VotersRecord,
}
_VERSION_BYTES: Final = 2
_CONTROL_NUMBERS: Final = {cls: number for number, cls in _CONTROL_TYPES.items()}


def encode_control(record: ControlRecord) -> tuple[bytes, bytes]:
    """Key and value of a control record."""
    out = bytearray()
    Schema.of(type(record)).write(out, record, record.version)
    return CONTROL_KEY.pack(0, _CONTROL_NUMBERS[type(record)]), bytes(out)


def decode_control(key: Buffer, value: Buffer) -> ControlRecord | None:
    """The control record, or None for a type that means nothing to us. Raises `ValueError`."""
    if len(key) != CONTROL_KEY.size:
        raise ValueError(f"control record key of {len(key)} bytes")
    cls = _CONTROL_TYPES.get(CONTROL_KEY.unpack(key)[1])
    if cls is None:
        return None
    version = int.from_bytes(value[:_VERSION_BYTES], "big")
    record: ControlRecord = decode_with(lambda reader: Schema.of(cls).read(reader, version), value)
    return record
