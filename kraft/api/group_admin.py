"""Administration of groups: ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from data_plane.coordinator.groups.classic.states import ClassicGroupState
from data_plane.coordinator.groups.messages import DescribedGroup, DescribedMember
from kraft.api.authz.checks import FilterByAuthorized, authorize_names
from kraft.api.authz.group_checks import group_operations
from kraft.api.context import BrokerContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import GROUPS_PER_SLICE, VALUES_PER_SLICE, each_once, in_slices, of_name
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.security.acls import OPERATIONS_OMITTED, AclOperation, AclResourceType, operation_bits

LISTED_PER_SLICE: Final = 2000
"""ListGroups: each takes a microsecond or two."""
MEMBERS_PER_SLICE: Final = 1000
"""DescribeGroups."""
PARTS_PER_TURN: Final = 10
"""Parts of a coordinator's partitions that are asked in one turn of the loop."""
MEMBERS_AS_ONE: Final = 10
"""So many members take the time of a group."""
_FIRST_TO_MISS_GROUPS: Final = 6
"""DescribeGroups: an unknown group is an error; before, it is a dead one."""


async def handle_list(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    work = broker.node.long_work
    states = {each.lower() async for each in in_slices(work, request.states_filter or (), VALUES_PER_SLICE)}
    types = {each.lower() async for each in in_slices(work, request.types_filter or (), VALUES_PER_SLICE)}
    groups = []
    turns = work.request()
    parts = 0
    async for listed in broker.group_coordinator.list_groups():
        parts += 1
        if parts % PARTS_PER_TURN == 0:  # there are fifty, even where there is no group
            await turns.pause()
        async for group_id, protocol_type, state, kind in in_slices(work, listed, LISTED_PER_SLICE):
            if (not states or state.lower() in states) and (not types or kind.value in types):
                groups.append(
                    {
                        "group_id": group_id,
                        "protocol_type": protocol_type,
                        "group_state": state,
                        "group_type": kind.value,
                    }
                )
    return {"error_code": 0, "groups": groups}


def of_group(broker: BrokerContext, group_id: str) -> int:
    """The weight of a group that is described: all of its members at the same moment."""
    return of_name(group_id) + broker.group_coordinator.size_of(group_id) // MEMBERS_AS_ONE


def list_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"error_code": int(code), "groups": []}


async def handle_describe(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    operations = (
        operation_bits(AclResourceType.GROUP) if request.include_authorized_operations else OPERATIONS_OMITTED
    )
    groups = []
    async for group_id in each_once(
        broker.node.long_work, request.groups, GROUPS_PER_SLICE, str, partial(of_group, broker)
    ):
        try:
            described = await broker.group_coordinator.describe_group(group_id)
        except BrokerError as error:
            described = DescribedGroup(group_id, "", error=error.code, message=error.message)
        answer = _described(described, ctx.version, operations)
        async for member in in_slices(broker.node.long_work, described.members, MEMBERS_PER_SLICE):
            answer["members"].append(_described_member(member))
        groups.append(answer)
    return {"groups": groups}


def describe_error(request: Message, code: ErrorCode, message: str) -> Response:
    dead = [DescribedGroup(group_id, "", error=code) for group_id in request.groups]
    return {"groups": [_described(group, _FIRST_TO_MISS_GROUPS, OPERATIONS_OMITTED) for group in dead]}


def _described(group: DescribedGroup, version: int, operations: int) -> dict[str, Any]:
    """The description of a group, without its members."""
    missing = group.error is ErrorCode.GROUP_ID_NOT_FOUND
    error = ErrorCode.NONE if missing and version < _FIRST_TO_MISS_GROUPS else group.error
    return {
        "error_code": int(error),
        "error_message": (group.message or f"Group {group.group_id} not found.") if missing else None,
        "group_id": group.group_id,
        "group_state": ClassicGroupState.DEAD.value if missing else group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [],
        "authorized_operations": operations if error is ErrorCode.NONE else OPERATIONS_OMITTED,
    }


def _described_member(member: DescribedMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }


async def handle_delete(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    await ctx.connection.state.earlier_commits()
    results = []
    async for group_id in each_once(
        broker.node.long_work, request.groups_names, GROUPS_PER_SLICE, str, of_name
    ):
        try:
            outcome = await broker.group_coordinator.delete_group(group_id)
        except BrokerError as error:
            outcome = error.code
        results.append({"group_id": group_id, "error_code": int(outcome)})
    return {"results": results}


def delete_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"results": [{"group_id": group_id, "error_code": int(code)} for group_id in request.groups_names]}


ROWS: Final = (
    ApiRow(
        ApiKey.DESCRIBE_GROUPS,
        (0, 6),
        (
            authorize_names(AclOperation.DESCRIBE, AclResourceType.GROUP, "groups", "groups", describe_error),
            group_operations,
        ),
        broker=handle_describe,
        on_error=describe_error,
    ),
    ApiRow(
        ApiKey.LIST_GROUPS,
        (0, 5),
        (
            FilterByAuthorized(
                "groups",
                "group_id",
                AclOperation.DESCRIBE,
                AclResourceType.GROUP,
                unless=AclOperation.DESCRIBE,
            ),
        ),
        broker=handle_list,
        on_error=list_error,
    ),
    ApiRow(
        ApiKey.DELETE_GROUPS,
        (0, 2),
        (
            authorize_names(
                AclOperation.DELETE, AclResourceType.GROUP, "groups_names", "results", delete_error
            ),
        ),
        broker=handle_delete,
        on_error=delete_error,
    ),
)
