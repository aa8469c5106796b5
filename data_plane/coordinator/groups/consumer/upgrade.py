"""A classic group as one of the consumer protocol, made while it goes on as a classic one.

A member takes some 50 microseconds, and there may be thousands. So they are converted some in each turn of
the loop, before the decision that needs them all. It converts only those that have said something else since.

    service -> Upgrade.steps        in many turns
    group_metadata_manager -> Upgrade.records, Upgrade.state        in the one that decides
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple
from uuid import UUID
from weakref import WeakValueDictionary

from data_plane.coordinator.groups.assignment import Assignment
from data_plane.coordinator.groups.classic.consumer_protocol import (
    MAX_TOPICS,
    PARTITIONS_AS_TOPIC,
    Allowance,
    KnownLists,
    read_assignment,
    read_subscription,
)
from data_plane.coordinator.groups.classic.group import ClassicGroup
from data_plane.coordinator.groups.classic.members import ClassicGroupMember as ClassicMember
from data_plane.coordinator.groups.classic.states import CONSUMER_PROTOCOL_TYPE, ClassicGroupState
from data_plane.coordinator.groups.consumer.classic_members import by_id
from data_plane.coordinator.groups.consumer.cluster_view import ClusterView
from data_plane.coordinator.groups.consumer.draft import Draft
from data_plane.coordinator.groups.consumer.rules import ConsumerGroupConfig
from data_plane.coordinator.groups.consumer.state import ConsumerGroupMember as ConsumerMember
from data_plane.coordinator.groups.consumer.state import ConsumerGroupState
from data_plane.coordinator.groups.consumer_records import (
    ClassicMetadata,
    ClassicProtocol,
    ConsumerGroupRecord,
    MemberMetadata,
)
from data_plane.coordinator.groups.records import CoordinatorRecord, EncodedRecord, encode
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID

MAX_NAMES: Final = 20_000
"""Topics in different subscriptions: they are looked for in one turn of the loop."""
AT_ONCE: Final = 64
"""Members that are converted in one turn of the loop."""
BYTES_AS_MEMBER: Final = 256
"""So many of what a member says and has been assigned take as long as a member."""
_RECORDS: Final = 3
"""Of each member of the consumer protocol."""
_NUMBERS: Final = 60
"""Bytes that those have besides what the member says, at least."""


_SAID: Final[Callable[[ClassicMember], tuple[object, ...]]] = attrgetter(
    "instance_id",
    "client_id",
    "client_host",
    "session_timeout_ms",
    "rebalance_timeout_ms",
    "protocols",
    "assignment",
)
"""All of a member that its records follow from."""


class _Converted(NamedTuple):
    said: tuple[object, ...]
    as_member: EncodedRecord
    target: EncodedRecord
    current: EncodedRecord
    names: tuple[str, ...]
    """Of topics that it has been assigned."""
    topics: int
    """How many those that exist are; partitions count, too."""


def may_upgrade(group: ClassicGroup, rules: ConsumerGroupConfig) -> bool:
    return (
        rules.migration.upgrades
        and group.metadata.protocol_type == CONSUMER_PROTOCOL_TYPE
        and len(group.metadata.roster) <= rules.max_size
    )


class Upgrade:
    """Of one group."""

    def __init__(self, group: ClassicGroup, view: ClusterView, max_bytes: int) -> None:
        """Raises BrokerError where the records of so many members have no room in a batch."""
        _check_size(group.group_id, group.metadata.roster.staying(), max_bytes)
        self.group = group
        self.state = ConsumerGroupState()
        """The group as it will be, as soon as `records` has been called."""
        self._view = view
        self._lists = KnownLists()
        self._converted: dict[str, _Converted] = {}
        self._generation = -1
        self._ids: dict[str, UUID | None] = {}
        """Of topics that members have been assigned, as each was when it was met first, or looked at again
        with this version of the topics."""
        self._topics_version = -1
        self._topics = 0
        """That all have been assigned."""
        self._pieces: deque[Sequence[ClassicMember]] = deque()
        """That are left to do, by whoever has a turn."""

    def steps(self) -> Iterator[None]:
        """Convert members, until few are left; each step is to be followed by a turn of the loop. In a group
        that rebalances they say something else all the time: there are fewer of them each time. Raises
        BrokerError where what they say cannot be read, or is more than one turn can deal with."""
        while self._is_long():
            yield
            if self.group.metadata.state is ClassicGroupState.DEAD:  # another request was first
                return
            if self._pieces:  # else others have done them
                self._convert_those_of(self._pieces.popleft())

    def _is_long(self) -> bool:
        """Whether more is left than the decision has time for."""
        if not self._pieces and sum(map(_weight, left := self._changed())) > AT_ONCE:
            self._pieces.extend(_pieces(left))
        return bool(self._pieces)

    def _convert_those_of(self, piece: Sequence[ClassicMember]) -> None:
        roster = self.group.metadata.roster
        for member in piece:
            if roster.get(member.member_id) is member and not self._is_known(member):
                self._convert(member)
        self._check_amount()

    def records(self) -> list[CoordinatorRecord]:
        """As the group is now. Raises BrokerError, as `steps`."""
        for member in self._changed():
            self._convert(member)
        self._check_amount()
        self.state.recount()
        generation = self.group.metadata.generation
        epochs = Draft(self.group.group_id, self.state)
        epochs.write_group(generation, 0)
        epochs.write_target_epoch(generation)
        self._replay(epochs)
        group_epoch, target_epoch = map(self._encoded, epochs.records)
        converted = [self._converted[member_id] for member_id in self.state.members]
        return [
            *(each.as_member for each in converted),
            group_epoch,
            *(each.target for each in converted),
            target_epoch,
            *(each.current for each in converted),
        ]

    def _changed(self) -> list[ClassicMember]:
        """Who is new, or has said something else; who has left is forgotten."""
        if self._generation != self.group.metadata.generation:
            self._generation = self.group.metadata.generation
            self.state, self._converted, self._topics = ConsumerGroupState(), {}, 0
        if self._topics_version != self._view.topics_version:
            self._topics_version = self._view.topics_version
            self._forget_those_of(self._changed_topics())
        staying = self.group.metadata.roster.staying()
        for member_id in self._converted.keys() - {member.member_id for member in staying}:
            self._forget(member_id)
        return [member for member in staying if not self._is_known(member)]

    def _changed_topics(self) -> set[str]:
        """Those that were created or deleted, or both."""
        before = dict(self._ids)
        self._ids = {name: self._view.topic_id(name) for name in before}
        return {name for name, topic_id in before.items() if topic_id != self._ids[name]}

    def _forget_those_of(self, topics: set[str]) -> None:
        for member_id, each in list(self._converted.items()) if topics else ():
            if not topics.isdisjoint(each.names):
                self._forget(member_id)

    def _forget(self, member_id: str) -> None:
        gone = Draft(self.group.group_id, self.state)
        gone.erase_member(member_id)
        self._replay(gone)
        self._topics -= self._converted.pop(member_id).topics

    def _is_known(self, member: ClassicMember) -> bool:
        known = self._converted.get(member.member_id)
        return known is not None and known.said == _SAID(member)

    def _convert(self, member: ClassicMember) -> None:
        member_id, epoch = member.member_id, self.group.metadata.generation
        try:
            metadata = _metadata(member, self._lists)
            partitions = read_assignment(member.assignment, Allowance(MAX_TOPICS))
        except ValueError as e:
            raise _refused(f"member {member_id}: {e}") from e
        if member_id in self._converted:
            self._forget(member_id)
        assigned = by_id(partitions, self._view)
        for name in partitions:
            topic_id = self._view.topic_id(name)
            if self._ids.setdefault(name, topic_id) != topic_id:
                self._ids[name] = ZERO_UUID  # no topic's: all that were assigned it are converted again
        draft = Draft(self.group.group_id, self.state)
        draft.write_member(member_id, metadata)
        draft.write_target(member_id, assigned)
        draft.write_current(ConsumerMember(member_id, metadata, epoch, epoch, assigned=assigned))
        self._replay(draft)
        topics = _topics(assigned)
        self._topics += topics
        as_member, target, current = map(self._encoded, draft.records)
        said, names = _SAID(member), tuple(partitions)
        self._converted[member_id] = _Converted(said, as_member, target, current, names, topics)

    def _check_amount(self) -> None:
        """Raises BrokerError."""
        if self._topics > MAX_TOPICS or self.state.subscriptions.names > MAX_NAMES:
            raise _refused("its members name more topics or partitions than are read")

    def _replay(self, draft: Draft) -> None:
        for record in draft.records:
            self.state.replay(record)

    def _encoded(self, record: ConsumerGroupRecord) -> EncodedRecord:
        return EncodedRecord(self.group.group_id, *encode(record))


class Upgrades:
    """Those that requests wait for: whoever asks for one meanwhile helps with it."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._wanted: WeakValueDictionary[str, Upgrade] = WeakValueDictionary()

    def of(self, group: ClassicGroup, max_bytes: int) -> Upgrade:
        """Raises BrokerError, as an `Upgrade` does."""
        upgrade = self._wanted.get(group.group_id)
        if upgrade is None or upgrade.group is not group:
            upgrade = self._wanted[group.group_id] = Upgrade(group, self._view, max_bytes)
        return upgrade


def _check_size(group_id: str, members: Sequence[ClassicMember], max_bytes: int) -> None:
    """Raises BrokerError where the records of so many have no room in a batch, whatever they are assigned:
    all would be made in vain."""
    keys = len(members) * _RECORDS * len(group_id) + _RECORDS * sum(len(each.member_id) for each in members)
    names = sum(len(each.client_id) + len(each.client_host) for each in members)
    said = sum(len(protocol.metadata) for each in members for protocol in each.protocols)
    if len(members) * _NUMBERS + keys + names + said > max_bytes:
        raise _refused(f"{len(members)} members are too many")


def _weight(member: ClassicMember) -> int:
    """So many members its conversion takes the time of."""
    said = sum(len(protocol.metadata) for protocol in member.protocols)
    return 1 + (said + len(member.assignment)) // BYTES_AS_MEMBER


def _pieces(members: Sequence[ClassicMember]) -> Iterator[list[ClassicMember]]:
    """One for each turn of the loop; an empty one at the end: the decision has a turn of its own."""
    piece: list[ClassicMember] = []
    room = AT_ONCE
    for member in members:
        piece.append(member)
        if (room := room - _weight(member)) <= 0:
            yield piece
            piece, room = [], AT_ONCE
    yield piece


def _topics(assigned: Assignment) -> int:
    return sum(1 + len(numbers) // PARTITIONS_AS_TOPIC for numbers in assigned.values())


def _metadata(member: ClassicMember, lists: KnownLists) -> MemberMetadata:
    """Raises ValueError."""
    subscription = read_subscription(member.protocols[0].metadata, Allowance(MAX_TOPICS), lists)
    return MemberMetadata(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=subscription.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(
            member.session_timeout_ms,
            tuple(ClassicProtocol(name, metadata) for name, metadata in member.protocols),
        ),
    )


def _refused(why: str) -> BrokerError:
    what = "Cannot upgrade the classic group to a consumer group"
    return BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"{what}: {why}.")
