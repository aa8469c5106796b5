"""FindCoordinator, and membership of a group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Turns requests of any version into calls of data_plane/coordinator/groups/service.py, and its replies into
responses. The coordinator of a group is the leader of its partition of `__consumer_offsets`, that of a
transactional id the leader of its partition of `__transaction_state`; the first look-up creates the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from data_plane.coordinator.groups.messages import (
    NO_GENERATION,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    MemberIdentity,
    MemberProtocol,
    SyncGroup,
)
from data_plane.coordinator.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for_key
from kraft.api import auto_topic_creation
from kraft.api.authz.checks import READ_GROUP
from kraft.api.authz.group_checks import find_coordinator
from kraft.api.context import BrokerContext
from kraft.api.request_context import RequestContext
from kraft.api.response import error_code_only
from kraft.api.row import ApiRow, Response
from kraft.api.slices import in_slices, of_name
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from kraft.wire.coordinator_type import CoordinatorType
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

_TOPICS: Final[Mapping[int, str]] = {
    CoordinatorType.GROUP: OFFSETS_TOPIC,
    CoordinatorType.TRANSACTION: TRANSACTIONS_TOPIC,
}
"""The topic whose partitions' leaders are the coordinators."""

_FIRST_WITH_KEYS: Final = 4
"""FindCoordinator: many keys at once."""
COORDINATORS_PER_SLICE: Final = 500
_FIRST_TO_KNOW_ID: Final = 4
"""JoinGroup: a new member gets its id first, and joins again with it (KIP-394)."""
_FIRST_TO_SKIP_ASSIGNMENT: Final = 9
"""JoinGroup: the response can tell a leader to keep the assignment (skip_assignment)."""
_FIRST_WITHOUT_PROTOCOL: Final = 7
"""JoinGroup: the response may have no protocol; before, it is an empty one."""
_FIRST_TO_NAME_PROTOCOL: Final = 5
"""SyncGroup: a member says for which protocol it takes its assignment."""
_FIRST_TO_LEAVE_TOGETHER: Final = 3
"""LeaveGroup: many members at once."""
MAX_PROTOCOLS: Final = 1000
"""JoinGroup: clients have a few. All that their members have is counted together, too (request_checks.py)."""
MEMBERS_PER_SLICE: Final = 1000
"""SyncGroup, LeaveGroup."""


# ---- FindCoordinator ---------------------------------------------------------------------------------


async def handle_find_coordinator(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    topic = _TOPICS.get(request.key_type)
    if topic is not None and broker.client_image.topic(topic) is None:
        await auto_topic_creation.creation(broker, topic)
    keys = request.coordinator_keys if ctx.version >= _FIRST_WITH_KEYS else [request.key]
    found = [
        _find(broker, ctx, request.key_type, key)
        async for key in in_slices(broker.node.long_work, keys, COORDINATORS_PER_SLICE, of_name)
    ]
    if ctx.version >= _FIRST_WITH_KEYS:
        return {"coordinators": found}
    return {name: value for name, value in found[0].items() if name != "key"}


def find_coordinator_error(request: Message, code: ErrorCode, message: str) -> Response:
    failed = _not_found("", code, message)
    return {
        "coordinators": [{**failed, "key": key} for key in request.coordinator_keys or ()],
        **{name: value for name, value in failed.items() if name != "key"},
    }


def _find(broker: BrokerContext, ctx: RequestContext, key_type: int, key: str) -> dict[str, Any]:
    name = _TOPICS.get(key_type)
    if name is None:
        return _not_found(key, ErrorCode.INVALID_REQUEST, f"no coordinators for keys of type {key_type}")
    image = broker.client_image
    topic = image.topic(name)
    if topic is None:
        return _not_found(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    number = partition_for_key(key, len(topic.partitions))
    partition = topic.partitions.get(number)
    leader = None if partition is None else image.brokers.get(partition.leader)
    gone = leader is None or leader.fenced or leader.broker_id in broker.suspected_brokers
    endpoint = None if leader is None or gone else leader.endpoint(ctx.listener)
    if leader is None or endpoint is None:
        return _not_found(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    return {
        "key": key,
        "node_id": leader.broker_id,
        "host": endpoint.host,
        "port": endpoint.port,
        "error_code": 0,
        "error_message": "",
    }


def _not_found(key: str, code: ErrorCode, message: str) -> dict[str, Any]:
    return {
        "key": key,
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": int(code),
        "error_message": message or code.name,
    }


# ---- JoinGroup ---------------------------------------------------------------------------------------


async def handle_join(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    if len(request.protocols) > MAX_PROTOCOLS:
        raise BrokerError(ErrorCode.GROUP_MAX_SIZE_REACHED)
    await ctx.connection.state.earlier_commits()  # it may begin another generation
    wanted = JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        protocol_type=request.protocol_type,
        protocols=tuple(MemberProtocol(each.name, bytes(each.metadata)) for each in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        instance_id=request.group_instance_id,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.client_host}",
        requires_known_id=ctx.version >= _FIRST_TO_KNOW_ID,
        can_skip_assignment=ctx.version >= _FIRST_TO_SKIP_ASSIGNMENT,
    )
    try:
        reply = await broker.group_coordinator.join(wanted)
    except BrokerError as error:
        reply = JoinReply(error.code, request.member_id)
    no_protocol = None if ctx.version >= _FIRST_WITHOUT_PROTOCOL else ""
    return {
        "error_code": int(reply.error),
        "generation_id": reply.generation,
        "protocol_type": reply.protocol_type,
        "protocol_name": no_protocol if reply.protocol_name is None else reply.protocol_name,
        "leader": reply.leader,
        "skip_assignment": reply.skip_assignment,
        "member_id": reply.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in reply.members
        ],
    }


def join_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {
        "error_code": int(code),
        "generation_id": NO_GENERATION,
        "protocol_name": "",
        "leader": "",
        "member_id": request.member_id,
        "members": [],
    }


# ---- SyncGroup, Heartbeat, LeaveGroup ----------------------------------------------------------------


async def handle_sync(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    is_named = request.protocol_type is not None and request.protocol_name is not None
    if ctx.version >= _FIRST_TO_NAME_PROTOCOL and not is_named:
        raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assignments: dict[str, bytes] = {}
    async for each in in_slices(broker.node.long_work, request.assignments, MEMBERS_PER_SLICE):
        assignments[each.member_id] = bytes(each.assignment)
    reply = await broker.group_coordinator.sync(
        SyncGroup(
            group_id=request.group_id,
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=assignments,
        )
    )
    return {
        "error_code": int(reply.error),
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol_name,
        "assignment": reply.assignment,
    }


def sync_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"error_code": int(code), "assignment": b""}


async def handle_heartbeat(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    reply = await broker.group_coordinator.heartbeat(
        Heartbeat(request.group_id, request.member_id, request.generation_id, request.group_instance_id)
    )
    return {"error_code": int(reply.error)}


async def handle_leave(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    """Very many leave in several steps, between which others may join and leave."""
    await ctx.connection.state.earlier_commits()
    if ctx.version < _FIRST_TO_LEAVE_TOGETHER:
        reply = await _leave(broker, request.group_id, (MemberIdentity(request.member_id),))
        return {"error_code": int(reply.error or reply.members[0][1])}
    outcomes: list[dict[str, Any]] = []
    turns = broker.node.long_work.request()
    left = iter(request.members)
    part = tuple(islice(left, MEMBERS_PER_SLICE))
    while True:
        leaving = tuple(MemberIdentity(each.member_id, each.group_instance_id) for each in part)
        reply = await _leave(broker, request.group_id, leaving)
        if reply.error is not ErrorCode.NONE:
            return {"error_code": int(reply.error), "members": []}
        outcomes += (
            {
                "member_id": identity.member_id,
                "group_instance_id": identity.instance_id,
                "error_code": int(outcome),
            }
            for identity, outcome in reply.members
        )
        if not (part := tuple(islice(left, MEMBERS_PER_SLICE))):
            return {"error_code": 0, "members": outcomes}
        await turns.pause()


async def _leave(broker: BrokerContext, group_id: str, leaving: tuple[MemberIdentity, ...]) -> LeaveReply:
    return await broker.group_coordinator.leave(LeaveGroup(group_id, leaving))


ROWS: Final = (
    ApiRow(
        ApiKey.FIND_COORDINATOR,
        (0, 6),
        (find_coordinator(find_coordinator_error),),
        broker=handle_find_coordinator,
        on_error=find_coordinator_error,
    ),
    ApiRow(
        ApiKey.JOIN_GROUP, (0, 9), (READ_GROUP,), broker=handle_join, on_error=join_error, concurrent=True
    ),
    ApiRow(
        ApiKey.HEARTBEAT,
        (0, 4),
        (READ_GROUP,),
        broker=handle_heartbeat,
        on_error=error_code_only,
        concurrent=True,
    ),
    ApiRow(
        ApiKey.LEAVE_GROUP,
        (0, 5),
        (READ_GROUP,),
        broker=handle_leave,
        on_error=error_code_only,
        concurrent=True,
    ),
    ApiRow(
        ApiKey.SYNC_GROUP, (0, 5), (READ_GROUP,), broker=handle_sync, on_error=sync_error, concurrent=True
    ),
)
