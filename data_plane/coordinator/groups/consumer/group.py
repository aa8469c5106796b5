"""One group of the consumer protocol: every public method is one input.

Decides on a draft, yields records and a reply, and takes the records in `replay`, live and at a load
alike. What the group waits for follows from those records, so that a new coordinator waits for the
same; only the timeouts restart.

    group_metadata_manager -> here -> membership, classic_members -> Draft -> records -> here (replay)
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeVar

from data_plane.coordinator.groups.consumer import classic_members, membership, migration
from data_plane.coordinator.groups.consumer.cluster_view import ClusterView
from data_plane.coordinator.groups.consumer.draft import Draft, removal_bytes
from data_plane.coordinator.groups.consumer.messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
    DescribedConsumerMember,
)
from data_plane.coordinator.groups.consumer.rebalance import (
    RebalanceContext,
    assignor_of,
    patterns_are_old,
)
from data_plane.coordinator.groups.consumer.rules import ConsumerGroupConfig
from data_plane.coordinator.groups.consumer.state import (
    LEAVING,
    LEAVING_FOR_NOW,
    ConsumerGroupMember,
    ConsumerGroupState,
    MemberState,
)
from data_plane.coordinator.groups.consumer.tombstones import tombstones
from data_plane.coordinator.groups.consumer_records import ConsumerGroupRecord, ConsumerGroupRecordType
from data_plane.coordinator.groups.deadlines import Deadlines
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    MemberIdentity,
    SyncGroup,
    SyncReply,
)
from data_plane.coordinator.groups.records import CoordinatorRecord
from data_plane.coordinator.state_machine import Instant
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

ReplyT = TypeVar("ReplyT")
Outcome = tuple[list[CoordinatorRecord], ReplyT]
"""Records to append, all or none, and the reply that rests on them."""

_RETRY_S: Final = 1.0
"""A member that is to be fenced is looked at again, should the records not get into the log."""
DUE_AT_ONCE: Final = 1000
"""Timeouts that one tick looks at: a few more than it has room for, as a rule."""
REMOVED_BYTES: Final = 64 * 1024
"""Of tombstones, at once: after a failover the sessions of thousands may end together, and a name may have
32 KB."""


class MemberTimeout(StrEnum):
    """What a member is waited for."""

    SESSION = "to send a heartbeat"
    REVOCATION = "to give up partitions"
    JOIN = "to join again"
    SYNC = "to come for its assignment"


class ConsumerGroup:
    """See the module."""

    def __init__(
        self,
        group_id: str,
        rules: ConsumerGroupConfig,
        view: ClusterView,
        max_batch_bytes: Callable[[], int],
    ) -> None:
        self.group_id = group_id
        self._max_batch_bytes = max_batch_bytes
        self.state = ConsumerGroupState()
        self._rules = rules
        self._view = view
        self._topics_seen = -1
        """As of which version of the topics the target was looked at."""
        self._deadlines: Deadlines[tuple[str, MemberTimeout]] = Deadlines()

    # --- questions -----------------------------------------------------------------------------

    @property
    def rules(self) -> ConsumerGroupConfig:
        return self._rules.of_group(self._view.group_config(self.group_id))

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    @property
    def size(self) -> int:
        """How many members it has."""
        return len(self.state.members)

    @property
    def is_idle(self) -> bool:
        return self.is_empty

    def next_deadline(self) -> float:
        return self._deadlines.earliest()

    def subscribed_topics(self) -> frozenset[str]:
        return self.state.subscribed_topics()

    def describe(self) -> DescribedConsumerGroup:
        state = self.state
        return DescribedConsumerGroup(
            self.group_id,
            state.phase.value,
            state.epoch,
            state.target_epoch,
            assignor_of(state, self.rules),
            tuple(
                DescribedConsumerMember(member, state.target_of(member_id))
                for member_id, member in state.members.items()
            ),
        )

    def patterns_to_look_up(self, request: ConsumerHeartbeat, at: Instant) -> set[str]:
        """What a heartbeat of this group will need to know; nothing, most of the time."""
        patterns = self.state.pattern_use()
        changed = self._topics_seen != self._view.topics_version
        all_again = changed or patterns_are_old(self.state, self.rules, at)
        needed = set(patterns.used if all_again else patterns.unresolved)
        names = request.subscribed_topic_names
        if names is None and (member := self.state.members.get(request.member_id)) is not None:
            names = member.metadata.subscribed_topic_names
        own = request.subscribed_topic_regex
        if own and not names and own not in self.state.regexes:
            needed.add(own)
        return needed

    def check_commit(self, request: CommitOffsets) -> ErrorCode:
        """Whether these offsets may be committed."""
        if request.generation < 0 and self.is_empty:
            return ErrorCode.NONE
        anonymous = not request.member_id and request.instance_id is None
        if request.producer is not None and request.generation < 0 and anonymous:
            return ErrorCode.NONE
        member, transactional = self.state.members.get(request.member_id), request.producer is not None
        if member is not None and not (member.uses_classic_protocol or transactional or request.knows_epochs):
            return ErrorCode.UNSUPPORTED_VERSION
        refusal = self.check_epoch(request.member_id, request.generation)
        if transactional and refusal is ErrorCode.STALE_MEMBER_EPOCH:
            return ErrorCode.ILLEGAL_GENERATION  # the word that producers know
        return refusal

    def check_epoch(self, member_id: str, epoch: int) -> ErrorCode:
        """Whether the member id and epoch of an offset request are valid."""
        member = self.state.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH

    # --- members of the consumer protocol ------------------------------------------------------

    def heartbeat(self, request: ConsumerHeartbeat, at: Instant) -> Outcome[ConsumerHeartbeatReply]:
        """Raises BrokerError."""
        draft = self._draft()
        if request.member_epoch in (LEAVING, LEAVING_FOR_NOW):
            return self._leave(draft, request, at)
        context = self._context(at, request.may_see)
        reply = membership.heartbeat(draft, request, context)
        self._topics_seen = self._view.topics_version
        self._wait(request.member_id, MemberTimeout.SESSION, at.now + context.rules.session_timeout_ms / 1000)
        return [*draft.records], reply

    def _leave(
        self, draft: Draft, request: ConsumerHeartbeat, at: Instant
    ) -> Outcome[ConsumerHeartbeatReply]:
        member = membership.leaving_member(draft.state, request.member_id, request.instance_id)
        reply = ConsumerHeartbeatReply(request.member_id, request.member_epoch)
        if request.member_epoch == LEAVING_FOR_NOW:
            membership.leave_for_now(draft, member)
            return [*draft.records], reply
        return self._without([member.member_id], at), reply

    # --- members of the classic protocol -------------------------------------------------------

    def join(self, request: JoinGroup, at: Instant) -> Outcome[JoinReply]:
        """Raises BrokerError."""
        draft, context = self._draft(), self._context(at)
        joined = classic_members.join(draft, request, context)
        if joined.reply.error is not ErrorCode.NONE:
            return [], joined.reply
        if not draft.state.regexes:  # those wait for a member of the consumer protocol
            self._topics_seen = self._view.topics_version
        member_id = joined.reply.member_id
        self._deadlines.discard((member_id, MemberTimeout.JOIN))
        self._wait(member_id, MemberTimeout.SESSION, at.now + request.session_timeout_ms / 1000)
        self._wait(member_id, MemberTimeout.SYNC, at.now + joined.rebalance_timeout_ms / 1000)
        as_classic = self._as_classic(draft, frozenset(), context) if joined.took_over else None
        return as_classic or [*draft.records], joined.reply

    def sync(self, request: SyncGroup, at: Instant) -> Outcome[SyncReply]:
        """Raises BrokerError."""
        member = self._classic_member(request.member_id, request.instance_id, request.generation)
        classic_members.check_protocol(member, request)
        if classic_members.must_catch_up(self.state, member):
            self._wait_for_join(member, at)
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._deadlines.discard((member.member_id, MemberTimeout.SYNC))
        self._heard_of(member, at)
        return [], classic_members.assigned(member, self._view)

    def classic_heartbeat(self, request: Heartbeat, at: Instant) -> Outcome[HeartbeatReply]:
        """Raises BrokerError."""
        member = self._classic_member(request.member_id, request.instance_id, request.generation)
        self._heard_of(member, at)
        if not classic_members.must_rejoin(self.state, member):
            return [], HeartbeatReply(ErrorCode.NONE)
        self._wait_for_join(member, at)
        return [], HeartbeatReply(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, request: LeaveGroup, at: Instant) -> Outcome[LeaveReply]:
        outcomes: list[tuple[MemberIdentity, ErrorCode]] = []
        removed: list[str] = []
        for identity in request.members:
            found = classic_members.leaving(self.state, identity)
            if isinstance(found, ConsumerGroupMember):
                removed.append(found.member_id)
            outcomes.append((identity, ErrorCode.NONE if isinstance(found, ConsumerGroupMember) else found))
        return self._without(removed, at), LeaveReply(ErrorCode.NONE, tuple(outcomes))

    # --- time ----------------------------------------------------------------------------------

    def tick(self, at: Instant) -> list[CoordinatorRecord]:
        """Members that were waited for in vain are out: as many as one batch can take, the others with the
        next tick, which is due at once."""
        due: dict[str, list[MemberTimeout]] = {}
        for member_id, wait in self._deadlines.due(at.now, DUE_AT_ONCE):
            if member_id in self.state.members:
                due.setdefault(member_id, []).append(wait)
            else:  # it was to join, and that did not get into the log
                self._deadlines.discard((member_id, wait))
        out: list[str] = []
        room = REMOVED_BYTES
        for member_id, waits in due.items():
            if room <= 0:
                break
            out.append(member_id)
            room -= removal_bytes(self.group_id, member_id)
            for wait in waits:
                self._deadlines.set((member_id, wait), at.now + _RETRY_S)
        return self._without(out, at)

    # --- replay --------------------------------------------------------------------------------

    def replay(self, record: ConsumerGroupRecord, at: Instant) -> None:
        self.state.replay(record)
        member = self.state.members.get(record.name)
        if record.kind is ConsumerGroupRecordType.MEMBER and member is None:
            for wait in MemberTimeout:
                self._deadlines.discard((record.name, wait))
        elif record.kind is ConsumerGroupRecordType.MEMBER and member is not None:
            if (record.name, MemberTimeout.SESSION) not in self._deadlines:
                self._heard_of(member, at)
        elif record.kind is ConsumerGroupRecordType.CURRENT and member is not None:
            self._deadlines.discard((record.name, MemberTimeout.REVOCATION))
            if member.state is MemberState.UNREVOKED_PARTITIONS and not member.uses_classic_protocol:
                self._wait(
                    record.name,
                    MemberTimeout.REVOCATION,
                    at.now + member.metadata.rebalance_timeout_ms / 1000,
                )

    def refused(self) -> None:
        """What was decided is not in the log: look at the topics again."""
        self._topics_seen = -1

    def loaded(self, at: Instant) -> None:
        """Sessions start now: heartbeats were refused until here."""
        for member in self.state.members.values():
            self._heard_of(member, at)

    def tombstones(self) -> list[CoordinatorRecord]:
        """For a group that is deleted, or changes its protocol while it is empty."""
        return tombstones(self.group_id, self.state)

    # --- inside --------------------------------------------------------------------------------

    def _draft(self) -> Draft:
        return Draft(self.group_id, self.state)

    def _context(self, at: Instant, may_see: Callable[[str], bool] | None = None) -> RebalanceContext:
        topics_changed = self._topics_seen != self._view.topics_version
        return RebalanceContext(self.rules, self._view, at, topics_changed, may_see)

    def _without(self, member_ids: list[str], at: Instant) -> list[CoordinatorRecord]:
        """Members are out; if only those of the classic protocol stay, the group is theirs again."""
        if not member_ids:
            return []
        draft, context = self._draft(), self._context(at)
        as_classic = self._as_classic(draft, frozenset(member_ids), context)
        if as_classic is None:
            membership.remove(draft, member_ids, context)
        return as_classic or [*draft.records]

    def _as_classic(
        self, draft: Draft, leaving: frozenset[str], context: RebalanceContext
    ) -> list[CoordinatorRecord] | None:
        """The group as one of the classic protocol, if all that stay use that, and it can be stored."""
        if not migration.may_downgrade(draft.state, leaving, context.rules):
            return None
        return migration.downgrade(draft, leaving, context.view, context.at, self._max_batch_bytes())

    def _classic_member(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ConsumerGroupMember:
        if instance_id is None:
            member = membership.known_member(self.state, member_id)
        else:
            member = membership.known_static_member(self.state, member_id, instance_id)
        if not member.uses_classic_protocol:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation != member.epoch:
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        return member

    def _heard_of(self, member: ConsumerGroupMember, at: Instant) -> None:
        classic = member.metadata.classic
        timeout_ms = self.rules.session_timeout_ms if classic is None else classic.session_timeout_ms
        self._wait(member.member_id, MemberTimeout.SESSION, at.now + timeout_ms / 1000)

    def _wait_for_join(self, member: ConsumerGroupMember, at: Instant) -> None:
        """From the first reply that requires it."""
        deadline = at.now + member.metadata.rebalance_timeout_ms / 1000
        if (member.member_id, MemberTimeout.JOIN) not in self._deadlines:
            self._wait(member.member_id, MemberTimeout.JOIN, deadline)

    def _wait(self, member_id: str, wait: MemberTimeout, deadline: float) -> None:
        self._deadlines.set((member_id, wait), deadline)
