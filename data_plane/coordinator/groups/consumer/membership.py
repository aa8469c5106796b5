"""The members of a group of the consumer protocol: heartbeats that join, stay or leave.

A heartbeat carries the member's epoch. 0: it joins, or joins again, owning nothing; the coordinator's own: it
is up to date; the one before, owning no more than it had: the last reply was lost; anything else fences it. A
static member (one with an instance id) may leave with -2 and return under another id.

Works on a draft; called by group.py. Refusals are BrokerErrors, and then nothing is written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from data_plane.coordinator.groups.assignment import NOTHING, Assignment, is_within
from data_plane.coordinator.groups.consumer.cluster_view import ClusterView
from data_plane.coordinator.groups.consumer.draft import Draft
from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from data_plane.coordinator.groups.consumer.rebalance import (
    RebalanceContext,
    forget_patterns,
    pattern_for_later,
    reconcile,
    refresh_target,
)
from data_plane.coordinator.groups.consumer.state import (
    JOINING,
    LEAVING_FOR_NOW,
    ConsumerGroupMember,
    ConsumerGroupState,
)
from data_plane.coordinator.groups.consumer.topic_patterns import compiled
from data_plane.coordinator.groups.consumer_records import MemberMetadata
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

MOST_BYTES: Final = 32 * 1024 * 1024
"""That members say of themselves, all together: their names, their protocols, the topics of each list."""


def heartbeat(draft: Draft, request: ConsumerHeartbeat, context: RebalanceContext) -> ConsumerHeartbeatReply:
    """Of a member that joins or stays."""
    check_room(draft, request.member_id, context)
    before = _member_of(draft, request)
    metadata = _updated_metadata(before.metadata, request)
    regex = metadata.subscribed_topic_regex
    if regex and regex != before.metadata.subscribed_topic_regex:
        compiled(regex)
        _check_matches(draft.state, regex, context.view)
    changed = write_metadata(draft, before, metadata, context)
    later = pattern_for_later(draft.state, metadata) if changed else None
    refresh_target(draft, context, subscriptions_changed=changed or draft.state.epoch == 0, later=later)
    after = reconcile(draft, draft.state.members[request.member_id], request.owned)
    has_changed = request.is_full or after.assigned != before.assigned
    return ConsumerHeartbeatReply(
        request.member_id,
        after.epoch,
        context.rules.heartbeat_interval_ms,
        after.assigned if has_changed else None,
    )


def leaving_member(state: ConsumerGroupState, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    """Who it is that leaves."""
    if instance_id is None:
        return known_member(state, member_id)
    return known_static_member(state, member_id, instance_id)


def leave_for_now(draft: Draft, member: ConsumerGroupMember) -> None:
    """A static member's place is kept until its session ends."""
    draft.write_current(replace(member, epoch=LEAVING_FOR_NOW, pending_revocation=NOTHING))


def remove(draft: Draft, member_ids: Collection[str], context: RebalanceContext) -> None:
    """Members have left or are fenced; the others will share what they had."""
    for member_id in member_ids:
        draft.erase_member(member_id)
    forget_patterns(draft)
    metadata_hash = draft.state.subscriptions.all_there(context.view).metadata_hash
    draft.write_group(draft.state.epoch + 1, metadata_hash)


def check_room(draft: Draft, member_id: str, context: RebalanceContext) -> None:
    """Raises BrokerError, GROUP_MAX_SIZE_REACHED."""
    state, most = draft.state, context.rules.max_size
    if len(state.members) >= most and member_id not in state.members:
        raise BrokerError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {most} members.",
        )


def write_metadata(
    draft: Draft, before: ConsumerGroupMember, metadata: MemberMetadata, context: RebalanceContext
) -> bool:
    """Take over what a member reports of itself; whether its subscription has changed. Raises BrokerError."""
    known, names = before.member_id in draft.state.members, metadata.subscribed_topic_names
    reads_others = names != before.metadata.subscribed_topic_names
    so_far = draft.state.subscriptions
    names_so_far, bytes_so_far = so_far.names, so_far.bytes
    if not known or metadata != before.metadata:
        draft.write_member(before.member_id, metadata)
        if draft.state.subscriptions.bytes > max(MOST_BYTES, bytes_so_far):
            raise BrokerError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The members of the consumer group say too much of themselves.",
            )
    if reads_others:
        _check_names(draft.state, len(names), names_so_far, context.view)
        return True
    # What was written before there was a word for it, or by another make's broker, says None.
    return (metadata.subscribed_topic_regex or "") != (before.metadata.subscribed_topic_regex or "")


def _check_names(state: ConsumerGroupState, names: int, so_far: int, view: ClusterView) -> None:
    """Raises BrokerError, GROUP_MAX_SIZE_REACHED, where a member names far more topics than there are, or
    where the different subscriptions of all together name too many, and more than before."""
    together = state.subscriptions.names
    if names > view.most_names or together > max(view.most_names_together, so_far):
        raise BrokerError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The members of the consumer group name {together} topics, one of them {names}.",
        )


def _check_matches(state: ConsumerGroupState, regex: str, view: ClusterView) -> None:
    """Raises BrokerError, GROUP_MAX_SIZE_REACHED, where with a pattern that is new those of all members would
    match too many topics. One that has not been looked at may match all."""
    if regex in state.regexes:
        return
    if state.subscriptions.matches + view.most_matches(regex) > view.most_matches_together:
        raise BrokerError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, "The patterns of the consumer group match too many topics."
        )


def known_member(state: ConsumerGroupState, member_id: str) -> ConsumerGroupMember:
    """Raises BrokerError, UNKNOWN_MEMBER_ID."""
    member = state.members.get(member_id)
    if member is None:
        raise BrokerError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of the consumer group."
        )
    return member


def known_static_member(state: ConsumerGroupState, member_id: str, instance_id: str) -> ConsumerGroupMember:
    """Raises BrokerError, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    member = state.static_member(instance_id)
    if member is None:
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise BrokerError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def subscribed_static_member(
    draft: Draft, member_id: str, instance_id: str, *, classic: bool
) -> ConsumerGroupMember:
    """A static member that joins: it is new, or takes over the place that it left. Between two of the
    consumer protocol the place must have been left first. Raises BrokerError, UNRELEASED_INSTANCE_ID."""
    holder = draft.state.static_member(instance_id)
    if holder is None:  # the id itself may be that of a member that had another instance id, or none
        new = ConsumerGroupMember(member_id, MemberMetadata(instance_id=instance_id))
        return draft.state.members.get(member_id, new)
    if not classic and not holder.uses_classic_protocol and not holder.away:
        raise BrokerError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {holder.member_id} member.",
        )
    return draft.replace_member(holder, member_id)


def _member_of(draft: Draft, request: ConsumerHeartbeat) -> ConsumerGroupMember:
    """The member that a heartbeat is from; a new member with default values."""
    if request.instance_id is not None:
        if request.member_epoch == JOINING:
            return subscribed_static_member(draft, request.member_id, request.instance_id, classic=False)
        member = known_static_member(draft.state, request.member_id, request.instance_id)
    elif request.member_epoch == JOINING and request.member_id not in draft.state.members:
        return ConsumerGroupMember(request.member_id, MemberMetadata())
    else:
        member = known_member(draft.state, request.member_id)
    _check_epoch(member, request.member_epoch, request.owned)
    return member


def _check_epoch(member: ConsumerGroupMember, received: int, owned: Assignment | None) -> None:
    if received == JOINING:
        return  # who was fenced gave up all that it had, and comes back under its own id
    if received > member.epoch:
        word = "greater"
    elif received < member.epoch:
        answer_was_lost = received == member.previous_epoch
        if answer_was_lost and owned is not None and is_within(owned, member.assigned):
            return
        word = "smaller"
    else:
        return
    raise BrokerError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {word} member epoch ({received}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _updated_metadata(before: MemberMetadata, request: ConsumerHeartbeat) -> MemberMetadata:
    """Fields that a heartbeat omits stay as they were; the member no longer uses the classic protocol."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    return MemberMetadata(
        instance_id=_updated(request.instance_id, before.instance_id),
        rack_id=_updated(request.rack_id, before.rack_id),
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topic_names=before.subscribed_topic_names if names is None else tuple(sorted(set(names))),
        subscribed_topic_regex=_updated(request.subscribed_topic_regex, before.subscribed_topic_regex),
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=_updated(request.server_assignor, before.server_assignor),
    )


def _updated(reported: str | None, before: str | None) -> str | None:
    return before if reported is None else reported
