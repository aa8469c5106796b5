"""Requests to a group and its replies, free of protocol versions and of bytes.

kraft/api/groups.py makes these from requests and turns the answers into responses; between the
two they pass the service and the state machine. Times are milliseconds, as clients give them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID, TopicPartition

NO_GENERATION: Final = -1
NO_OFFSET: Final = -1
NO_MEMBER: Final = ""
"""The member id of a client that is not a member yet (or commits without being one)."""


class MemberProtocol(NamedTuple):
    """One way of assigning that a member can play, with its subscription in that way's terms."""

    name: str
    metadata: bytes


PROTOCOL_BYTES: Final = 150
"""What a protocol takes in memory beside its name and metadata."""


def bytes_of(protocols: tuple[MemberProtocol, ...]) -> int:
    """What a member's protocols take in memory; more than in a record."""
    return sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


@dataclass(frozen=True, slots=True)
class JoinGroup:
    group_id: str
    member_id: str
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    new_member_id: str = ""
    """The id to assign where `member_id` is empty: drawn by the caller, the machine is deterministic."""
    requires_known_id: bool = True
    """A new member first receives its id and joins with it (KIP-394, JoinGroup v4)."""
    can_skip_assignment: bool = True
    """A static leader that restarts understands that it must not assign (JoinGroup v9)."""
    max_record_bytes: int = 2**31 - 1
    """What a record of the group may take. A classic group whose members say more could not be stored."""


class JoinedMember(NamedTuple):
    """A member as its leader sees it, to assign."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncGroup:
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncReply:
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    error: ErrorCode


class MemberIdentity(NamedTuple):
    """Who leaves. An empty member id with an instance id: an operator removes a static member."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    group_id: str
    members: tuple[MemberIdentity, ...]


@dataclass(frozen=True, slots=True)
class LeaveReply:
    error: ErrorCode
    members: tuple[tuple[MemberIdentity, ErrorCode], ...] = ()


class CommittedOffset(NamedTuple):
    """A position as it is kept for a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    """Only where an old client requested a retention time of its own."""
    topic_id: UUID = ZERO_UUID


class OffsetToCommit(NamedTuple):
    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    topic_id: UUID = ZERO_UUID


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    instance_id: str | None = None
    retention_time_ms: int = -1
    """Of OffsetCommit v2 to v4; -1: the broker's own."""
    producer: ProducerIdAndEpoch | None = None
    """The offsets are part of this producer's transaction."""
    knows_epochs: bool = True
    """OffsetCommit v9: it may be a member of the consumer protocol that commits."""


@dataclass(frozen=True, slots=True)
class CommitReply:
    errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    group_id: str
    partitions: tuple[TopicPartition, ...] | None
    """None: all that the group has."""
    require_stable: bool = False
    """No offset where a transaction may change it."""
    member_id: str | None = None
    member_epoch: int = -1
    """Sent by members of the consumer protocol, which are fenced by them (OffsetFetch v9)."""


@dataclass(frozen=True, slots=True)
class OffsetsReply:
    offsets: Mapping[TopicPartition, CommittedOffset | None]
    unstable: frozenset[TopicPartition] = frozenset()
    """Where an open transaction has an offset, if the asker requires stable ones."""


class GroupType(Enum):
    """Kafka's names for what governs a group's membership."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: GroupType = GroupType.CLASSIC


class MemberSummary(NamedTuple):
    member_id: str
    client_id: str
    client_host: str
    assigned: Mapping[UUID, frozenset[int]] | bytes
    """By topic id; of a member of a classic group as its leader wrote it."""


class GroupSummary(NamedTuple):
    """A group at a glance."""

    listed: ListedGroup
    members: tuple[MemberSummary, ...]
    offsets: Mapping[TopicPartition, CommittedOffset]


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


Reply = (
    JoinReply
    | SyncReply
    | HeartbeatReply
    | LeaveReply
    | CommitReply
    | OffsetsReply
    | DescribedGroup
    | tuple[ListedGroup, ...]
    | ErrorCode
)
