"""One consumer-protocol group as its records describe it. Changes enter through `replay` only.

A member is `STABLE` when it has reached the epoch it was last sent, `UNREVOKED_PARTITIONS` while it
must revoke partitions before it may advance, `UNRELEASED_PARTITIONS` while others own what it is to
get. A partition has one owner: the member that has it assigned, or has yet to revoke it.

Owned by group.py; draft.py makes copies to decide on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from itertools import chain
from typing import Final, NamedTuple

from data_plane.coordinator.groups.assignment import (
    NOTHING,
    Assignment,
    TopicIdPartition,
    partitions_of,
)
from data_plane.coordinator.groups.consumer.subscriptions import Subscriptions, Topics
from data_plane.coordinator.groups.consumer_records import (
    ConsumerGroupRecord,
    ConsumerGroupRecordType,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    ResolvedRegex,
    TargetAssignment,
    TargetAssignmentEpoch,
)

JOINING: Final = 0
"""Member epoch of a member that joins, for the first time or again."""
LEAVING: Final = -1
LEAVING_FOR_NOW: Final = -2
"""A static member leaves and keeps its place."""


class MemberState(IntEnum):
    """Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class GroupPhase(Enum):
    """Kafka's names for what a group is at."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    member_id: str
    metadata: MemberMetadata
    epoch: int = JOINING
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=lambda: NOTHING)
    pending_revocation: Assignment = field(default_factory=lambda: NOTHING)

    @property
    def instance_id(self) -> str | None:
        return self.metadata.instance_id

    @property
    def uses_classic_protocol(self) -> bool:
        return self.metadata.classic is not None

    @property
    def away(self) -> bool:
        """A static member that has left for now."""
        return self.epoch == LEAVING_FOR_NOW

    def reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch


class PatternUse(NamedTuple):
    """What members' regular expressions ask for; most heartbeats change nothing of it."""

    used: frozenset[str]
    unresolved: frozenset[str]
    unused: frozenset[str]
    """Resolved once, and no member's any more."""
    oldest_ms: int | None
    """When the first of those that are resolved was."""


class ConsumerGroupState:
    """Members, what they have, what they are to have."""

    def __init__(self) -> None:
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerGroupMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.subscriptions = Subscriptions()
        """Of `members` and `regexes`."""
        self._owners: dict[TopicIdPartition, str] = {}
        self._static: dict[str, str] = {}
        self._pattern_use: PatternUse | None = None
        """As long as it is true."""

    def copy(self) -> ConsumerGroupState:
        twin = ConsumerGroupState()
        twin.epoch, twin.metadata_hash, twin.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        twin.members, twin.targets = dict(self.members), dict(self.targets)
        twin.regexes, twin._owners, twin._static = dict(self.regexes), dict(self._owners), dict(self._static)
        twin.subscriptions, twin._pattern_use = self.subscriptions.copy(), self._pattern_use
        return twin

    # --- questions -----------------------------------------------------------------------------

    @property
    def phase(self) -> GroupPhase:
        if not self.members:
            return GroupPhase.EMPTY
        if self.epoch > self.target_epoch:
            return GroupPhase.ASSIGNING
        if all(member.reconciled_to(self.target_epoch) for member in self.members.values()):
            return GroupPhase.STABLE
        return GroupPhase.RECONCILING

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        return self.members.get(self._static.get(instance_id or "", ""))

    def target_of(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NOTHING)

    def owner(self, partition: TopicIdPartition) -> str | None:
        return self._owners.get(partition)

    def pattern_use(self) -> PatternUse:
        if self._pattern_use is None:
            used = frozenset(
                regex for m in self.members.values() if (regex := m.metadata.subscribed_topic_regex)
            )
            self._pattern_use = PatternUse(
                used,
                used - self.regexes.keys(),
                frozenset(self.regexes.keys() - used),
                min((resolved.timestamp for resolved in self.regexes.values()), default=None),
            )
        return self._pattern_use

    def lists_of(self, member: ConsumerGroupMember) -> tuple[Topics, Topics]:
        """The topics that a member reads, by name and by regular expression; equal lists are one object."""
        resolved = self.regexes.get(member.metadata.subscribed_topic_regex or "")
        return member.metadata.subscribed_topic_names, () if resolved is None else resolved.topics

    def subscribed_topics(self) -> frozenset[str]:
        return self.subscriptions.topics()

    # --- replay --------------------------------------------------------------------------------

    def replay(self, record: ConsumerGroupRecord) -> None:
        name = record.name
        match record.value:
            case GroupEpoch(epoch, metadata_hash):
                self.epoch, self.metadata_hash = epoch, metadata_hash
            case TargetAssignmentEpoch(epoch):
                self.target_epoch = epoch
            case TargetAssignment(partitions):
                self.targets[name] = partitions
            case ResolvedRegex():
                resolved = self.subscriptions.add_pattern(record.value)
                self._forget_regex(name)
                self.regexes[name] = resolved
            case MemberMetadata():
                before = self.members.get(name)
                after = ConsumerGroupMember(name, record.value)
                self._put(after if before is None else replace(before, metadata=record.value))
            case CurrentAssignment():
                self._put(self._moved(name, record.value))
            case None:
                self._bury(record.kind, name)

    def recount(self) -> None:
        """Who holds what, from the members as they are: they were put in one by one, while partitions and
        instances went from one to another."""
        members = self.members.values()
        self._owners = {partition: each.member_id for each in members for partition in _held(each)}
        self._static = {each.instance_id: each.member_id for each in members if each.instance_id is not None}

    def _bury(self, kind: ConsumerGroupRecordType, name: str) -> None:
        match kind:
            case ConsumerGroupRecordType.GROUP:
                self.epoch = self.metadata_hash = 0
            case ConsumerGroupRecordType.TARGET_EPOCH:
                self.target_epoch = 0
            case ConsumerGroupRecordType.TARGET:
                self.targets.pop(name, None)
            case ConsumerGroupRecordType.REGEX:
                self._forget_regex(name)
            case ConsumerGroupRecordType.CURRENT:
                if name in self.members:
                    self._put(ConsumerGroupMember(name, self.members[name].metadata))
            case ConsumerGroupRecordType.MEMBER:
                self._take_out(name)

    def _moved(self, member_id: str, value: CurrentAssignment) -> ConsumerGroupMember:
        known, member = value.state in MemberState._value2member_map_, self.members.get(member_id)
        return ConsumerGroupMember(
            member_id,
            MemberMetadata() if member is None else member.metadata,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=value.assigned_partitions,
            pending_revocation=value.partitions_pending_revocation,
        )

    def _put(self, member: ConsumerGroupMember) -> None:
        """Keeps the order in which members joined."""
        member_id = member.member_id
        before = self.members.get(member_id)
        if before is not None:
            self._let_go(before)
            if before.instance_id != member.instance_id:
                self._forget_instance(before)
        if before is None or before.metadata is not member.metadata:
            self._pattern_use = None
            metadata = self.subscriptions.add_member(member_id, member.metadata)
            if metadata is not member.metadata:
                member = replace(member, metadata=metadata)
            if before is not None:
                self.subscriptions.remove_member(member_id, before.metadata)
        self.members[member_id] = member
        for partition in _held(member):
            self._owners[partition] = member_id
        if member.instance_id is not None:
            self._static[member.instance_id] = member_id

    def _take_out(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._pattern_use = None
        self.subscriptions.remove_member(member_id, member.metadata)
        self._let_go(member)
        self._forget_instance(member)

    def _forget_regex(self, regex: str) -> None:
        self._pattern_use = None
        resolved = self.regexes.pop(regex, None)
        if resolved is not None:
            self.subscriptions.remove_pattern(resolved)

    def _forget_instance(self, member: ConsumerGroupMember) -> None:
        instance_id = member.instance_id
        if instance_id is not None and self._static.get(instance_id) == member.member_id:
            del self._static[instance_id]

    def _let_go(self, member: ConsumerGroupMember) -> None:
        for partition in _held(member):
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]


def _held(member: ConsumerGroupMember) -> Iterable[TopicIdPartition]:
    if not member.pending_revocation:
        return partitions_of(member.assigned) if member.assigned else ()
    return chain(partitions_of(member.assigned), partitions_of(member.pending_revocation))
