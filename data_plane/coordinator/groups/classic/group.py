"""The classic consumer group: one pure machine per group.

Input and an `Instant` in; `Effects` out: answers to give, and whether the group must be stored.
What becomes durable enters through `replay` only, after a load and right after a live append
alike. Nothing here waits, reads a clock or draws a number; `next_deadline` says when `tick` is due.

Stands between groups/table.py (finds the group; its records are appended) and members.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from data_plane.coordinator.groups.classic.consumer_protocol import subscribed_topics
from data_plane.coordinator.groups.classic.members import (
    ClassicGroupMember,
    Roster,
    member_from,
    member_of,
    rebalance_timeout_of,
)
from data_plane.coordinator.groups.classic.states import (
    CONSUMER_PROTOCOL_TYPE,
    TRANSITIONS,
    ClassicGroupConfig,
    ClassicGroupState,
    Effects,
)
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    DescribedGroup,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    MemberIdentity,
    MemberProtocol,
    Reply,
    SyncGroup,
    SyncReply,
)
from data_plane.coordinator.groups.records import CoordinatorRecord, GroupRecord, StoredGroup
from data_plane.coordinator.machine import Instant, Ticket
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.invariants import invariant


class ClassicGroup:
    """One group. Every public method is one input."""

    def __init__(self, group_id: str, rules: ClassicGroupConfig, at: Instant) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        self.state_since_ms = at.now_ms
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.roster = Roster()
        self._rules = rules
        self._pending: dict[str, float] = {}
        """Ids that were given out (KIP-394) and have not joined yet, with their deadlines."""
        self._pending_sync: set[str] = set()
        self._join_deadline: float | None = None
        self._sync_deadline: float | None = None
        self._initial_time_left: float | None = None
        """While an empty group gathers its first members: by how much the delay may still grow."""
        self._gained_member = False
        self._when_stored: list[tuple[Ticket, JoinReply]] = []
        self._effects = Effects()

    # --- questions -----------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    @property
    def is_idle(self) -> bool:
        """Nobody is in it and nobody is coming."""
        return self.state is ClassicGroupState.EMPTY and not self._pending

    def next_deadline(self) -> float:
        """When `tick` is due, seconds; infinity where nothing waits for time."""
        deadlines = [m.deadline for m in self.roster]
        deadlines += self._pending.values()
        deadlines += [d for d in (self._join_deadline, self._sync_deadline) if d is not None]
        return min(deadlines, default=float("inf"))

    def describe(self) -> DescribedGroup:
        protocol = self.protocol if self.state is ClassicGroupState.STABLE else None
        members = tuple(m.described(protocol) for m in self.roster)
        return DescribedGroup(self.group_id, self.state.value, self.protocol_type, protocol or "", members)

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that a stable group of consumers reads; None where that cannot be told."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.state is not ClassicGroupState.STABLE:
            return None
        topics: set[str] = set()
        for member in self.roster:
            read = subscribed_topics(member.metadata(self.protocol))
            if read is None:
                return None
            topics |= read
        return frozenset(topics)

    def check_commit(self, request: CommitOffsets, at: Instant) -> ErrorCode:
        """Whether these offsets may be committed; a member's commit is a sign of life. In a transaction
        members need not say who they are (before KIP-447 they could not), and need not wait for a
        rebalance: the producer's epoch is what fences them."""
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        claims_membership = bool(request.member_id) or request.instance_id is not None
        if request.generation < 0 and not claims_membership:
            if request.producer is not None:
                return ErrorCode.NONE
            # Someone outside of any group keeps offsets under this name; members would be overrun.
            return ErrorCode.NONE if self.state is ClassicGroupState.EMPTY else ErrorCode.UNKNOWN_MEMBER_ID
        if self.state is ClassicGroupState.EMPTY and request.generation < 0:
            return ErrorCode.NONE
        member = self._known_member(request.member_id, request.instance_id)
        if isinstance(member, ErrorCode):
            return member
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is ClassicGroupState.COMPLETING_REBALANCE and request.producer is None:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._heard_of(member, at)
        return ErrorCode.NONE

    def tombstones(self) -> list[CoordinatorRecord]:
        """For a group that is deleted."""
        return [GroupRecord(self.group_id, None)]

    # --- inputs --------------------------------------------------------------------------------

    def join(self, request: JoinGroup, ticket: Ticket, at: Instant) -> Effects:
        refusal = self._refuse_join(request)
        if refusal is not ErrorCode.NONE:
            self._reply(ticket, JoinReply(refusal, request.member_id))
        elif not request.member_id:
            self._join_newcomer(request, ticket, at)
        elif request.member_id in self._pending:
            self._add(request, request.member_id, ticket, at)
        else:
            self._rejoin(request, ticket, at)
        return self._take_effects()

    def sync(self, request: SyncGroup, ticket: Ticket, at: Instant) -> Effects:
        member = self._check_sync(request)
        if isinstance(member, ErrorCode):
            self._reply(ticket, SyncReply(member))
            return self._take_effects()
        self._pending_sync.discard(member.member_id)
        if not self._pending_sync:
            self._sync_deadline = None
        self._heard_of(member, at)
        if self.state is ClassicGroupState.STABLE:
            self._reply(ticket, self._assigned(member))
        else:
            self._supersede(member.sync_ticket, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
            member.sync_ticket = ticket
            if member.member_id == self.roster.leader:
                self._effects.store = self._as_stored(request.assignments)
        return self._take_effects()

    def heartbeat(self, request: Heartbeat, ticket: Ticket, at: Instant) -> Effects:
        self._reply(ticket, HeartbeatReply(self._check_heartbeat(request, at)))
        return self._take_effects()

    def leave(self, request: LeaveGroup, ticket: Ticket, at: Instant) -> Effects:
        if self.state is ClassicGroupState.DEAD:
            self._reply(ticket, LeaveReply(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return self._take_effects()
        outcomes = tuple((identity, self._leave_one(identity)) for identity in request.members)
        self._reply(ticket, LeaveReply(ErrorCode.NONE, outcomes))
        if any(error is ErrorCode.NONE for _, error in outcomes):
            self._members_changed(at)
        return self._take_effects()

    def tick(self, at: Instant) -> Effects:
        """Let time pass: sessions, rebalances and the wait for syncs end."""
        for member_id in [m for m, deadline in self._pending.items() if deadline <= at.now]:
            del self._pending[member_id]
            self._maybe_complete_join(at)
        for member in self.roster:
            if member.deadline <= at.now and member.member_id in self.roster:
                self._end_session(member, at)
        if self._join_deadline is not None and self._join_deadline <= at.now:
            self._end_join_wait(at)
        if self._sync_deadline is not None and self._sync_deadline <= at.now:
            self._end_sync_wait(at)
        return self._take_effects()

    def replay(self, stored: StoredGroup, at: Instant) -> Effects:
        """A record of this group is in the log: take what it says. The facts of a record are not
        moves of the machine, so the transition table has no say here."""
        self.protocol_type = stored.protocol_type
        self.generation = stored.generation
        self.protocol = stored.protocol
        kept = {m.member_id for m in stored.members}
        for member in self.roster:
            if member.member_id not in kept:
                self._dismiss(member, ErrorCode.UNKNOWN_MEMBER_ID)
        members: list[ClassicGroupMember] = []
        for row in stored.members:
            known = self.roster.get(row.member_id)
            member = known or member_from(row, stored.protocol)
            if known is None:
                member.deadline = at.now + member.session_timeout
            member.assignment = row.assignment
            members.append(member)
        self.roster.replace(members, stored.leader)
        self.state = ClassicGroupState.STABLE if stored.members else ClassicGroupState.EMPTY
        self.state_since_ms = stored.state_timestamp_ms
        for member in self.roster:
            if member.sync_ticket is not None:
                self._reply(member.sync_ticket, self._assigned(member))
                member.sync_ticket = None
                self._heard_of(member, at)
        self._effects.replies += self._when_stored
        self._when_stored = []
        self._join_deadline = None
        if stored.members and stored.leader is None:
            # It was of the consumer protocol until now, so nobody has assigned all there is.
            self._prepare_rebalance(at)
        return self._take_effects()

    def refused(self, error: ErrorCode, at: Instant) -> Effects:
        """What was to be stored could not be appended: whoever waited for it hears so, and an
        assignment that nobody got is worked out anew."""
        for ticket, reply in self._when_stored:
            self._reply(ticket, JoinReply(error, reply.member_id))
        self._when_stored = []
        if self.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._refuse_assignment(error)
            self._prepare_rebalance(at)
        return self._take_effects()

    def loaded(self, at: Instant) -> None:
        """The log has been read: sessions begin now, for nobody could be heard before."""
        for member in self.roster:
            member.deadline = at.now + member.session_timeout

    def die(self, at: Instant) -> Effects:
        """The group is deleted, or goes over to the consumer protocol: who waits, joins again there."""
        for member in self.roster:
            again = ErrorCode.REBALANCE_IN_PROGRESS
            self._supersede(member.join_ticket, JoinReply(again, member.member_id))
            self._supersede(member.sync_ticket, SyncReply(again))
        self._transition(ClassicGroupState.DEAD, at)
        return self._take_effects()

    # --- joining -------------------------------------------------------------------------------

    def _refuse_join(self, request: JoinGroup) -> ErrorCode:
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._can_play(request.protocol_type, request.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        known = request.member_id in self.roster or self.roster.by_instance(request.instance_id) is not None
        taken = len(self.roster) + len(self._pending.keys() - {request.member_id})
        if not known and taken >= self._rules.max_size:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def _can_play(self, protocol_type: str, protocols: tuple[MemberProtocol, ...]) -> bool:
        if not protocol_type or not protocols:
            return False
        if not len(self.roster):
            return True
        common = self.roster.common_protocols()
        return protocol_type == self.protocol_type and any(name in common for name, _ in protocols)

    def _join_newcomer(self, request: JoinGroup, ticket: Ticket, at: Instant) -> None:
        static = self.roster.by_instance(request.instance_id)
        if static is not None:
            self._replace_static(static, request, ticket, at)
        elif request.instance_id is None and request.requires_known_id:
            self._pending[request.new_member_id] = at.now + request.session_timeout_ms / 1000
            self._reply(ticket, JoinReply(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id))
        else:
            self._add(request, request.new_member_id, ticket, at)

    def _add(self, request: JoinGroup, member_id: str, ticket: Ticket, at: Instant) -> None:
        self._pending.pop(member_id, None)
        if not len(self.roster):
            self.protocol_type = request.protocol_type
        member = member_of(request, member_id)
        member.join_ticket = ticket
        member.deadline = at.now + self._rules.new_member_timeout
        self.roster.add(member)
        self._gained_member = True
        self._rebalance_or_complete(at)

    def _rejoin(self, request: JoinGroup, ticket: Ticket, at: Instant) -> None:
        member = self._known_member(request.member_id, request.instance_id)
        if isinstance(member, ErrorCode):
            self._reply(ticket, JoinReply(member, request.member_id))
            return
        unchanged = member.protocols == request.protocols
        leads = member.member_id == self.roster.leader
        if self.state is ClassicGroupState.COMPLETING_REBALANCE and unchanged:
            self._heard_of(member, at)  # its answer was lost on the way: say it again
            self._reply(ticket, self._joined(member))
        elif self.state is ClassicGroupState.STABLE and unchanged and not leads:
            self._heard_of(member, at)
            self._reply(ticket, self._joined(member))
        else:
            # In STABLE a leader that joins again asks for a rebalance: it has seen new partitions.
            self._update(member, request, ticket, at)
            self._rebalance_or_complete(at)

    def _update(self, member: ClassicGroupMember, request: JoinGroup, ticket: Ticket, at: Instant) -> None:
        self._supersede(member.join_ticket, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_of(request)
        member.join_ticket = ticket
        self._heard_of(member, at)

    def _replace_static(
        self, member: ClassicGroupMember, request: JoinGroup, ticket: Ticket, at: Instant
    ) -> None:
        """A static member came back without its id: it gets a new one, the old one is fenced. A
        stable group need not rebalance for that, unless the choice of protocol would change."""
        old_id, old_leader = member.member_id, self.roster.leader
        self._fence(member)
        self.roster.rename(member, request.new_member_id)
        if old_id in self._pending_sync:
            self._pending_sync.remove(old_id)
            self._pending_sync.add(member.member_id)
        self._update(member, request, ticket, at)
        if self.state is not ClassicGroupState.STABLE or self.roster.select_protocol() != self.protocol:
            self._rebalance_or_complete(at)
            return
        member.join_ticket = None
        reply = self._joined(member)
        if request.can_skip_assignment:
            reply = replace(reply, skip_assignment=member.member_id == self.roster.leader)
        else:  # an old client would assign if it saw itself lead: tell it of the one it was
            reply = replace(reply, leader=old_leader or "", members=())
        self._when_stored.append((ticket, reply))
        self._effects.store = self._as_stored({m.member_id: m.assignment for m in self.roster})

    def _rebalance_or_complete(self, at: Instant) -> None:
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(at)
        else:
            self._prepare_rebalance(at)

    def _prepare_rebalance(self, at: Instant) -> None:
        if self.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._refuse_assignment(ErrorCode.REBALANCE_IN_PROGRESS)
        self._sync_deadline = None
        first = self.state is ClassicGroupState.EMPTY
        self._transition(ClassicGroupState.PREPARING_REBALANCE, at)
        self._initial_time_left = None
        delay = self._rules.initial_rebalance_delay
        if first and delay > 0:
            self._gained_member = False
            self._initial_time_left = max(self._rebalance_timeout() - delay, 0.0)
            self._join_deadline = at.now + delay
        else:
            self._join_deadline = at.now + self._rebalance_timeout()
            self._maybe_complete_join(at)

    def _maybe_complete_join(self, at: Instant) -> None:
        gathering = self._initial_time_left is not None
        if self.state is not ClassicGroupState.PREPARING_REBALANCE or gathering:
            return
        if self.roster.all_joined() and not self._pending:
            self._complete_join(at)

    def _end_join_wait(self, at: Instant) -> None:
        left = self._initial_time_left
        if left is not None and left > 0 and self._gained_member:
            # Members are still coming in: give the next ones as long again.
            self._gained_member = False
            delay = min(self._rules.initial_rebalance_delay, left)
            self._initial_time_left = max(left - delay, 0.0)
            self._join_deadline = at.now + delay
        else:
            self._complete_join(at)

    def _complete_join(self, at: Instant) -> None:
        self._initial_time_left = self._join_deadline = None
        for member in self.roster:
            if member.join_ticket is None and member.instance_id is None:
                self._dismiss(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if len(self.roster) and not self.roster.elect_joined():
            # Only static members, none of them back yet: their sessions decide.
            self._join_deadline = at.now + max(self._rebalance_timeout(), 1.0)
            return
        self.generation += 1
        self._pending_sync.clear()
        if not len(self.roster):
            self.protocol = None
            self._transition(ClassicGroupState.EMPTY, at)
            self._effects.store = self._as_stored({})
            return
        self.protocol = self.roster.select_protocol()
        self._transition(ClassicGroupState.COMPLETING_REBALANCE, at)
        self._sync_deadline = at.now + self._rebalance_timeout()
        for member in self.roster:
            member.is_new = False
            self._heard_of(member, at)
            self._pending_sync.add(member.member_id)
            if member.join_ticket is not None:
                self._reply(member.join_ticket, self._joined(member))
                member.join_ticket = None

    def _joined(self, member: ClassicGroupMember) -> JoinReply:
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

    # --- syncing -------------------------------------------------------------------------------

    def _check_sync(self, request: SyncGroup) -> ClassicGroupMember | ErrorCode:
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        member = self._known_member(request.member_id, request.instance_id)
        if isinstance(member, ErrorCode):
            return member
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        for claimed, actual in (
            (request.protocol_type, self.protocol_type),
            (request.protocol_name, self.protocol),
        ):
            if claimed is not None and claimed != actual:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.UNKNOWN_MEMBER_ID if self.state is ClassicGroupState.EMPTY else member

    def _assigned(self, member: ClassicGroupMember) -> SyncReply:
        return SyncReply(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    def _refuse_assignment(self, error: ErrorCode) -> None:
        for member in self.roster:
            self._supersede(member.sync_ticket, SyncReply(error))
            member.sync_ticket = None

    def _end_sync_wait(self, at: Instant) -> None:
        """Some took their generation and never came for their assignment."""
        self._sync_deadline = None
        for member in self.roster:
            if member.member_id in self._pending_sync:
                self._dismiss(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._pending_sync.clear()
        self._prepare_rebalance(at)

    # --- staying and leaving -------------------------------------------------------------------

    def _check_heartbeat(self, request: Heartbeat, at: Instant) -> ErrorCode:
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        member = self._known_member(request.member_id, request.instance_id)
        if isinstance(member, ErrorCode):
            return member
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._heard_of(member, at)
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _leave_one(self, identity: MemberIdentity) -> ErrorCode:
        member_id, instance_id = identity
        if member_id in self._pending and instance_id is None:
            del self._pending[member_id]
            return ErrorCode.NONE
        if not member_id and instance_id is not None:
            static = self.roster.by_instance(instance_id)
            member: ClassicGroupMember | ErrorCode = (
                static if static is not None else ErrorCode.UNKNOWN_MEMBER_ID
            )
        else:
            member = self._known_member(member_id, instance_id)
        if isinstance(member, ErrorCode):
            return member
        self._dismiss(member, ErrorCode.UNKNOWN_MEMBER_ID)
        return ErrorCode.NONE

    def _end_session(self, member: ClassicGroupMember, at: Instant) -> None:
        if member.waits and not member.is_new:
            self._heard_of(member, at)
            return
        self._dismiss(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._members_changed(at)

    def _members_changed(self, at: Instant) -> None:
        if self.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(at)
        else:
            self._maybe_complete_join(at)

    def _dismiss(self, member: ClassicGroupMember, error: ErrorCode) -> None:
        """Out of the group; nothing it waits for is left open."""
        self._supersede(member.join_ticket, JoinReply(error, member.member_id))
        self._supersede(member.sync_ticket, SyncReply(error))
        member.join_ticket = member.sync_ticket = None
        self._pending_sync.discard(member.member_id)
        self.roster.remove(member)

    def _fence(self, member: ClassicGroupMember) -> None:
        self._supersede(member.join_ticket, JoinReply(ErrorCode.FENCED_INSTANCE_ID, member.member_id))
        self._supersede(member.sync_ticket, SyncReply(ErrorCode.FENCED_INSTANCE_ID))
        member.join_ticket = member.sync_ticket = None

    # --- inside --------------------------------------------------------------------------------

    def _known_member(self, member_id: str, instance_id: str | None) -> ClassicGroupMember | ErrorCode:
        """The member that a request comes from, or why it is refused."""
        if instance_id is not None:
            static = self.roster.by_instance(instance_id)
            if static is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return static if static.member_id == member_id else ErrorCode.FENCED_INSTANCE_ID
        member = self.roster.get(member_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else member

    def _heard_of(self, member: ClassicGroupMember, at: Instant) -> None:
        if not member.is_new:
            member.deadline = at.now + member.session_timeout

    def _rebalance_timeout(self) -> float:
        """The most patient member's."""
        return max((m.rebalance_timeout for m in self.roster), default=0.0)

    def _as_stored(self, assignments: Mapping[str, bytes]) -> StoredGroup:
        return StoredGroup(
            self.protocol_type,
            self.generation,
            self.protocol,
            self.roster.leader,
            self.state_since_ms,
            tuple(m.stored(self.protocol, assignments.get(m.member_id, b"")) for m in self.roster),
        )

    def _transition(self, target: ClassicGroupState, at: Instant) -> None:
        invariant(target in TRANSITIONS[self.state], "GROUP_TRANSITION", (self.group_id, self.state, target))
        self.state = target
        self.state_since_ms = at.now_ms

    def _supersede(self, ticket: Ticket | None, reply: Reply) -> None:
        if ticket is not None:
            self._reply(ticket, reply)

    def _reply(self, ticket: Ticket, reply: Reply) -> None:
        self._effects.replies.append((ticket, reply))

    def _take_effects(self) -> Effects:
        effects, self._effects = self._effects, Effects()
        return effects
