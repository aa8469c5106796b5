"""Members of the classic protocol in a group of the consumer protocol: JoinGroup, SyncGroup and Heartbeat.

They take part in the same epochs and targets. A join is their heartbeat with changes: its subscription
has the topics they read and the partitions they own, the reply has their member epoch as the generation, and
no member is leader. SyncGroup returns their assignment, and Heartbeat makes them join again when there is
more to do.

Works on a draft; called by group.py. Refusals are BrokerErrors.
"""

from __future__ import annotations

from typing import NamedTuple

from data_plane.coordinator.groups.assignment import Assignment
from data_plane.coordinator.groups.classic.consumer_protocol import (
    Partitions,
    Subscription,
    read_subscription,
    version_of,
    write_assignment,
)
from data_plane.coordinator.groups.classic.states import CONSUMER_PROTOCOL_TYPE
from data_plane.coordinator.groups.consumer.cluster_view import ClusterView
from data_plane.coordinator.groups.consumer.draft import Draft
from data_plane.coordinator.groups.consumer.membership import (
    check_room,
    known_member,
    known_static_member,
    subscribed_static_member,
    write_metadata,
)
from data_plane.coordinator.groups.consumer.rebalance import (
    RebalanceContext,
    reconcile,
    refresh_target,
    waits_for_others,
)
from data_plane.coordinator.groups.consumer.state import ConsumerGroupMember, ConsumerGroupState, MemberState
from data_plane.coordinator.groups.consumer_records import ClassicMetadata, ClassicProtocol, MemberMetadata
from data_plane.coordinator.groups.messages import (
    JoinGroup,
    JoinReply,
    MemberIdentity,
    SyncGroup,
    SyncReply,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode


class JoinResult(NamedTuple):
    reply: JoinReply
    rebalance_timeout_ms: int = 0
    took_over: bool = False
    """The place of a static member of the consumer protocol."""


def join(draft: Draft, request: JoinGroup, context: RebalanceContext) -> JoinResult:
    """A member joins or joins again."""
    member_id = request.member_id or request.new_member_id
    check_room(draft, member_id, context)
    _check_protocols(draft.state, request)
    if not request.member_id and request.instance_id is None and request.requires_known_id:
        return JoinResult(JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    holder = draft.state.static_member(request.instance_id)
    before = _member_of(draft, request, member_id)
    subscription = _subscription(request)
    timeout_ms = request.rebalance_timeout_ms
    if timeout_ms < 0:  # JoinGroup v0 has only a session timeout
        timeout_ms = request.session_timeout_ms
    changed = write_metadata(draft, before, _metadata(before, request, subscription, timeout_ms), context)
    refresh_target(draft, context, subscriptions_changed=changed or draft.state.epoch == 0)
    owned = by_id(subscription.owned, context.view)
    after = reconcile(draft, draft.state.members[member_id], owned)
    protocol = request.protocols[0].name
    reply = JoinReply(ErrorCode.NONE, member_id, after.epoch, CONSUMER_PROTOCOL_TYPE, protocol)
    took_over = holder is not None and not holder.uses_classic_protocol
    return JoinResult(reply, timeout_ms, took_over)


def check_protocol(member: ConsumerGroupMember, request: SyncGroup) -> None:
    """Raises BrokerError, INCONSISTENT_GROUP_PROTOCOL."""
    chosen = _protocols(member)[0].name
    for claimed, actual in (
        (request.protocol_type, CONSUMER_PROTOCOL_TYPE),
        (request.protocol_name, chosen),
    ):
        if claimed is not None and claimed != actual:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def assigned(member: ConsumerGroupMember, view: ClusterView) -> SyncReply:
    protocol = _protocols(member)[0]
    assignment = write_assignment(by_name(member.assigned, view), version_of(protocol.metadata))
    return SyncReply(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, protocol.name, assignment)


def must_catch_up(state: ConsumerGroupState, member: ConsumerGroupMember) -> bool:
    """It has not joined in the newest epoch. One that has, and is to give something up, learns by its
    assignment what that is, and joins again in the end: a cooperative one gives up nothing before."""
    return state.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS


def must_rejoin(state: ConsumerGroupState, member: ConsumerGroupMember) -> bool:
    """There is a newer epoch, or something to give up, or something free by now that it is to have."""
    if member.epoch < state.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not waits_for_others(state, member)


def leaving(state: ConsumerGroupState, identity: MemberIdentity) -> ConsumerGroupMember | ErrorCode:
    """Who it is that leaves, or whom an administrator removes, by its instance id alone or by its member id,
    whatever its protocol; or why not."""
    member_id, instance_id = identity
    try:
        if instance_id is None:
            return known_member(state, member_id)
        if member_id:
            return known_static_member(state, member_id, instance_id)
    except BrokerError as refusal:
        return refusal.code
    return state.static_member(instance_id) or ErrorCode.UNKNOWN_MEMBER_ID


def common_protocols(state: ConsumerGroupState) -> list[str]:
    """Those that all members of the classic protocol can play, as the first of them prefers them."""
    lists = [_names(member) for member in state.members.values() if member.uses_classic_protocol]
    return [name for name in lists[0] if all(name in names for names in lists)] if lists else []


def by_id(partitions: Partitions, view: ClusterView) -> Assignment:
    """Without topics that were deleted."""
    found = {view.topic_id(name): numbers for name, numbers in partitions.items()}
    return {topic_id: numbers for topic_id, numbers in found.items() if topic_id is not None}


def by_name(assignment: Assignment, view: ClusterView) -> Partitions:
    """Without topics that were deleted."""
    found = {view.topic_name(topic_id): numbers for topic_id, numbers in assignment.items()}
    return {name: numbers for name, numbers in found.items() if name is not None}


def _member_of(draft: Draft, request: JoinGroup, member_id: str) -> ConsumerGroupMember:
    if request.instance_id is None:
        return draft.state.members.get(member_id) or ConsumerGroupMember(member_id, MemberMetadata())
    if not request.member_id:
        return subscribed_static_member(draft, member_id, request.instance_id, classic=True)
    return known_static_member(draft.state, member_id, request.instance_id)


def _metadata(
    before: ConsumerGroupMember, request: JoinGroup, subscription: Subscription, rebalance_timeout_ms: int
) -> MemberMetadata:
    return MemberMetadata(
        instance_id=request.instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.metadata.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topic_names=subscription.topics,
        subscribed_topic_regex=before.metadata.subscribed_topic_regex,
        rebalance_timeout_ms=rebalance_timeout_ms,
        server_assignor=before.metadata.server_assignor,
        classic=ClassicMetadata(
            request.session_timeout_ms,
            tuple(ClassicProtocol(name, metadata) for name, metadata in request.protocols),
        ),
    )


def _check_protocols(state: ConsumerGroupState, request: JoinGroup) -> None:
    names = [name for name, _ in request.protocols]
    there = any(member.uses_classic_protocol for member in state.members.values())
    fits = bool(names) and (not there or any(name in names for name in common_protocols(state)))
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not fits:
        raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _subscription(request: JoinGroup) -> Subscription:
    try:
        return read_subscription(request.protocols[0].metadata)
    except ValueError as e:
        raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"subscription: {e}") from e


def _protocols(member: ConsumerGroupMember) -> tuple[ClassicProtocol, ...]:
    classic = member.metadata.classic
    return () if classic is None else classic.supported_protocols


def _names(member: ConsumerGroupMember) -> list[str]:
    return [protocol.name for protocol in _protocols(member)]
