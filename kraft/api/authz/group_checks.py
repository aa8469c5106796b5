"""Rights to groups, offsets and transactions where they are more than yes or no: a group and the topics in
it, a transaction and its partitions, which are refused together.

Judges for table.py, one per API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraft.api.authz.checks import (
    AUTHORIZATION_ERRORS,
    Action,
    AuthorizeItems,
    RequestPrincipal,
    amend_response,
    authorize_topics,
    name_of,
    partition_by,
    topic_name,
    with_items,
)
from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.row import Response
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.security.acls import AclOperation, AclResourceType

_HIDDEN_GROUP: Final = "The group has described topic(s) that the client is not authorized to describe."

_TOPIC: Final = AclResourceType.TOPIC
_GROUP: Final = AclResourceType.GROUP
_CLUSTER: Final = AclResourceType.CLUSTER
_TRANSACTION: Final = AclResourceType.TRANSACTIONAL_ID


# ---- groups and their offsets ------------------------------------------------------------------------


def find_coordinator(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> Response | None:
    if ctx.version >= 4:
        return _EACH_COORDINATOR(requester, node, ctx, request)
    action = _coordinator_of(node, request, request.key)
    if action is not None:
        requester.require_authorized(*action)
    return None


def _coordinator_of(node: NodeContext, request: Message, key: str) -> Action | None:
    resource = {0: _GROUP, 1: _TRANSACTION}.get(request.key_type)
    return None if resource is None else Action(AclOperation.DESCRIBE, resource, key)


_EACH_COORDINATOR: Final = AuthorizeItems("coordinator_keys", "coordinators", _coordinator_of)


def offset_fetch(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> Response | None:
    """A right to the group, and one to each topic; who asks for all topics hears of those he may see."""
    if ctx.version < 8:
        requester.require_authorized(AclOperation.DESCRIBE, _GROUP, request.group_id)
        if request.topics is not None:
            return EACH_OFFSET_TOPIC(requester, node, ctx, request)
        amend_response(
            ctx, lambda response: {**response, "topics": _visible(requester, node, response["topics"])}
        )
        return None
    refusal = _EACH_OFFSET_GROUP(requester, node, ctx, request)
    if refusal is not None:
        return refusal
    refused: dict[str, list[dict[str, Any]]] = {}
    for group in request.groups:
        if group.topics is not None:
            seen, hidden = partition_by(group.topics, lambda topic: _may_see(requester, node, topic))
            refused[group.group_id] = [
                _failed_offsets(topic, AUTHORIZATION_ERRORS[_TOPIC]) for topic in hidden
            ]
            vars(group)["topics"] = seen
    amend_response(ctx, lambda response: _with_visible_topics(requester, node, response, refused))
    return None


def _with_visible_topics(
    requester: RequestPrincipal,
    node: NodeContext,
    response: Response,
    refused: Mapping[str, list[dict[str, Any]]],
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
    requester: RequestPrincipal, node: NodeContext, topics: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    def name(topic: Mapping[str, Any]) -> str | None:
        return topic["name"] if "name" in topic else name_of(node, "", topic["topic_id"])

    return [
        topic
        for topic in topics
        if (known := name(topic)) is None or requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, known)
    ]


def _may_see(requester: RequestPrincipal, node: NodeContext, topic: Message) -> bool:
    name = topic_name(node, topic)
    return name is None or requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, name)


def _failed_offsets(topic: Message, code: ErrorCode) -> dict[str, Any]:
    named: dict[str, Any] = {key: vars(topic)[key] for key in ("name", "topic_id") if key in vars(topic)}
    partitions = [
        {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": int(code)}
        for index in topic.partition_indexes
    ]
    return {**named, "partitions": partitions}


def group_operations(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> None:
    if not request.include_authorized_operations:
        return

    def told(response: Response) -> Response:
        for group in response["groups"]:
            if not group["error_code"]:
                group["authorized_operations"] = requester.operations(_GROUP, group["group_id"])
        return response

    amend_response(ctx, told)


def subscribed(requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message) -> None:
    for name in request.subscribed_topic_names or ():
        requester.require_authorized(AclOperation.DESCRIBE, _TOPIC, name)


def hide_members(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> None:
    """A group that has topics which the asker may not see is not described at all."""

    def hidden(group: Mapping[str, Any]) -> bool:
        return any(
            not requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, topic["topic_name"])
            for member in group.get("members", ())
            for part in ("assignment", "target_assignment")
            for topic in member[part]["topic_partitions"]
        )

    def seen(response: Response) -> Response:
        return {
            **response,
            "groups": [refusal(each) if hidden(each) else each for each in response["groups"]],
        }

    def refusal(group: Mapping[str, Any]) -> Any:
        assert ctx.row.on_error is not None
        alone = with_items(request, "group_ids", [group["group_id"]])
        return ctx.row.on_error(alone, AUTHORIZATION_ERRORS[_TOPIC], _HIDDEN_GROUP)["groups"][0]

    amend_response(ctx, seen)


# ---- transactions ------------------------------------------------------------------------------------


def init_producer_id(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> None:
    if request.transactional_id is not None:
        requester.require_authorized(AclOperation.WRITE, _TRANSACTION, request.transactional_id)
    elif not requester.authorizer.allows_any(requester.principal, requester.host, AclOperation.WRITE, _TOPIC):
        requester.require_authorized(AclOperation.IDEMPOTENT_WRITE, _CLUSTER)


def add_partitions(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> Response | None:
    """All partitions, or none; from version 4 on it is brokers who ask."""
    if ctx.version >= 4:
        requester.require_authorized(AclOperation.CLUSTER_ACTION, _CLUSTER)
        return None
    requester.require_authorized(AclOperation.WRITE, _TRANSACTION, request.v3_and_below_transactional_id)
    answers: list[Any] = []
    others, refused = partition_by(
        request.v3_and_below_topics,
        lambda topic: requester.is_authorized(AclOperation.WRITE, _TOPIC, topic.name),
    )
    if not refused:
        return None
    assert ctx.row.on_error is not None
    for topics, code in (
        (refused, AUTHORIZATION_ERRORS[_TOPIC]),
        (others, ErrorCode.OPERATION_NOT_ATTEMPTED),
    ):
        answer = ctx.row.on_error(with_items(request, "v3_and_below_topics", topics), code, "")
        answers += answer["results_by_topic_v3_and_below"]
    return {"results_by_topic_v3_and_below": answers}


def hide_topics(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> None:
    """Of a transaction, the topics that the asker may see."""

    def seen(response: Response) -> Response:
        for state in response["transaction_states"]:
            state["topics"] = [
                each
                for each in state["topics"]
                if requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, each["topic"])
            ]
        return response

    amend_response(ctx, seen)


EACH_OFFSET_TOPIC: Final = authorize_topics(AclOperation.DESCRIBE)
_EACH_OFFSET_GROUP: Final = AuthorizeItems(
    "groups", "groups", lambda node, request, group: Action(AclOperation.DESCRIBE, _GROUP, group.group_id)
)
