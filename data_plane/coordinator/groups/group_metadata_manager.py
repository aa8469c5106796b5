"""All groups and offsets of one partition of `__consumer_offsets`: the groups coordinator's state machine.

Finds the group that a request is for, lets it decide, and turns its effects into records; tracks
when the next group's `tick` is due. Pure; one per runtime.Shard.

A group is of the classic or of the consumer protocol; it may change from the one to the other, by
records.

    service -> runtime.Shard -> GroupMetadataManager -> ClassicGroup, ConsumerGroup, Offsets
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from data_plane.coordinator.groups import records as codec
from data_plane.coordinator.groups.classic.group import ClassicGroup
from data_plane.coordinator.groups.classic.states import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroupConfig,
    ClassicGroupState,
    Effects,
)
from data_plane.coordinator.groups.consumer.cluster_view import ClusterView
from data_plane.coordinator.groups.consumer.group import ConsumerGroup, Outcome
from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat
from data_plane.coordinator.groups.consumer.rules import ConsumerGroupConfig
from data_plane.coordinator.groups.consumer.state import JOINING
from data_plane.coordinator.groups.consumer.upgrade import Upgrade, Upgrades, may_upgrade
from data_plane.coordinator.groups.consumer_records import ConsumerGroupRecord, ConsumerGroupRecordType
from data_plane.coordinator.groups.deadlines import Alarms
from data_plane.coordinator.groups.group_summaries import AnyGroup, listed, members
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    CommitReply,
    CommittedOffset,
    DescribedGroup,
    FetchOffsets,
    GroupSummary,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    ListedGroup,
    OffsetsReply,
    SyncGroup,
    SyncReply,
)
from data_plane.coordinator.groups.offsets import (
    OffsetMetadataManager,
    TopicDeletion,
    UnfinishedDeletion,
    commit_records,
    tombstones_at_once,
)
from data_plane.coordinator.groups.records import CoordinatorRecord, GroupRecord, OffsetRecord
from data_plane.coordinator.state_machine import (
    ALL,
    CoordinatorResult,
    Instant,
    Replies,
    Ticket,
    weight_of,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition

Records = list[CoordinatorRecord]
GroupResult = CoordinatorResult[CoordinatorRecord]

LOOKED_AT: Final = 2_000
"""Offsets and groups, and what tells what these read, in one part of a sweep or of a list."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Configuration of groups and their offsets."""

    rules: ClassicGroupConfig = field(default_factory=ClassicGroupConfig)
    consumer: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_metadata_bytes: int = 4_096
    """offset.metadata.max.bytes; see `commit_records`"""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    """offsets.retention.minutes"""
    max_records_per_sweep: int = 1_000
    """So that a sweep is one batch of bounded size."""


class GroupMetadataManager:
    """Implements CoordinatorStateMachine."""

    def __init__(
        self,
        limits: GroupLimits,
        view: ClusterView | None = None,
        max_batch_bytes: Callable[[], int] = lambda: ALL,
    ) -> None:
        """`max_batch_bytes`: what the log takes at once."""
        self._limits = limits
        self._max_batch_bytes = max_batch_bytes
        self._view = view or ClusterView()
        self._groups: dict[str, AnyGroup] = {}
        self._successors: dict[str, AnyGroup] = {}
        """Of groups that change their protocol, until their tombstones are in the log: a classic one of an
        empty group of the consumer protocol, and what an `Upgrade` has made."""
        self._upgrades = Upgrades(self._view)
        self._offsets = OffsetMetadataManager()
        self._alarms = Alarms()

    def group(self, group_id: str) -> AnyGroup | None:
        """A group as it is now, None where there is none; to look at, not to change."""
        return self._groups.get(group_id)

    # --- membership ----------------------------------------------------------------------------

    def join(self, request: JoinGroup, ticket: Ticket, at: Instant) -> GroupResult:
        limits = self._limits
        if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
            reply = JoinReply(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
            return CoordinatorResult(replies=[(ticket, reply)])
        group = self._groups.get(request.group_id)
        before: list[CoordinatorRecord] = []
        if isinstance(group, ConsumerGroup):
            if not group.is_empty:
                return self._outcome(group, group.join(request, at), ticket)
            before, group = group.tombstones(), None
        if group is None:
            if request.member_id:
                reply = JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
                return CoordinatorResult(replies=[(ticket, reply)])
            group = ClassicGroup(request.group_id, limits.rules, at)
            (self._successors if before else self._groups)[group.group_id] = group
        decision = self._decided(group, group.join(request, ticket, at))
        decision.records[:0] = before
        return decision

    def sync(self, request: SyncGroup, ticket: Ticket, at: Instant) -> GroupResult:
        group = self._groups.get(request.group_id)
        if group is None:
            return CoordinatorResult(replies=[(ticket, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))])
        if isinstance(group, ConsumerGroup):
            return self._outcome(group, group.sync(request, at), ticket)
        return self._decided(group, group.sync(request, ticket, at))

    def heartbeat(self, request: Heartbeat, ticket: Ticket, at: Instant) -> GroupResult:
        group = self._groups.get(request.group_id)
        if group is None:
            return CoordinatorResult(replies=[(ticket, HeartbeatReply(ErrorCode.UNKNOWN_MEMBER_ID))])
        if isinstance(group, ConsumerGroup):
            return self._outcome(group, group.classic_heartbeat(request, at), ticket)
        # A heartbeat only puts deadlines off, and alarms may ring early: no need to look at them.
        return CoordinatorResult(replies=list(group.heartbeat(request, ticket, at).replies))

    def leave(self, request: LeaveGroup, ticket: Ticket, at: Instant) -> GroupResult:
        group = self._groups.get(request.group_id)
        if group is None:
            outcomes = tuple((identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in request.members)
            return CoordinatorResult(replies=[(ticket, LeaveReply(ErrorCode.NONE, outcomes))])
        if isinstance(group, ConsumerGroup):
            return self._outcome(group, group.leave(request, at), ticket)
        return self._decided(group, group.leave(request, ticket, at))

    def patterns_to_look_up(self, request: ConsumerHeartbeat, at: Instant) -> set[str]:
        """Before `consumer_heartbeat`, which does not wait for them."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group.patterns_to_look_up(request, at)
        regex = request.subscribed_topic_regex
        return {regex} if regex and not request.subscribed_topic_names else set()

    def upgrade_for(self, request: ConsumerHeartbeat) -> Upgrade | None:
        """Before `consumer_heartbeat`, which makes what is left of it. None where no classic group is to be
        converted. Raises BrokerError where it cannot be."""
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup) or group.is_empty or request.member_epoch != JOINING:
            return None
        if not may_upgrade(group, self._limits.consumer):
            raise _not_found(request.group_id, "consumer", group)
        return self._upgrades.of(group, self._max_batch_bytes())

    def consumer_heartbeat(self, request: ConsumerHeartbeat, ticket: Ticket, at: Instant) -> GroupResult:
        """A member of the consumer protocol joins, stays or leaves. Raises BrokerError."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._outcome(group, group.heartbeat(request, at), ticket)  # sessions may be shorter now
        if request.member_epoch != JOINING:
            raise _not_found(request.group_id, "consumer", group)
        upgrade = self.upgrade_for(request)
        before: list[CoordinatorRecord] = [] if group is None else [GroupRecord(group.group_id, None)]
        successor = self._new_consumer_group(request.group_id)
        if upgrade is not None:
            before += upgrade.records()
            successor.state = upgrade.state
        records, reply = successor.heartbeat(request, at)
        if upgrade is not None:
            self._successors[request.group_id] = successor
        return CoordinatorResult([*before, *records], [(ticket, reply)])

    # --- offsets -------------------------------------------------------------------------------

    def commit(self, request: CommitOffsets, ticket: Ticket, at: Instant) -> GroupResult:
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            refusal = group.check_commit(request)
        elif group is not None:
            refusal = group.check_commit(request, at)
        elif self._exists(request.group_id):  # offsets without members
            refusal = ErrorCode.NONE if request.generation < 0 else ErrorCode.UNKNOWN_MEMBER_ID
        else:
            modern = request.knows_epochs and request.producer is None
            unknown = ErrorCode.GROUP_ID_NOT_FOUND if modern else ErrorCode.ILLEGAL_GENERATION
            refusal = ErrorCode.NONE if request.generation < 0 else unknown
        refusal = refusal or self._offsets.check_room(request)
        if refusal is not ErrorCode.NONE:
            refusals = {offset.partition: refusal for offset in request.offsets}
            return CoordinatorResult(replies=[(ticket, CommitReply(refusals))])
        records, errors = commit_records(request, self._limits.max_metadata_bytes, at)
        return CoordinatorResult(list(records), [(ticket, CommitReply(errors))], request.producer)

    def fetch(self, request: FetchOffsets, ticket: Ticket, at: Instant) -> GroupResult:
        """Raises BrokerError for a member of the consumer protocol that is not where it believes to be."""
        group = self._groups.get(request.group_id)
        claims_membership = request.member_id is not None or request.member_epoch >= 0
        if isinstance(group, ConsumerGroup) and claims_membership:
            refusal = group.check_epoch(request.member_id or "", request.member_epoch)
            if refusal is not ErrorCode.NONE:
                raise BrokerError(refusal)
        kept = self._offsets.of(request.group_id)
        wanted: Mapping[TopicPartition, CommittedOffset | None] = (
            dict(kept) if request.partitions is None else {p: kept.get(p) for p in request.partitions}
        )
        unstable = self._offsets.held(request.group_id, wanted) if request.require_stable else frozenset()
        return CoordinatorResult(replies=[(ticket, OffsetsReply(wanted, unstable))])

    def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], ticket: Ticket, at: Instant
    ) -> GroupResult:
        """Refused per topic that the group reads; all of them where nobody knows which ones a group of
        consumers reads."""
        if not self._exists(group_id):
            return CoordinatorResult(replies=[(ticket, ErrorCode.GROUP_ID_NOT_FOUND)])
        group = self._groups.get(group_id)
        in_use: frozenset[str] | None = frozenset()
        if isinstance(group, ConsumerGroup):
            in_use = group.subscribed_topics()
        elif group is not None and not group.is_empty:
            if group.metadata.protocol_type != CONSUMER_PROTOCOL_TYPE:
                return CoordinatorResult(replies=[(ticket, ErrorCode.NON_EMPTY_GROUP)])
            in_use = group.metadata.topics_in_use()
        records, errors = self._offsets.deletion(group_id, partitions, in_use)
        return CoordinatorResult([*records], [(ticket, CommitReply(errors))], atomic=False)

    def groups_to_expire(self) -> deque[str]:
        """All of them, for one sweep; some come twice, because to look for those takes longest."""
        return deque([*self._groups, *self._offsets.groups()])

    def expire(self, left: deque[str], at: Instant) -> GroupResult:
        """Some of a sweep: offsets past their retention, then groups that have no offsets left. A group of
        which the limit of records leaves something comes again, behind the others."""
        room, looked_at, seen = self._limits.max_records_per_sweep, 0, set[str]()
        records: list[CoordinatorRecord] = []
        while left and room > 0 and looked_at < LOOKED_AT:
            if (group_id := left.popleft()) in seen:
                continue
            seen.add(group_id)
            group = self._groups.get(group_id)
            looked_at += self._offsets.to_look_at(group_id, group)
            expired = self._offsets.expired(group_id, group, self._limits.offsets_retention_ms, at)
            at_once = tombstones_at_once(group_id, room)
            expired_now = list(islice(expired, at_once))
            records += expired_now
            room -= len(expired_now) * weight_of(group_id)
            empty = len(expired_now) == len(self._offsets.of(group_id))
            if group is not None and group.is_idle and empty and not self._offsets.is_held(group_id):
                records += group.tombstones()
                room -= weight_of(group_id)
            elif len(expired_now) == at_once:
                left.append(group_id)
                break
        return CoordinatorResult(records, atomic=False)

    def topics_committed(self) -> set[str]:
        """For which groups have offsets."""
        return self._offsets.topics()

    def begin_topic_deletion(self, what: UnfinishedDeletion) -> TopicDeletion:
        """The topics are deleted now: offsets committed for them so far will be deleted."""
        return self._offsets.begin_topic_deletion(what)

    def unfinished_deletions(self) -> Sequence[UnfinishedDeletion]:
        """For the machine that takes the place of this one."""
        return self._offsets.unfinished_deletions()

    def delete_some_offsets(self, deletion: TopicDeletion, at: Instant) -> GroupResult:
        """One batch of it; to be repeated while something is left."""
        records = self._offsets.delete_some_offsets(deletion, self._limits.max_records_per_sweep)
        return CoordinatorResult([*records], atomic=False)

    def refuse_topic_deletion(self, deletion: TopicDeletion) -> None:
        """Not all records of the last batch could be appended."""
        self._offsets.refuse_topic_deletion(deletion)

    # --- looking at groups, deleting them ------------------------------------------------------

    def group_ids(self) -> Iterator[Sequence[str]]:
        """Of all groups that there are at the beginning, some at a time; at least once."""
        known = self._groups.copy()
        ids = [*known, *self._offsets.groups()]
        for start in range(0, max(len(ids), 1), LOOKED_AT):
            part = enumerate(ids[start : start + LOOKED_AT], start)
            yield [each for place, each in part if place < len(known) or each not in known]

    def list(self, group_ids: Iterable[str], ticket: Ticket, at: Instant) -> GroupResult:
        """Those of them that are there still."""
        return CoordinatorResult(replies=[(ticket, tuple(filter(None, map(self._listed, group_ids))))])

    def summary(self, group_id: str) -> GroupSummary | None:
        """The group as it is now, replicated or not; for monitoring."""
        listed, group = self._listed(group_id), self._groups.get(group_id)
        if listed is None:
            return None
        return GroupSummary(listed, () if group is None else members(group), self._offsets.of(group_id))

    def size_of(self, group_id: str) -> int:
        """How many members it has."""
        group = self._groups.get(group_id)
        return 0 if group is None else group.size

    def _listed(self, group_id: str) -> ListedGroup | None:
        group = self._groups.get(group_id)
        if group is not None:
            return listed(group)
        if group_id in self._offsets:
            return ListedGroup(group_id, "", ClassicGroupState.EMPTY.value)
        return None

    def describe(self, group_id: str, ticket: Ticket, at: Instant) -> GroupResult:
        """A classic group. Raises BrokerError, GROUP_ID_NOT_FOUND for one of the consumer protocol."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            raise _not_found(group_id, "classic", group)
        if group is not None:
            described = group.describe()
        elif group_id in self._offsets:
            described = DescribedGroup(group_id, ClassicGroupState.EMPTY.value)
        else:
            dead, missing = ClassicGroupState.DEAD.value, ErrorCode.GROUP_ID_NOT_FOUND
            described = DescribedGroup(group_id, dead, error=missing)
        return CoordinatorResult(replies=[(ticket, described)])

    def describe_consumer(self, group_id: str, ticket: Ticket, at: Instant) -> GroupResult:
        """A group of the consumer protocol. Raises BrokerError."""
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            known = group is not None or group_id in self._offsets
            raise _not_found(group_id, "consumer", known or None)
        return CoordinatorResult(replies=[(ticket, group.describe())])

    def delete(self, group_id: str, ticket: Ticket, at: Instant) -> GroupResult:
        """The reply is an ErrorCode; None where the caller must repeat it, since there is more to delete."""
        if not self._exists(group_id):
            return CoordinatorResult(replies=[(ticket, ErrorCode.GROUP_ID_NOT_FOUND)])
        group = self._groups.get(group_id)
        if group is not None and not group.is_empty:
            return CoordinatorResult(replies=[(ticket, ErrorCode.NON_EMPTY_GROUP)])
        limit = tombstones_at_once(group_id, self._limits.max_records_per_sweep)
        records: list[CoordinatorRecord] = [*islice(self._offsets.tombstones(group_id), limit + 1)]
        if len(records) > limit:
            return CoordinatorResult(records[:limit], [(ticket, None)], atomic=False)
        if group is not None:
            records += group.tombstones()
        return CoordinatorResult(records, [(ticket, ErrorCode.NONE)], atomic=False)

    # --- CoordinatorStateMachine ---------------------------------------------------------------

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        return codec.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        return codec.decode(key, value)

    def replay(self, record: CoordinatorRecord, at: Instant) -> Replies:
        if isinstance(record, OffsetRecord):
            self._offsets.replay(record)
            return []
        if isinstance(record, ConsumerGroupRecord):
            self._replay_consumer(record, at)
            return []
        if isinstance(record, codec.EncodedRecord):  # the successor, which comes with the tombstone, has it
            return []
        group = self._groups.get(record.group_id)
        if record.value is None:
            if not isinstance(group, ClassicGroup):
                return []
            del self._groups[record.group_id]
            if (successor := self._successors.pop(record.group_id, None)) is not None:
                self._groups[record.group_id] = successor
                successor.loaded(at)
                self._set_alarm(successor)
            return list(group.die(at).replies)
        if not isinstance(group, ClassicGroup):
            group = self._groups[record.group_id] = ClassicGroup(record.group_id, self._limits.rules, at)
        effects = group.replay(record.value, at)
        self._set_alarm(group)
        return list(effects.replies)

    def hold(self, record: CoordinatorRecord, producer_id: int) -> None:
        if isinstance(record, OffsetRecord):
            self._offsets.hold(record, producer_id)

    def end_transaction(self, producer_id: int, *, commit: bool, most: int = ALL) -> bool:
        return self._offsets.end_transaction(producer_id, commit=commit, most=most)

    def refused(self, records: Sequence[CoordinatorRecord], error: ErrorCode, at: Instant) -> Replies:
        replies: Replies = []
        for record in records:
            if isinstance(successor := self._successors.pop(record.group_id, None), ClassicGroup):
                replies += ((ticket, BrokerError(error)) for ticket, _ in successor.die(at).replies)
            group = self._groups.get(record.group_id)
            if isinstance(group, ConsumerGroup):
                group.refused()
            elif isinstance(record, GroupRecord) and record.value is not None and group is not None:
                replies += group.refused(error, at).replies
                self._set_alarm(group)
        return replies

    def loaded(self, at: Instant) -> Iterator[int]:
        for group in list(self._groups.values()):
            group.loaded(at)
            self._set_alarm(group)
            yield 1 + group.size

    def next_deadline(self) -> float:
        return self._alarms.earliest()

    def tick(self, at: Instant) -> GroupResult:
        """Of one group whose time is up: what could not be stored of it holds up no other one. Where there
        are more, `next_deadline` is over already."""
        while (group_id := self._alarms.take(at.now)) is not None:
            group = self._groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                records = group.tick(at)
                self._set_alarm(group)
                return CoordinatorResult(records)
            if group is not None:
                return self._decided(group, group.tick(at))
        return CoordinatorResult()

    # --- inside --------------------------------------------------------------------------------

    def _exists(self, group_id: str) -> bool:
        return group_id in self._groups or group_id in self._offsets

    def _decided(self, group: ClassicGroup, effects: Effects) -> GroupResult:
        self._set_alarm(group)
        decision: GroupResult = CoordinatorResult(replies=list(effects.replies))
        if effects.store is not None:
            decision.records.append(GroupRecord(group.group_id, effects.store))
        return decision

    def _outcome(self, group: ConsumerGroup, outcome: Outcome[object], ticket: Ticket) -> GroupResult:
        records, reply = outcome
        self._set_alarm(group)
        return CoordinatorResult(records, [(ticket, reply)])

    def _new_consumer_group(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._limits.consumer, self._view, self._max_batch_bytes)

    def _replay_consumer(self, record: ConsumerGroupRecord, at: Instant) -> None:
        group = self._groups.get(record.group_id)
        if record.value is None:
            if not isinstance(group, ConsumerGroup):
                return
            group.replay(record, at)
            if record.kind is ConsumerGroupRecordType.GROUP:
                del self._groups[record.group_id]
                if (successor := self._successors.pop(record.group_id, None)) is not None:
                    self._groups[record.group_id] = successor
            return
        if not isinstance(group, ConsumerGroup):
            group = self._groups[record.group_id] = self._new_consumer_group(record.group_id)
        group.replay(record, at)
        self._set_alarm(group)

    def _set_alarm(self, group: AnyGroup) -> None:
        self._alarms.set(group.group_id, group.next_deadline())


def _not_found(group_id: str, protocol: str, found: object) -> BrokerError:
    """There is no group of that type."""
    problem = "not found" if found is None else f"is not a {protocol} group"
    return BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {problem}.")
