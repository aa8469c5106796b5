"""What a classic group is: its state, its generation, its members, and what it shows to others.

Owned by one ClassicGroup (group.py), which alone changes it; request_checks.py, offsets.py and migration.py
read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from data_plane.coordinator.groups.classic.consumer_protocol import subscribed_topics
from data_plane.coordinator.groups.classic.members import ClassicGroupMember, Roster
from data_plane.coordinator.groups.classic.states import (
    CONSUMER_PROTOCOL_TYPE,
    TRANSITIONS,
    ClassicGroupState,
)
from data_plane.coordinator.groups.deadlines import Deadlines
from data_plane.coordinator.groups.messages import DescribedGroup, JoinReply, MemberProtocol, SyncReply
from data_plane.coordinator.groups.records import StoredGroup
from data_plane.coordinator.state_machine import Instant
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.invariants import Invariant, invariant

IDS_GIVEN_OUT: Final = 10_000
"""That are remembered until their clients join with them, as they do at once, or until a session would have
ended. Whoever asked before so many others is not known, and asks again."""


@dataclass(slots=True)
class ClassicGroupMetadata:
    group_id: str
    state_since_ms: int
    """Wall clock; as stored, for the expiry of offsets."""
    state: ClassicGroupState = ClassicGroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    """The assignor that all members support, chosen when a join completes."""
    roster: Roster = field(default_factory=Roster)
    pending: Deadlines[str] = field(default_factory=Deadlines)
    """Member ids that were given out (KIP-394) and have not joined yet, with their deadlines (seconds)."""

    def transition(self, target: ClassicGroupState, at: Instant) -> None:
        invariant(
            target in TRANSITIONS[self.state], Invariant.GROUP_TRANSITION, (self.group_id, self.state, target)
        )
        self.state = target
        self.state_since_ms = at.now_ms

    # --- members

    def give_out(self, member_id: str, deadline: float) -> None:
        """A newcomer is to join with this id."""
        if len(self.pending) >= IDS_GIVEN_OUT:
            self.pending.discard(self.pending.longest_kept())
        self.pending.set(member_id, deadline)

    def known_member(self, member_id: str, instance_id: str | None) -> ClassicGroupMember | ErrorCode:
        """The member that a request comes from, or why it is refused."""
        if instance_id is not None:
            static = self.roster.by_instance(instance_id)
            if static is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return static if static.member_id == member_id else ErrorCode.FENCED_INSTANCE_ID
        member = self.roster.get(member_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else member

    def supports(self, protocol_type: str, protocols: tuple[MemberProtocol, ...]) -> bool:
        """Whether a member with these protocols has one in common with all others."""
        if not protocol_type or not protocols:
            return False
        if not len(self.roster):
            return True
        return protocol_type == self.protocol_type and any(
            self.roster.all_support(name) for name, _ in protocols
        )

    def rebalance_timeout(self) -> float:
        """The longest of its members' (seconds)."""
        return max((m.rebalance_timeout_ms for m in self.roster), default=0) / 1000

    @property
    def are_joins_unanswered(self) -> bool:
        """Some, of the generation that has begun. Where the next rebalance begins before that, they take part
        in it."""
        begun = ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE
        return self.state in begun and self.roster.joining > 0

    # --- replies and records

    def joined(self, member: ClassicGroupMember) -> JoinReply:
        leads = member.member_id == self.roster.leader
        return JoinReply(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.roster.leader or "",
            members=tuple(m.joined(self.protocol) for m in self.roster) if leads else (),
        )

    def assigned(self, member: ClassicGroupMember) -> SyncReply:
        return SyncReply(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    def as_stored(self, assignments: Mapping[str, bytes]) -> StoredGroup:
        """The group's record, with the assignments (by member id) that the leader has sent."""
        return StoredGroup(
            self.protocol_type,
            self.generation,
            self.protocol,
            self.roster.leader,
            self.state_since_ms,
            tuple(m.stored(self.protocol, assignments.get(m.member_id, b"")) for m in self.roster),
        )

    # --- queries

    def describe(self) -> DescribedGroup:
        protocol = self.protocol if self.state is ClassicGroupState.STABLE else None
        members = tuple(m.described(protocol) for m in self.roster.staying())
        return DescribedGroup(self.group_id, self.state.value, self.protocol_type, protocol or "", members)

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that a stable group of consumers reads; None where they are unknown."""
        return self.topics_in_use() if self.state is ClassicGroupState.STABLE else None

    def topics_in_use(self) -> frozenset[str] | None:
        """The topics that a group of consumers reads, or will read after its rebalance, as far as its members
        have said; None where they are unknown."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        return subscribed_topics(member.metadata(self.protocol) for member in self.roster)
