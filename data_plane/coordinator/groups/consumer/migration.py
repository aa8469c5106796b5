"""A group changes its protocol while its members stay: classic to consumer, and back.

The first member of the consumer protocol that joins a classic group of consumers converts it: its
generation becomes the epoch, what each member was assigned becomes both its target and what it has.
When the last such member has left, the classic ones that stay have a classic group again, at a
generation that is the epoch, and rebalance; unless its record cannot be written (`downgrade`).
`group.consumer.migration.policy` may forbid either way.

Both are records only, tombstones of the one kind and values of the other; called by
group_metadata_manager.py and group.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from data_plane.coordinator.groups.assignment import NOTHING, Assignment
from data_plane.coordinator.groups.classic.consumer_protocol import (
    MAX_TOPICS,
    Allowance,
    KnownLists,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from data_plane.coordinator.groups.classic.group import ClassicGroup
from data_plane.coordinator.groups.classic.members import ClassicGroupMember as ClassicMember
from data_plane.coordinator.groups.classic.states import CONSUMER_PROTOCOL_TYPE
from data_plane.coordinator.groups.consumer.classic_members import by_id, by_name, common_protocols
from data_plane.coordinator.groups.consumer.cluster_view import ClusterView
from data_plane.coordinator.groups.consumer.draft import Draft
from data_plane.coordinator.groups.consumer.rules import ConsumerGroupConfig
from data_plane.coordinator.groups.consumer.state import ConsumerGroupMember as ConsumerMember
from data_plane.coordinator.groups.consumer.state import ConsumerGroupState
from data_plane.coordinator.groups.consumer_records import ClassicMetadata, ClassicProtocol, MemberMetadata
from data_plane.coordinator.groups.records import (
    CoordinatorRecord,
    GroupRecord,
    StoredGroup,
    StoredMember,
    encode,
)
from data_plane.coordinator.state_machine import RECORD_OVERHEAD_BYTES, Instant
from metadata_quorum.foundation.batch import BATCH_OVERHEAD
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

MAX_NAMES: Final = 20_000
"""Topics in different subscriptions: they are read, written and looked for in one turn of the loop."""
_RECORDS: Final = 3
"""Of each member of the consumer protocol."""
_NUMBERS: Final = 60
"""Bytes that those have besides what the member says, at least."""


def may_upgrade(group: ClassicGroup, rules: ConsumerGroupConfig) -> bool:
    return (
        rules.migration.upgrades
        and group.metadata.protocol_type == CONSUMER_PROTOCOL_TYPE
        and len(group.metadata.roster) <= rules.max_size
    )


def upgrade(draft: Draft, group: ClassicGroup, view: ClusterView, max_bytes: int) -> None:
    """The group as one of the consumer protocol; the classic one's tombstone comes before it. Raises
    BrokerError where its members say what cannot be read, or more than is read in one turn of the loop, or
    than is written in one batch."""
    members = group.metadata.roster.staying()
    _check_size(group.group_id, members, max_bytes)
    allowance, lists = Allowance(MAX_TOPICS), KnownLists(Allowance(MAX_TOPICS), Allowance(MAX_NAMES))
    assigned = {member.member_id: _assigned(member, view, allowance) for member in members}
    for member in members:
        draft.write_member(member.member_id, _metadata(member, allowance, lists))
    draft.write_group(group.metadata.generation, 0)
    for member_id, partitions in assigned.items():
        draft.write_target(member_id, partitions)
    draft.write_target_epoch(group.metadata.generation)
    for member_id, partitions in assigned.items():
        metadata, epoch = draft.state.members[member_id].metadata, group.metadata.generation
        draft.write_current(ConsumerMember(member_id, metadata, epoch, epoch, assigned=partitions))


def may_downgrade(state: ConsumerGroupState, leaving: frozenset[str], rules: ConsumerGroupConfig) -> bool:
    """`leaving`: a set, because every member is looked for in it."""
    staying = [member for member_id, member in state.members.items() if member_id not in leaving]
    return rules.migration.downgrades and bool(staying) and all(m.uses_classic_protocol for m in staying)


def downgrade(
    draft: Draft, leaving: frozenset[str], view: ClusterView, at: Instant, max_bytes: int
) -> list[CoordinatorRecord] | None:
    """The group as a classic one, without the leaving members. None where that has no room in a batch (here
    every member has records of its own, there one has all of them), or where what a member says for the
    protocol that they have in common is no subscription."""
    state = draft.state
    staying = [member for member_id, member in state.members.items() if member_id not in leaving]
    protocol = common_protocols(state)[0]
    try:
        members = tuple(_stored(member, protocol, view) for member in staying)
    except ValueError:
        return None
    stored = StoredGroup(
        CONSUMER_PROTOCOL_TYPE,
        state.epoch,
        protocol,
        None,  # no leader yet, which makes the group rebalance after the replay
        at.now_ms,
        members,
    )
    erasing = Draft(draft.group_id, state)
    erasing.erase_group()
    as_classic = GroupRecord(draft.group_id, stored)
    records: list[CoordinatorRecord] = [*draft.records, *erasing.records, as_classic]
    return records if _size(records) <= max_bytes else None


def _size(records: Sequence[CoordinatorRecord]) -> int:
    """In a batch, at most."""
    return BATCH_OVERHEAD + sum(
        RECORD_OVERHEAD_BYTES + len(key) + len(value or b"") for key, value in map(encode, records)
    )


def _check_size(group_id: str, members: Sequence[ClassicMember], max_bytes: int) -> None:
    """Raises BrokerError where the records of so many have no room in a batch, whatever they are assigned:
    all would be made in vain."""
    keys = len(members) * _RECORDS * len(group_id) + _RECORDS * sum(len(each.member_id) for each in members)
    names = sum(len(each.client_id) + len(each.client_host) for each in members)
    said = sum(len(protocol.metadata) for each in members for protocol in each.protocols)
    if len(members) * _NUMBERS + keys + names + said > max_bytes:
        raise BrokerError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade the classic group to a consumer group: {len(members)} members are too many.",
        )


def _assigned(member: ClassicMember, view: ClusterView, allowance: Allowance) -> Assignment:
    """Nothing, for a member that has just joined and never sent a SyncGroup."""
    try:
        return by_id(read_assignment(member.assignment, allowance), view) or NOTHING
    except ValueError as e:
        raise _not_convertible(member, e) from e


def _metadata(member: ClassicMember, allowance: Allowance, lists: KnownLists) -> MemberMetadata:
    try:
        subscription = read_subscription(member.protocols[0].metadata, allowance, lists)
    except ValueError as e:
        raise _not_convertible(member, e) from e
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


def _not_convertible(member: ClassicMember, why: ValueError) -> BrokerError:
    return BrokerError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade the classic group to a consumer group: member {member.member_id}: {why}.",
    )


def _stored(member: ConsumerMember, protocol: str, view: ClusterView) -> StoredMember:
    """Raises ValueError."""
    classic = member.metadata.classic
    assert classic is not None
    subscription = next(each.metadata for each in classic.supported_protocols if each.name == protocol)
    return StoredMember(
        member.member_id,
        member.instance_id,
        member.metadata.client_id,
        member.metadata.client_host,
        member.metadata.rebalance_timeout_ms,
        classic.session_timeout_ms,
        subscription,
        write_assignment(by_name(member.assigned, view), version_of(subscription)),
    )
