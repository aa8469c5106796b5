"""Whether a classic group accepts a request: group and request in, the member or an error code out.

Pure functions, called by group.py before it changes anything.
"""

from __future__ import annotations

from typing import Final

from data_plane.coordinator.groups.classic.group_metadata import ClassicGroupMetadata
from data_plane.coordinator.groups.classic.members import ClassicGroupMember, member_of
from data_plane.coordinator.groups.classic.states import ClassicGroupState
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    Heartbeat,
    JoinGroup,
    MemberIdentity,
    SyncGroup,
    bytes_of,
)
from metadata_quorum.foundation.errors import ErrorCode

PROTOCOLS: Final = 4
"""Of which all members may have each as large as the one that is chosen and stored."""


def check_join(group: ClassicGroupMetadata, request: JoinGroup, max_size: int) -> ErrorCode:
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not group.supports(request.protocol_type, request.protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    before = group.roster.get(request.member_id) or group.roster.by_instance(request.instance_id)
    could_be_stored = _could_be_stored(group, before, request)
    has_room = could_be_stored and _has_room(group, before, max_size)
    return ErrorCode.NONE if has_room else ErrorCode.GROUP_MAX_SIZE_REACHED


def _could_be_stored(
    group: ClassicGroupMetadata, before: ClassicGroupMember | None, request: JoinGroup
) -> bool:
    """As far as can be told: the names of all members are in one record, whatever they are assigned."""
    protocol_bytes = group.roster.protocol_bytes + bytes_of(request.protocols)
    if before is None:
        names = member_of(request, request.member_id or request.new_member_id).name_bytes
        if group.roster.name_bytes + names > request.max_record_bytes:
            return False
    else:
        protocol_bytes -= bytes_of(before.protocols)
    return protocol_bytes <= PROTOCOLS * request.max_record_bytes


def _has_room(group: ClassicGroupMetadata, before: ClassicGroupMember | None, max_size: int) -> bool:
    """`before`: the member that joins, if it is in the group. As with Kafka, ids that were only given out do
    not count: their clients may be gone. Where the limit has been lowered, those stay that join again first.
    """
    if group.state is ClassicGroupState.EMPTY:
        return True
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        waits = before is not None and group.roster.has_joined(before)
        return waits or group.roster.joining < max_size
    return before is not None or len(group.roster) < max_size


def check_sync(group: ClassicGroupMetadata, request: SyncGroup) -> ClassicGroupMember | ErrorCode:
    member = _member_of_generation(group, request.member_id, request.instance_id, request.generation)
    if isinstance(member, ErrorCode):
        return member
    for claimed, actual in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol),
    ):
        if claimed is not None and claimed != actual:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.UNKNOWN_MEMBER_ID if group.state is ClassicGroupState.EMPTY else member


def check_heartbeat(group: ClassicGroupMetadata, request: Heartbeat) -> ClassicGroupMember | ErrorCode:
    """A member is alive also where the reply is REBALANCE_IN_PROGRESS: that is for the caller to say."""
    return _member_of_generation(group, request.member_id, request.instance_id, request.generation)


def leaving_member(group: ClassicGroupMetadata, identity: MemberIdentity) -> ClassicGroupMember | ErrorCode:
    """Who leaves: administrators name a static member by its instance id alone."""
    member_id, instance_id = identity
    if not member_id and instance_id is not None:
        return group.roster.by_instance(instance_id) or ErrorCode.UNKNOWN_MEMBER_ID
    return group.known_member(member_id, instance_id)


def check_commit(group: ClassicGroupMetadata, request: CommitOffsets) -> ClassicGroupMember | ErrorCode:
    """The member that commits; NONE where a commit from outside the group is accepted.

    In a transaction members need not identify themselves (before KIP-447 they could not), and need not wait
    for a rebalance: the producer's epoch is what fences them.
    """
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    claims_membership = bool(request.member_id) or request.instance_id is not None
    empty = group.state is ClassicGroupState.EMPTY
    if request.generation < 0 and not claims_membership:
        if request.producer is not None:
            return ErrorCode.NONE
        # A client that uses the group id without joining: members' offsets must not be overwritten.
        return ErrorCode.NONE if empty else ErrorCode.UNKNOWN_MEMBER_ID
    if empty and request.generation < 0:
        return ErrorCode.NONE
    member = _member_of_generation(group, request.member_id, request.instance_id, request.generation)
    completing = group.state is ClassicGroupState.COMPLETING_REBALANCE
    if not isinstance(member, ErrorCode) and completing and request.producer is None:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return member


def _member_of_generation(
    group: ClassicGroupMetadata, member_id: str, instance_id: str | None, generation: int
) -> ClassicGroupMember | ErrorCode:
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    member = group.known_member(member_id, instance_id)
    if not isinstance(member, ErrorCode) and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return member
