"""Rights to groups, offsets and transactions where they are more than yes or no: a group and the topics in
it, a transaction and its partitions, which are refused together.

Judges for table.py, one per API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraft.api.authz.checks import (
    REFUSALS,
    Asker,
    Each,
    Question,
    amend,
    each_topic,
    name_of,
    parted,
    topic_name,
    with_items,
)
from kraft.api.context import NodeContext, RequestContext
from kraft.api.row import Response
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.security.acls import AclResource, Operation

_HIDDEN_GROUP: Final = "The group has described topic(s) that the client is not authorized to describe."

_TOPIC: Final = AclResource.TOPIC
_GROUP: Final = AclResource.GROUP
_CLUSTER: Final = AclResource.CLUSTER
_TRANSACTION: Final = AclResource.TRANSACTIONAL_ID


# ---- groups and their offsets ------------------------------------------------------------------------


def find_coordinator(
    asker: Asker, node: NodeContext, ctx: RequestContext, request: Message
) -> Response | None:
    if ctx.version >= 4:
        return _EACH_COORDINATOR(asker, node, ctx, request)
    question = _coordinator_of(node, request, request.key)
    if question is not None:
        asker.must(*question)
    return None


def _coordinator_of(node: NodeContext, request: Message, key: str) -> Question | None:
    resource = {0: _GROUP, 1: _TRANSACTION}.get(request.key_type)
    return None if resource is None else Question(Operation.DESCRIBE, resource, key)


_EACH_COORDINATOR: Final = Each("coordinator_keys", "coordinators", _coordinator_of)


def offset_fetch(asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> Response | None:
    """A right to the group, and one to each topic; who asks for all topics hears of those he may see."""
    if ctx.version < 8:
        asker.must(Operation.DESCRIBE, _GROUP, request.group_id)
        if request.topics is not None:
            return EACH_OFFSET_TOPIC(asker, node, ctx, request)
        amend(ctx, lambda response: {**response, "topics": _visible(asker, node, response["topics"])})
        return None
    refusal = _EACH_OFFSET_GROUP(asker, node, ctx, request)
    if refusal is not None:
        return refusal
    refused: dict[str, list[dict[str, Any]]] = {}
    for group in request.groups:
        if group.topics is not None:
            seen, hidden = parted(group.topics, lambda topic: _may_see(asker, node, topic))
            refused[group.group_id] = [_failed_offsets(topic, REFUSALS[_TOPIC]) for topic in hidden]
            vars(group)["topics"] = seen
    amend(ctx, lambda response: _with_visible_topics(asker, node, response, refused))
    return None


def _with_visible_topics(
    asker: Asker, node: NodeContext, response: Response, refused: Mapping[str, list[dict[str, Any]]]
) -> Response:
    groups = [
        {
            **group,
            "topics": [
                *_visible(asker, node, group["topics"]),
                *(refused.get(group["group_id"], ()) if not group["error_code"] else ()),
            ],
        }
        for group in response["groups"]
    ]
    return {**response, "groups": groups}


def _visible(asker: Asker, node: NodeContext, topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def name(topic: Mapping[str, Any]) -> str | None:
        return topic["name"] if "name" in topic else name_of(node, "", topic["topic_id"])

    return [
        topic
        for topic in topics
        if (known := name(topic)) is None or asker.may(Operation.DESCRIBE, _TOPIC, known)
    ]


def _may_see(asker: Asker, node: NodeContext, topic: Message) -> bool:
    name = topic_name(node, topic)
    return name is None or asker.may(Operation.DESCRIBE, _TOPIC, name)


def _failed_offsets(topic: Message, code: ErrorCode) -> dict[str, Any]:
    named: dict[str, Any] = {key: vars(topic)[key] for key in ("name", "topic_id") if key in vars(topic)}
    partitions = [
        {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": int(code)}
        for index in topic.partition_indexes
    ]
    return {**named, "partitions": partitions}


def group_operations(asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> None:
    if not request.include_authorized_operations:
        return

    def told(response: Response) -> Response:
        for group in response["groups"]:
            if not group["error_code"]:
                group["authorized_operations"] = asker.operations(_GROUP, group["group_id"])
        return response

    amend(ctx, told)


def subscribed(asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> None:
    for name in request.subscribed_topic_names or ():
        asker.must(Operation.DESCRIBE, _TOPIC, name)


def hide_members(asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> None:
    """A group that has topics which the asker may not see is not described at all."""

    def hidden(group: Mapping[str, Any]) -> bool:
        return any(
            not asker.may(Operation.DESCRIBE, _TOPIC, topic["topic_name"])
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
        return ctx.row.on_error(alone, REFUSALS[_TOPIC], _HIDDEN_GROUP)["groups"][0]

    amend(ctx, seen)


# ---- transactions ------------------------------------------------------------------------------------


def init_producer_id(asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> None:
    if request.transactional_id is not None:
        asker.must(Operation.WRITE, _TRANSACTION, request.transactional_id)
    elif not asker.authorizer.allows_any(asker.principal, asker.host, Operation.WRITE, _TOPIC):
        asker.must(Operation.IDEMPOTENT_WRITE, _CLUSTER)


def add_partitions(asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> Response | None:
    """All partitions, or none; from version 4 on it is brokers who ask."""
    if ctx.version >= 4:
        asker.must(Operation.CLUSTER_ACTION, _CLUSTER)
        return None
    asker.must(Operation.WRITE, _TRANSACTION, request.v3_and_below_transactional_id)
    answers: list[Any] = []
    others, refused = parted(
        request.v3_and_below_topics, lambda topic: asker.may(Operation.WRITE, _TOPIC, topic.name)
    )
    if not refused:
        return None
    assert ctx.row.on_error is not None
    for topics, code in ((refused, REFUSALS[_TOPIC]), (others, ErrorCode.OPERATION_NOT_ATTEMPTED)):
        answer = ctx.row.on_error(with_items(request, "v3_and_below_topics", topics), code, "")
        answers += answer["results_by_topic_v3_and_below"]
    return {"results_by_topic_v3_and_below": answers}


def hide_topics(asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> None:
    """Of a transaction, the topics that the asker may see."""

    def seen(response: Response) -> Response:
        for state in response["transaction_states"]:
            state["topics"] = [
                each for each in state["topics"] if asker.may(Operation.DESCRIBE, _TOPIC, each["topic"])
            ]
        return response

    amend(ctx, seen)


EACH_OFFSET_TOPIC: Final = each_topic(Operation.DESCRIBE)
_EACH_OFFSET_GROUP: Final = Each(
    "groups", "groups", lambda node, request, group: Question(Operation.DESCRIBE, _GROUP, group.group_id)
)
