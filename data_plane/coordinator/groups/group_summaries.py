"""What is shown of a group to those who look at many: in lists, and for monitoring.

group_metadata_manager -> here
"""

from __future__ import annotations

from data_plane.coordinator.groups.classic.group import ClassicGroup
from data_plane.coordinator.groups.classic.states import CONSUMER_PROTOCOL_TYPE
from data_plane.coordinator.groups.consumer.group import ConsumerGroup
from data_plane.coordinator.groups.messages import GroupType, ListedGroup, MemberSummary

AnyGroup = ClassicGroup | ConsumerGroup


def listed(group: AnyGroup) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        phase = group.state.phase.value
        return ListedGroup(group.group_id, CONSUMER_PROTOCOL_TYPE, phase, GroupType.CONSUMER)
    return ListedGroup(group.group_id, group.metadata.protocol_type, group.metadata.state.value)


def members(group: AnyGroup) -> tuple[MemberSummary, ...]:
    if isinstance(group, ConsumerGroup):
        return tuple(
            MemberSummary(each.member_id, each.metadata.client_id, each.metadata.client_host, each.assigned)
            for each in group.state.members.values()
        )
    return tuple(
        MemberSummary(each.member_id, each.client_id, each.client_host, each.assignment)
        for each in group.metadata.roster
    )
