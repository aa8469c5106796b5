"""A group changes its protocol while its members stay: classic to consumer, and back.

The first member of the consumer protocol that joins a classic group of consumers converts it: its
generation becomes the epoch, what each member was assigned becomes both its target and what it has.
When the last such member has left, the classic ones that stay have a classic group again, at a
generation that is the epoch, and rebalance; unless its record cannot be written (`downgrade`).
`group.consumer.migration.policy` may forbid either way.

Both are records only, tombstones of the one kind and values of the other. The way there is in upgrade.py, the
way back here; called by group.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from data_plane.coordinator.groups.assignment import joined
from data_plane.coordinator.groups.classic.consumer_protocol import (
    version_of,
    write_assignment,
)
from data_plane.coordinator.groups.classic.states import CONSUMER_PROTOCOL_TYPE
from data_plane.coordinator.groups.consumer.classic_members import by_name, common_protocols
from data_plane.coordinator.groups.consumer.cluster_view import ClusterView
from data_plane.coordinator.groups.consumer.draft import Draft
from data_plane.coordinator.groups.consumer.rules import ConsumerGroupConfig
from data_plane.coordinator.groups.consumer.state import ConsumerGroupMember as ConsumerMember
from data_plane.coordinator.groups.consumer.state import ConsumerGroupState
from data_plane.coordinator.groups.consumer.tombstones import tombstones
from data_plane.coordinator.groups.records import (
    CoordinatorRecord,
    GroupRecord,
    StoredGroup,
    StoredMember,
    encode,
)
from data_plane.coordinator.state_machine import RECORD_OVERHEAD_BYTES, Instant
from metadata_quorum.foundation.batch import BATCH_OVERHEAD


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
    group_id = draft.group_id
    records = [*draft.records, *tombstones(group_id, state), GroupRecord(group_id, stored)]
    return records if _size(records) <= max_bytes else None


def _size(records: Sequence[CoordinatorRecord]) -> int:
    """In a batch, at most."""
    return BATCH_OVERHEAD + sum(
        RECORD_OVERHEAD_BYTES + len(key) + len(value or b"") for key, value in map(encode, records)
    )


def _stored(member: ConsumerMember, protocol: str, view: ClusterView) -> StoredMember:
    """Raises ValueError."""
    classic = member.metadata.classic
    assert classic is not None
    subscription = next(each.metadata for each in classic.supported_protocols if each.name == protocol)
    # What it gives up it still reads, and may when the group changes its protocol once more.
    owned = (
        joined(member.assigned, member.pending_revocation) if member.pending_revocation else member.assigned
    )
    return StoredMember(
        member.member_id,
        member.instance_id,
        member.metadata.client_id,
        member.metadata.client_host,
        member.metadata.rebalance_timeout_ms,
        classic.session_timeout_ms,
        subscription,
        write_assignment(by_name(owned, view), version_of(subscription)),
    )
