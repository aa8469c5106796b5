"""The classic consumer group: one pure machine per group.

Input and an `Instant` in; `Effects` out: replies to send, and whether the group must be stored.
What becomes durable enters through `replay` only, after a load and right after a live append
alike. Nothing here waits, reads a clock or draws a random number; `next_deadline` says when `tick` is due.

    request_checks.py   whether a request is accepted
    here                joins, syncs, rebalances; sessions, and whatever else ends with time
    group_metadata.py   the state itself: generation, protocol, members (members.py)

Path of the data: group_metadata_manager.py (finds the group, appends what is to be stored) -> here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import islice
from typing import Final

from data_plane.coordinator.groups.classic.group_metadata import ClassicGroupMetadata
from data_plane.coordinator.groups.classic.members import (
    ClassicGroupMember,
    member_from,
    member_of,
    rebalance_timeout_of,
)
from data_plane.coordinator.groups.classic.request_checks import (
    check_commit,
    check_heartbeat,
    check_join,
    check_sync,
    leaving_member,
)
from data_plane.coordinator.groups.classic.states import ClassicGroupConfig, ClassicGroupState, Effects
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
    Reply,
    SyncGroup,
    SyncReply,
)
from data_plane.coordinator.groups.records import CoordinatorRecord, GroupRecord, StoredGroup
from data_plane.coordinator.state_machine import Instant, Ticket
from metadata_quorum.foundation.errors import ErrorCode

ENDED_AT_ONCE: Final = 1000
"""Members that are dismissed, or answered, in one tick, which is due again at once where there are more.
After a failover thousands of sessions may end together, and each takes some 10 microseconds."""


class ClassicGroup:
    """One group. Every public method is one input."""

    def __init__(self, group_id: str, rules: ClassicGroupConfig, at: Instant) -> None:
        self.group_id = group_id
        self.metadata = ClassicGroupMetadata(group_id, at.now_ms)
        self._rules = rules
        self._assigned: deque[ClassicGroupMember] = deque()
        """Whose syncs wait for their answers, though there is an assignment."""
        self._join_deadline: float | None = None
        self._sync_deadline: float | None = None
        self._initial_time_left: float | None = None
        """While an empty group waits for its first members: how much longer the delay may get (s)."""
        self._gained_member = False
        self._when_stored: list[tuple[Ticket, JoinReply, ClassicGroupMember]] = []
        """Of static members that have restarted; with what they were before."""
        self._effects = Effects()

    # --- queries -------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return self.metadata.state is ClassicGroupState.EMPTY

    @property
    def size(self) -> int:
        """How many members it has."""
        return len(self.metadata.roster)

    @property
    def is_idle(self) -> bool:
        """No member is in it, and none is about to join."""
        return self.is_empty and not self.metadata.pending

    def next_deadline(self) -> float:
        """When `tick` is due, seconds; infinity where nothing waits for time."""
        if self.metadata.roster.leaving or self._assigned or self.metadata.are_joins_unanswered:
            return 0.0
        rebalance = [d for d in (self._join_deadline, self._sync_deadline) if d is not None]
        return min(self.metadata.roster.sessions.earliest(), self.metadata.pending.earliest(), *rebalance)

    def describe(self) -> DescribedGroup:
        return self.metadata.describe()

    def subscribed_topics(self) -> frozenset[str] | None:
        return self.metadata.subscribed_topics()

    def tombstones(self) -> list[CoordinatorRecord]:
        """For a group that is deleted."""
        return [GroupRecord(self.group_id, None)]

    # --- inputs --------------------------------------------------------------------------------

    def join(self, request: JoinGroup, ticket: Ticket, at: Instant) -> Effects:
        refusal = check_join(self.metadata, request, self._rules.max_size)
        if refusal is not ErrorCode.NONE and self.metadata.roster.leaving:  # perhaps only because of those
            self._dismiss_leaving(len(self.metadata.roster.leaving))
            refusal = check_join(self.metadata, request, self._rules.max_size)
        if refusal is not ErrorCode.NONE:
            self._reply(ticket, JoinReply(refusal, request.member_id))
            if refusal is ErrorCode.GROUP_MAX_SIZE_REACHED:  # nobody waits for it any longer
                self.metadata.pending.discard(request.member_id)
                if self._leave_one(MemberIdentity(request.member_id)) is ErrorCode.NONE:
                    self._members_changed(at)
                self._maybe_complete_join(at)
        elif not request.member_id:
            self._join_newcomer(request, ticket, at)
        elif request.member_id in self.metadata.pending:
            self._add(request, request.member_id, ticket, at)
        else:
            self._rejoin(request, ticket, at)
        return self._take_effects()

    def sync(self, request: SyncGroup, ticket: Ticket, at: Instant) -> Effects:
        member = check_sync(self.metadata, request)
        if isinstance(member, ErrorCode):
            self._reply(ticket, SyncReply(member))
            return self._take_effects()
        self.metadata.roster.pending_sync.discard(member.member_id)
        if not self.metadata.roster.pending_sync:
            self._sync_deadline = None
        self._extend_session(member, at)
        if self.metadata.state is ClassicGroupState.STABLE:
            self._reply(ticket, self.metadata.assigned(member))
        else:
            self._supersede(member.sync_ticket, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
            member.sync_ticket = ticket
            if member.member_id == self.metadata.roster.leader:
                self._effects.store = self.metadata.as_stored(request.assignments)
        return self._take_effects()

    def heartbeat(self, request: Heartbeat, ticket: Ticket, at: Instant) -> Effects:
        member = check_heartbeat(self.metadata, request)
        if isinstance(member, ErrorCode):
            error = member
        else:
            self._extend_session(member, at)
            rebalancing = self.metadata.state is ClassicGroupState.PREPARING_REBALANCE
            error = ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE
        self._reply(ticket, HeartbeatReply(error))
        return self._take_effects()

    def check_commit(self, request: CommitOffsets, at: Instant) -> ErrorCode:
        """Whether these offsets may be committed; a member's commit extends its session."""
        member = check_commit(self.metadata, request)
        if isinstance(member, ErrorCode):
            return member
        self._extend_session(member, at)
        return ErrorCode.NONE

    def leave(self, request: LeaveGroup, ticket: Ticket, at: Instant) -> Effects:
        if self.metadata.state is ClassicGroupState.DEAD:
            self._reply(ticket, LeaveReply(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return self._take_effects()
        outcomes = tuple((identity, self._leave_one(identity)) for identity in request.members)
        self._reply(ticket, LeaveReply(ErrorCode.NONE, outcomes))
        if any(error is ErrorCode.NONE for _, error in outcomes):
            self._members_changed(at)
        return self._take_effects()

    def tick(self, at: Instant) -> Effects:
        """Let time pass: sessions, rebalances and waits for syncs expire."""
        if self.metadata.are_joins_unanswered:
            self._answer_joins(at)
        self._answer_syncs(at)
        if self.metadata.roster.leaving:
            self._dismiss_leaving(ENDED_AT_ONCE)
            if self.metadata.roster.leaving:
                return self._take_effects()
            self._maybe_complete_join(at)
        for member_id in self.metadata.pending.due(at.now, ENDED_AT_ONCE):
            self.metadata.pending.discard(member_id)
            self._maybe_complete_join(at)
        sessions = self.metadata.roster.sessions
        if sessions.earliest() <= at.now:
            over = (each for each in self.metadata.roster if sessions.at(each.member_id) <= at.now)
            for member in islice(over, ENDED_AT_ONCE):
                self._end_session(member, at)
        if self._join_deadline is not None and self._join_deadline <= at.now:
            self._end_join_wait(at)
        if self._sync_deadline is not None and self._sync_deadline <= at.now:
            self._end_sync_wait(at)
        return self._take_effects()

    def replay(self, stored: StoredGroup, at: Instant) -> Effects:
        """Take the state from a record of this group that is in the log. It is a fact, not a move of this
        machine, so the transition table does not apply."""
        self.metadata.protocol_type = stored.protocol_type
        self.metadata.generation = stored.generation
        self.metadata.protocol = stored.protocol
        kept = {m.member_id for m in stored.members}
        for member in self.metadata.roster:
            if member.member_id not in kept:
                self._dismiss(member)
        members: list[ClassicGroupMember] = []
        for row in stored.members:
            known = self.metadata.roster.get(row.member_id)
            member = known or member_from(row, stored.protocol)
            if known is None:
                self._begin_session(member, at)
            member.assignment = row.assignment
            members.append(member)
        self.metadata.roster.replace(members, stored.leader)
        self.metadata.state = ClassicGroupState.STABLE if stored.members else ClassicGroupState.EMPTY
        self.metadata.state_since_ms = stored.state_timestamp_ms
        self._assigned.extend(each for each in members if each.sync_ticket is not None)
        self._answer_syncs(at)
        self._effects.replies += [(ticket, reply) for ticket, reply, _ in self._when_stored]
        self._when_stored = []
        self._join_deadline = None
        if stored.members and stored.leader is None:
            # It used the consumer protocol until now, so no leader has assigned its partitions.
            self._prepare_rebalance(at)
        return self._take_effects()

    def refused(self, error: ErrorCode, at: Instant) -> Effects:
        """What was to be stored could not be appended: requests that waited for it fail, and an assignment
        that no member has received is made again."""
        for ticket, reply, before in self._when_stored:
            self._reply(ticket, JoinReply(error, reply.member_id))
            if (member := self.metadata.roster.get(reply.member_id)) is not None:
                self.metadata.roster.restore(member, before)
        self._when_stored = []
        if self.metadata.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._refuse_assignment(error)
            self._prepare_rebalance(at)
        return self._take_effects()

    def loaded(self, at: Instant) -> None:
        """The log has been read: sessions begin now, since heartbeats were refused until here."""
        for member in self.metadata.roster:
            self._begin_session(member, at)
        is_stable = self.metadata.state is ClassicGroupState.STABLE  # else it rebalances already
        if is_stable and self.size > self._rules.max_size:  # those stay that join again first
            self._prepare_rebalance(at)

    def die(self, at: Instant) -> Effects:
        """The group is deleted, or changes to the consumer protocol: waiting members join again there."""
        for member in self.metadata.roster:
            self._refuse_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.metadata.transition(ClassicGroupState.DEAD, at)
        return self._take_effects()

    # --- joining -------------------------------------------------------------------------------

    def _join_newcomer(self, request: JoinGroup, ticket: Ticket, at: Instant) -> None:
        static = self.metadata.roster.by_instance(request.instance_id)
        if static is not None:
            self._replace_static(static, request, ticket, at)
        elif request.instance_id is None and request.requires_known_id:
            self.metadata.give_out(request.new_member_id, at.now + request.session_timeout_ms / 1000)
            self._reply(ticket, JoinReply(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id))
        else:
            self._add(request, request.new_member_id, ticket, at)

    def _add(self, request: JoinGroup, member_id: str, ticket: Ticket, at: Instant) -> None:
        self.metadata.pending.discard(member_id)
        if not len(self.metadata.roster):
            self.metadata.protocol_type = request.protocol_type
        member = member_of(request, member_id)
        roster = self.metadata.roster
        roster.add(member)
        roster.park_join(member, ticket)
        roster.sessions.set(member_id, at.now + self._rules.new_member_timeout)
        self._gained_member = True
        self._rebalance_or_complete(at)

    def _rejoin(self, request: JoinGroup, ticket: Ticket, at: Instant) -> None:
        member = self.metadata.known_member(request.member_id, request.instance_id)
        if isinstance(member, ErrorCode):
            self._reply(ticket, JoinReply(member, request.member_id))
            return
        state, leads = self.metadata.state, member.member_id == self.metadata.roster.leader
        completing, stable = ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE
        has_begun = state is completing or (state is stable and not leads)
        if has_begun and member.protocols == request.protocols:
            self._extend_session(member, at)  # the last reply was lost: repeat it
            self._reply(ticket, self.metadata.joined(member))
        else:
            # In STABLE a leader that joins again requests a rebalance: it has seen new partitions.
            self._update(member, request, ticket, at)
            self._rebalance_or_complete(at)

    def _update(self, member: ClassicGroupMember, request: JoinGroup, ticket: Ticket, at: Instant) -> None:
        roster = self.metadata.roster
        superseded = JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        self._supersede(roster.take_join(member), superseded)
        roster.change_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_of(request)
        roster.park_join(member, ticket)
        self._extend_session(member, at)

    def _replace_static(
        self, member: ClassicGroupMember, request: JoinGroup, ticket: Ticket, at: Instant
    ) -> None:
        """A static member has restarted: it gets a new member id, the old one is fenced. A stable group does
        not rebalance for that, unless another protocol would be chosen."""
        before, old_leader = replace(member), self.metadata.roster.leader
        self._refuse_waiting(member, ErrorCode.FENCED_INSTANCE_ID)
        self.metadata.roster.rename(member, request.new_member_id)
        self._update(member, request, ticket, at)
        group = self.metadata
        if group.state is not ClassicGroupState.STABLE or group.roster.select_protocol() != group.protocol:
            self._rebalance_or_complete(at)
            return
        group.roster.take_join(member)
        reply = self.metadata.joined(member)
        if request.can_skip_assignment:
            reply = replace(reply, skip_assignment=member.member_id == self.metadata.roster.leader)
        else:  # an old client would assign if it saw itself as leader: show the leader of before
            reply = replace(reply, leader=old_leader or "", members=())
        self._when_stored.append((ticket, reply, before))
        self._effects.store = group.as_stored({m.member_id: m.assignment for m in group.roster})

    def _rebalance_or_complete(self, at: Instant) -> None:
        if self.metadata.state is ClassicGroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(at)
        else:
            self._prepare_rebalance(at)

    def _prepare_rebalance(self, at: Instant) -> None:
        self._refuse_assignment(ErrorCode.REBALANCE_IN_PROGRESS)
        self._sync_deadline = None
        first = self.metadata.state is ClassicGroupState.EMPTY
        self.metadata.transition(ClassicGroupState.PREPARING_REBALANCE, at)
        self._initial_time_left = None
        delay = self._rules.initial_rebalance_delay
        if first and delay > 0:
            self._gained_member = False
            self._initial_time_left = max(self.metadata.rebalance_timeout() - delay, 0.0)
            self._join_deadline = at.now + delay
            return
        self._join_deadline = at.now + self.metadata.rebalance_timeout()
        if first:  # as after the delay: who has only been given an id is not waited for
            self._end_join_wait(at)
        else:
            self._maybe_complete_join(at)

    def _maybe_complete_join(self, at: Instant) -> None:
        gathering = self._initial_time_left is not None
        if self.metadata.state is not ClassicGroupState.PREPARING_REBALANCE or gathering:
            return
        roster = self.metadata.roster
        if roster.all_joined() and not roster.leaving and not self.metadata.pending:
            self._complete_join(at)

    def _end_join_wait(self, at: Instant) -> None:
        left = self._initial_time_left
        if left is not None and left > 0 and self._gained_member:
            # Members are still joining: wait as long again for the next ones.
            self._gained_member = False
            delay = min(self._rules.initial_rebalance_delay, left)
            self._initial_time_left = max(left - delay, 0.0)
            self._join_deadline = at.now + delay
            return
        self._initial_time_left = None
        roster = self.metadata.roster
        roster.let_go(each for each in roster if each.instance_id is None and not roster.has_joined(each))
        self._dismiss_leaving(ENDED_AT_ONCE)
        if not roster.leaving:  # else this is due still
            self._complete_join(at)

    def _complete_join(self, at: Instant) -> None:
        """All that are in the group still have joined, or are static members."""
        self._initial_time_left = self._join_deadline = None
        if len(self.metadata.roster) and not self.metadata.roster.elect_joined():
            # Only static members, none of which has joined again yet: their sessions decide.
            self._join_deadline = at.now + max(self.metadata.rebalance_timeout(), 1.0)
            return
        self.metadata.generation += 1
        self.metadata.roster.pending_sync = self.metadata.roster.member_ids()
        if not len(self.metadata.roster):
            self.metadata.protocol = None
            self.metadata.transition(ClassicGroupState.EMPTY, at)
            self._effects.store = self.metadata.as_stored({})
            return
        self.metadata.protocol = self.metadata.roster.select_protocol()
        self.metadata.transition(ClassicGroupState.COMPLETING_REBALANCE, at)
        self._sync_deadline = at.now + self.metadata.rebalance_timeout()
        for member in self.metadata.roster.not_joined():
            self._extend_session(member, at)
        self._answer_join(self.metadata.roster.leading(), at)  # who has most to do
        self._answer_joins(at)

    def _answer_joins(self, at: Instant) -> None:
        for member in self.metadata.roster.some_joining(ENDED_AT_ONCE):
            self._answer_join(member, at)

    def _answer_join(self, member: ClassicGroupMember, at: Instant) -> None:
        member.is_new = False
        self._extend_session(member, at)
        self._supersede(self.metadata.roster.take_join(member), self.metadata.joined(member))

    # --- syncing -------------------------------------------------------------------------------

    def _refuse_assignment(self, error: ErrorCode) -> None:
        """What members were assigned before stays theirs: cooperative ones read it on."""
        if self.metadata.state is not ClassicGroupState.COMPLETING_REBALANCE and not self._assigned:
            return
        self._assigned.clear()
        for member in self.metadata.roster:
            self._supersede(member.sync_ticket, SyncReply(error))
            member.sync_ticket = None

    def _answer_syncs(self, at: Instant) -> None:
        for _ in range(min(len(self._assigned), ENDED_AT_ONCE)):
            member = self._assigned.popleft()
            if member.sync_ticket is not None:  # else it was refused meanwhile
                self._reply(member.sync_ticket, self.metadata.assigned(member))
                member.sync_ticket = None
                self._extend_session(member, at)

    def _end_sync_wait(self, at: Instant) -> None:
        """Some members joined the generation and never sent a SyncGroup."""
        self._sync_deadline = None
        roster = self.metadata.roster
        roster.let_go(each for each in roster if each.member_id in roster.pending_sync)
        roster.pending_sync.clear()
        self._dismiss_leaving(ENDED_AT_ONCE)
        self._prepare_rebalance(at)

    # --- sessions and leaving ------------------------------------------------------------------

    def _leave_one(self, identity: MemberIdentity) -> ErrorCode:
        if identity.member_id in self.metadata.pending:
            self.metadata.pending.discard(identity.member_id)
            return ErrorCode.NONE
        member = leaving_member(self.metadata, identity)
        if isinstance(member, ErrorCode):
            return member
        self._dismiss(member)
        return ErrorCode.NONE

    def _end_session(self, member: ClassicGroupMember, at: Instant) -> None:
        if self.metadata.roster.waits(member) and not member.is_new:
            self._extend_session(member, at)
            return
        self._dismiss(member)
        self._members_changed(at)

    def _members_changed(self, at: Instant) -> None:
        if self.metadata.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(at)
        else:
            self._maybe_complete_join(at)

    def _dismiss_leaving(self, most: int) -> None:
        for member in list(islice(self.metadata.roster.leaving.values(), most)):
            self._dismiss(member)

    def _dismiss(self, member: ClassicGroupMember) -> None:
        """Remove it from the group, with an answer to whatever it waits for."""
        self._refuse_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.metadata.roster.remove(member)

    def _refuse_waiting(self, member: ClassicGroupMember, error: ErrorCode) -> None:
        if (ticket := self.metadata.roster.take_join(member)) is not None:
            self._reply(ticket, JoinReply(error, member.member_id))
        if member.sync_ticket is not None:
            self._reply(member.sync_ticket, SyncReply(error))
            member.sync_ticket = None

    # --- inside --------------------------------------------------------------------------------

    def _extend_session(self, member: ClassicGroupMember, at: Instant) -> None:
        if not member.is_new:
            self._begin_session(member, at)

    def _begin_session(self, member: ClassicGroupMember, at: Instant) -> None:
        self.metadata.roster.sessions.set(member.member_id, at.now + member.session_timeout)

    def _supersede(self, ticket: Ticket | None, reply: Reply) -> None:
        if ticket is not None:
            self._reply(ticket, reply)

    def _reply(self, ticket: Ticket, reply: Reply) -> None:
        self._effects.replies.append((ticket, reply))

    def _take_effects(self) -> Effects:
        effects, self._effects = self._effects, Effects()
        return effects
