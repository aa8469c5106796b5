"""Groups of the consumer protocol (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe.

Turns requests into calls of data_plane/coordinator/groups/service.py, and its replies into responses.
A request that contradicts itself is refused here, before its group is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, Final
from uuid import UUID

from data_plane.coordinator.groups.assignment import Assignment, in_order
from data_plane.coordinator.groups.consumer.messages import (
    ConsumerHeartbeat,
    DescribedConsumerGroup,
    DescribedConsumerMember,
)
from data_plane.coordinator.groups.consumer.state import JOINING, LEAVING, LEAVING_FOR_NOW
from kraft.api.authz.authorization import AuthorizedRequest, RequestPrincipal
from kraft.api.authz.checks import READ_GROUP, authorize_names, requires
from kraft.api.authz.group_checks import group_operations, hide_members, subscribed
from kraft.api.context import BrokerContext, NodeContext
from kraft.api.group_admin import of_group
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import GROUPS_PER_SLICE, each_once, in_slices
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.features import GROUP_VERSION
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.security.acls import OPERATIONS_OMITTED, AclOperation, AclResourceType, operation_bits

CONSUMER_PROTOCOL: Final = "consumer"

_FIRST_WITH_OWN_ID: Final = 1
"""ConsumerGroupHeartbeat: members name themselves (KIP-1082)."""
_BLANKS: Final = "".join(map(chr, range(ord(" ") + 1)))
"""What Java's trim takes off."""
TOPICS_PER_SLICE: Final = 2000
"""ConsumerGroupHeartbeat: what a member says that it owns, and what it is told to own."""
DESCRIBED_PER_SLICE: Final = 2000
"""ConsumerGroupDescribe: members, their topics and partitions."""
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


# ---- ConsumerGroupHeartbeat --------------------------------------------------------------------------


async def handle_heartbeat(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    _check_enabled(broker.node)
    _check(request, ctx.version, broker.node.config.group_consumer_assignors)
    names = request.subscribed_topic_names
    if names is not None and len(names) > broker.group_coordinator.view.most_names:
        raise BrokerError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"A subscription to {len(names)} topics.")
    await ctx.connection.state.earlier_commits()  # it may begin another epoch, or leave
    reply = await broker.group_coordinator.consumer_heartbeat(
        ConsumerHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            subscribed_topic_names=None if names is None else tuple(names),
            subscribed_topic_regex=request.subscribed_topic_regex,
            server_assignor=request.server_assignor,
            owned=await _partitions(broker.node, request.topic_partitions),
            client_id=ctx.client_id or "",
            client_host=f"/{ctx.client_host}",
            may_see=_may_describe(broker.node, ctx),
        )
    )
    assignment = reply.assignment
    return {
        "error_code": 0,
        "member_id": reply.member_id,
        "member_epoch": reply.member_epoch,
        "heartbeat_interval_ms": reply.heartbeat_interval_ms,
        "assignment": None if assignment is None else await _topics(broker.node, assignment),
    }


def _may_describe(node: NodeContext, ctx: RequestContext) -> Callable[[str], bool]:
    """Whether the principal may describe a topic."""
    if node.authorizer is None:
        return lambda topic: True
    requester = RequestPrincipal.of(node.authorizer, ctx)
    return cache(lambda topic: requester.is_authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic))


def _check_enabled(node: NodeContext) -> None:
    """The cluster's feature and this broker's configuration must both allow it."""
    finalized = node.image.features.get(GROUP_VERSION, 0) >= 1
    if not finalized or CONSUMER_PROTOCOL not in node.config.group_coordinator_rebalance_protocols:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)


@requires("")
def _enabled(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> AuthorizedRequest:
    """As with Kafka, this comes before anybody's rights."""
    _check_enabled(node)
    return AuthorizedRequest(request)


def _check(request: Message, version: int, assignors: tuple[str, ...]) -> None:
    """Raises BrokerError, INVALID_REQUEST for the most part; in Kafka's order and words."""
    epoch = request.member_epoch
    if version >= _FIRST_WITH_OWN_ID or epoch > JOINING or epoch == LEAVING:
        _require_text(request.member_id, "MemberId can't be empty.")
    _require_text(request.group_id, "GroupId can't be empty.")
    _require_text(request.instance_id, "InstanceId can't be empty.")
    _require_text(request.rack_id, "RackId can't be empty.")
    if epoch == JOINING:
        _require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        _require(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
        subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        _require(
            subscribes,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == LEAVING_FOR_NOW:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    _require(epoch >= LEAVING_FOR_NOW, f"MemberEpoch is invalid: {epoch}.")
    wanted = request.server_assignor
    if wanted is not None and wanted not in assignors:
        supported = ", ".join(assignors)
        raise BrokerError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {wanted} is not supported. Supported assignors: {supported}.",
        )


def _require_text(text: str | None, otherwise: str) -> None:
    """None is fine, blanks are not."""
    _require(text is None or text.strip(_BLANKS), otherwise)


def _require(fine: object, otherwise: str) -> None:
    if not fine:
        raise BrokerError(ErrorCode.INVALID_REQUEST, otherwise)


async def _partitions(node: NodeContext, topics: Iterable[Message] | None) -> Assignment | None:
    if topics is None:
        return None
    owned: dict[UUID, frozenset[int]] = {}
    async for topic in in_slices(node.long_work, topics, TOPICS_PER_SLICE):
        if topic.partitions:
            owned[topic.topic_id] = frozenset(topic.partitions)
    return owned


async def _topics(node: NodeContext, assignment: Assignment) -> dict[str, Any]:
    topic_ids = in_slices(node.long_work, in_order(assignment), TOPICS_PER_SLICE)
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "partitions": sorted(assignment[topic_id])} async for topic_id in topic_ids
        ]
    }


# ---- ConsumerGroupDescribe ---------------------------------------------------------------------------


async def handle_describe(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    _check_enabled(broker.node)
    operations = (
        operation_bits(AclResourceType.GROUP) if request.include_authorized_operations else OPERATIONS_OMITTED
    )
    groups = []
    async for group_id in each_once(
        broker.node.long_work, request.group_ids, GROUPS_PER_SLICE, str, partial(of_group, broker)
    ):
        try:
            described = await broker.group_coordinator.describe_consumer_group(group_id)
        except BrokerError as error:
            groups.append(_undescribed(group_id, error.code, error.message))
        else:
            members = [
                _described_member(each, broker.node.image)
                async for each in in_slices(
                    broker.node.long_work, described.members, DESCRIBED_PER_SLICE, _weight
                )
            ]
            groups.append({**_described(described), "members": members, "authorized_operations": operations})
    return {"groups": groups}


def describe_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"groups": [_undescribed(group_id, code, message) for group_id in request.group_ids]}


def _undescribed(group_id: str, code: ErrorCode, message: str) -> Mapping[str, Any]:
    return {
        "error_code": int(code),
        "error_message": message or None,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
        "authorized_operations": OPERATIONS_OMITTED,
    }


def _weight(described: DescribedConsumerMember) -> int:
    """What a member is described by."""
    member = described.member
    topics = len(member.assigned) + len(described.target) + len(member.metadata.subscribed_topic_names)
    return 1 + topics + sum(map(len, (*member.assigned.values(), *described.target.values())))


def _described(group: DescribedConsumerGroup) -> dict[str, Any]:
    """The description of a group, without its members."""
    return {
        "error_code": 0,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor,
    }


def _described_member(described: DescribedConsumerMember, image: MetadataImage) -> dict[str, Any]:
    member, metadata = described.member, described.member.metadata
    return {
        "member_id": member.member_id,
        "instance_id": metadata.instance_id,
        "rack_id": metadata.rack_id,
        "member_epoch": member.epoch,
        "client_id": metadata.client_id,
        "client_host": metadata.client_host,
        "subscribed_topic_names": list(metadata.subscribed_topic_names),
        "subscribed_topic_regex": metadata.subscribed_topic_regex,
        "assignment": _named_topics(member.assigned, image),
        "target_assignment": _named_topics(described.target, image),
        "member_type": _CLASSIC_MEMBER if member.uses_classic_protocol else _CONSUMER_MEMBER,
    }


def _named_topics(assignment: Assignment, image: MetadataImage) -> dict[str, Any]:
    """Assigned partitions by topic name; deleted topics, which have none, are left out."""
    rows = []
    for topic_id in in_order(assignment):
        topic = image.topic(topic_id)
        if topic is not None:
            partitions = sorted(assignment[topic_id])
            rows.append({"topic_id": topic_id, "topic_name": topic.name, "partitions": partitions})
    return {"topic_partitions": rows}


ROWS: Final = (
    ApiRow(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        (0, 1),
        (_enabled, READ_GROUP, subscribed),
        broker=handle_heartbeat,
        concurrent=True,
    ),
    ApiRow(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        (0, 1),
        (
            _enabled,
            authorize_names(
                AclOperation.DESCRIBE, AclResourceType.GROUP, "group_ids", "groups", describe_error
            ),
            group_operations,
            hide_members(describe_error),
        ),
        broker=handle_describe,
        on_error=describe_error,
    ),
)
