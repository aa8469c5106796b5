"""Rules about groups, offsets and transactions that are more than yes or no: a group and the topics in it,
a transaction and its partitions, which are refused together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft.api.authz.authorization import (
    AUTHORIZATION_ERRORS,
    Action,
    AuthorizedRequest,
    RequestPrincipal,
)
from kraft.api.authz.checks import (
    AuthorizeItems,
    OwnRule,
    authorize_topics,
    partition_by,
    requires,
    topic_name,
)
from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.response import OnError, Response, ResponseStruct
from kraft.wire.bridge import Message, replaced
from kraft.wire.coordinator_type import CoordinatorType
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.security.acls import AclOperation, AclResourceType

_HIDDEN_GROUP: Final = "The group has described topic(s) that the client is not authorized to describe."

_TOPIC: Final = AclResourceType.TOPIC
_GROUP: Final = AclResourceType.GROUP
_CLUSTER: Final = AclResourceType.CLUSTER
_TRANSACTION: Final = AclResourceType.TRANSACTIONAL_ID
_COORDINATED: Final[Mapping[int, AclResourceType]] = {
    CoordinatorType.GROUP: _GROUP,
    CoordinatorType.TRANSACTION: _TRANSACTION,
}


# ---- groups and their offsets ------------------------------------------------------------------------


def find_coordinator(on_error: OnError) -> OwnRule:
    """Until version 3 a request has one key, later a list of them."""
    each_key = AuthorizeItems(
        "Describe on each Group", "coordinator_keys", "coordinators", _coordinator_action, on_error
    )

    @requires("Describe on each Group or TransactionalId")
    def check(
        requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> AuthorizedRequest | Response:
        if ctx.version >= 4:
            return each_key(requester, node, ctx, request)
        action = _coordinator_action(node, request, request.key)
        if action is not None:
            requester.require_authorized(*action)
        return AuthorizedRequest(request)

    return check


def _coordinator_action(node: NodeContext, request: Message, key: str) -> Action | None:
    resource = _COORDINATED.get(request.key_type)
    return None if resource is None else Action(AclOperation.DESCRIBE, resource, key)


def offset_fetch(on_error: OnError) -> OwnRule:
    """A right to the group, and one to each topic; a request for all topics gets those that may be seen."""
    each_topic = authorize_topics(AclOperation.DESCRIBE, on_error)
    each_group: AuthorizeItems[Message] = AuthorizeItems(
        "Describe on each Group",
        "groups",
        "groups",
        lambda node, request, group: Action(AclOperation.DESCRIBE, _GROUP, group.group_id),
        on_error,
    )

    @requires("Describe on each Group and Topic")
    def check(
        requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> AuthorizedRequest | Response:
        if ctx.version >= 8:
            authorized = each_group(requester, node, ctx, request)
            if not isinstance(authorized, AuthorizedRequest):
                return authorized
            return authorized.then(_authorize_topics_of_groups(requester, node, authorized.request))
        requester.require_authorized(AclOperation.DESCRIBE, _GROUP, request.group_id)
        if request.topics is not None:
            return each_topic(requester, node, ctx, request)
        return AuthorizedRequest(
            request, lambda response: {**response, "topics": _visible(requester, node, response["topics"])}
        )

    return check


def _authorize_topics_of_groups(
    requester: RequestPrincipal, node: NodeContext, request: Message
) -> AuthorizedRequest:
    groups: list[Message] = []
    refused: dict[str, list[ResponseStruct]] = {}
    for group in request.groups:
        if group.topics is None:
            groups.append(group)
            continue
        seen, hidden = partition_by(group.topics, lambda topic: _may_see(requester, node, topic))
        refused[group.group_id] = [_failed_offsets(topic, AUTHORIZATION_ERRORS[_TOPIC]) for topic in hidden]
        groups.append(replaced(group, topics=seen))
    return AuthorizedRequest(
        replaced(request, groups=groups),
        lambda response: _with_visible_topics(requester, node, response, refused),
    )


def _with_visible_topics(
    requester: RequestPrincipal,
    node: NodeContext,
    response: Response,
    refused: Mapping[str, list[ResponseStruct]],
) -> Response:
    groups = [
        {
            **group,
            "topics": [
                *_visible(requester, node, group["topics"]),
                *(refused.get(group["group_id"], ()) if not group["error_code"] else ()),
            ],
        }
        for group in response["groups"]
    ]
    return {**response, "groups": groups}


def _visible(
    requester: RequestPrincipal, node: NodeContext, topics: list[ResponseStruct]
) -> list[ResponseStruct]:
    def name(topic: ResponseStruct) -> str | None:
        return topic["name"] if "name" in topic else topic_name(node, None, topic["topic_id"])

    return [
        topic
        for topic in topics
        if (known := name(topic)) is None or requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, known)
    ]


def _may_see(requester: RequestPrincipal, node: NodeContext, topic: Message) -> bool:
    name = topic_name(node, topic.name, topic.topic_id)
    return name is None or requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, name)


def _failed_offsets(topic: Message, code: ErrorCode) -> ResponseStruct:
    partitions = [
        {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": int(code)}
        for index in topic.partition_indexes
    ]
    return {"name": topic.name, "topic_id": topic.topic_id, "partitions": partitions}


@requires("")  # it refuses nothing
def group_operations(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> AuthorizedRequest:
    if not request.include_authorized_operations:
        return AuthorizedRequest(request)

    def with_operations(response: Response) -> Response:
        for group in response["groups"]:
            if not group["error_code"]:
                group["authorized_operations"] = requester.operations(_GROUP, group["group_id"])
        return response

    return AuthorizedRequest(request, with_operations)


@requires("Describe on each Topic subscribed to by name")
def subscribed(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> AuthorizedRequest:
    for name in request.subscribed_topic_names or ():
        requester.require_authorized(AclOperation.DESCRIBE, _TOPIC, name)
    return AuthorizedRequest(request)


def hide_members(on_error: OnError) -> OwnRule:
    """A group that has topics which the principal may not see is not described at all."""

    @requires("Describe on each Topic of its members")
    def check(
        requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> AuthorizedRequest:
        def is_hidden(group: ResponseStruct) -> bool:
            return any(
                not requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, topic["topic_name"])
                for member in group.get("members", ())
                for part in ("assignment", "target_assignment")
                for topic in member[part]["topic_partitions"]
            )

        def refusal(group: ResponseStruct) -> ResponseStruct:
            alone = replaced(request, group_ids=[group["group_id"]])
            refused = on_error(alone, AUTHORIZATION_ERRORS[_TOPIC], _HIDDEN_GROUP)
            answer: ResponseStruct = refused["groups"][0]
            return answer

        return AuthorizedRequest(
            request,
            lambda response: {
                **response,
                "groups": [refusal(each) if is_hidden(each) else each for each in response["groups"]],
            },
        )

    return check


# ---- transactions ------------------------------------------------------------------------------------


@requires("Write on TransactionalId; without one IdempotentWrite on Cluster, or Write on any Topic")
def init_producer_id(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> AuthorizedRequest:
    if request.transactional_id is not None:
        requester.require_authorized(AclOperation.WRITE, _TRANSACTION, request.transactional_id)
    elif not requester.authorizer.allows_any(requester.principal, requester.host, AclOperation.WRITE, _TOPIC):
        requester.require_authorized(AclOperation.IDEMPOTENT_WRITE, _CLUSTER)
    return AuthorizedRequest(request)


def add_partitions(on_error: OnError) -> OwnRule:
    """All partitions, or none; from version 4 on only brokers ask."""

    @requires("Write on TransactionalId and each Topic; of brokers ClusterAction on Cluster")
    def check(
        requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> AuthorizedRequest | Response:
        if ctx.version >= 4:
            requester.require_authorized(AclOperation.CLUSTER_ACTION, _CLUSTER)
            return AuthorizedRequest(request)
        requester.require_authorized(AclOperation.WRITE, _TRANSACTION, request.v3_and_below_transactional_id)
        others, refused = partition_by(
            request.v3_and_below_topics,
            lambda topic: requester.is_authorized(AclOperation.WRITE, _TOPIC, topic.name),
        )
        if not refused:
            return AuthorizedRequest(request)
        answers: list[ResponseStruct] = []
        for topics, code in (
            (refused, AUTHORIZATION_ERRORS[_TOPIC]),
            (others, ErrorCode.OPERATION_NOT_ATTEMPTED),
        ):
            answer = on_error(replaced(request, v3_and_below_topics=topics), code, "")
            answers += answer["results_by_topic_v3_and_below"]
        return {"results_by_topic_v3_and_below": answers}

    return check


@requires("Describe on each Topic of a transaction")
def hide_topics(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> AuthorizedRequest:
    """Show only those topics of a transaction that the principal may see."""

    def filtered(response: Response) -> Response:
        for state in response["transaction_states"]:
            state["topics"] = [
                each
                for each in state["topics"]
                if requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, each["topic"])
            ]
        return response

    return AuthorizedRequest(request, filtered)
