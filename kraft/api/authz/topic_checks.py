"""Rights to topics where they are more than yes or no: what is refused must not tell what exists, what is
asked for in general is narrowed to what may be seen, and what may be done is told when that is asked.

Judges for table.py, one per API.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from kraft.api.authz.checks import (
    AUTHORIZATION_ERRORS,
    Action,
    ActionOf,
    AuthorizeItems,
    RequestPrincipal,
    amend_response,
    topic_name,
)
from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext, Role
from kraft.api.row import Response
from kraft.wire.bridge import Message
from metadata_quorum.foundation.model import ZERO_UUID, ResourceType
from metadata_quorum.security.acls import CLUSTER_NAME, AclOperation, AclResourceType

_TOPIC: Final = AclResourceType.TOPIC
_REFUSED: Final = AUTHORIZATION_ERRORS[_TOPIC]


# ---- Metadata ----------------------------------------------------------------------------------------


def metadata(requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message) -> None:
    """Named topics: without DESCRIBE nobody learns whether they exist. All topics: those that may be seen."""
    if request.topics is None or (ctx.version == 0 and not request.topics):
        amend_response(ctx, lambda response: _only_visible(requester, response))
    else:
        _authorize_named(requester, node, ctx, request)
    if request.include_topic_authorized_operations:
        amend_response(ctx, lambda response: _with_operations(requester, response))
    if request.include_cluster_authorized_operations:
        cluster_operations(requester, node, ctx, request)


def _only_visible(requester: RequestPrincipal, response: Response) -> Response:
    visible = [
        each
        for each in response["topics"]
        if requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, each["name"])
    ]
    return {**response, "topics": visible}


def _authorize_named(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> None:
    creates = request.allow_auto_topic_creation and node.config.auto_create_topics_enable
    allowed: list[Message] = []
    refused: list[dict[str, Any]] = []
    for topic in request.topics:
        name = topic_name(node, topic)
        if name is None or _may_ask_for(requester, node, name, creates=creates):
            allowed.append(topic)
            continue
        by_id: UUID = topic.topic_id
        told = {"name": name} if by_id == ZERO_UUID else {"name": None if ctx.version >= 12 else ""}
        refused.append({"error_code": int(_REFUSED), **told, "topic_id": by_id, "partitions": []})
        requester.log_denied(AclOperation.DESCRIBE, _TOPIC, name)
    if not refused:
        return
    vars(request)["topics"] = allowed  # in version 0 an empty list asks for all: none of them is told
    amend_response(
        ctx,
        lambda response: {**response, "topics": [*(response["topics"] if allowed else ()), *refused]},
    )


def _may_ask_for(requester: RequestPrincipal, node: NodeContext, name: str, *, creates: bool) -> bool:
    if not requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, name):
        return False
    if not creates or node.image.topic(name) is not None:
        return True
    return requester.is_authorized(AclOperation.CREATE, AclResourceType.CLUSTER) or requester.is_authorized(
        AclOperation.CREATE, _TOPIC, name
    )


def _with_operations(requester: RequestPrincipal, response: Response) -> Response:
    for topic in response["topics"]:
        if topic["error_code"] != _REFUSED and topic["name"]:
            topic["topic_authorized_operations"] = requester.operations(_TOPIC, topic["name"])
    return response


def cluster_operations(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> None:
    """What may be done with the cluster is told to who may DESCRIBE it."""
    may = requester.is_authorized(AclOperation.DESCRIBE, AclResourceType.CLUSTER)
    bits = requester.operations(AclResourceType.CLUSTER) if may else 0
    amend_response(ctx, lambda response: {**response, "cluster_authorized_operations": bits})


def describe_cluster(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> None:
    """Anybody may ask a broker; to ask a controller takes ALTER."""
    if ctx.role is Role.CONTROLLER:
        requester.require_authorized(AclOperation.ALTER, AclResourceType.CLUSTER)
    if request.include_cluster_authorized_operations:
        cluster_operations(requester, node, ctx, request)


def describe_topic_partitions(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> Response | None:
    """Narrowed beforehand, since its answer comes in pages."""
    named = {topic.name for topic in request.topics} or node.image.topics_by_name.keys()
    visible = [name for name in named if requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, name)]
    refused: list[dict[str, Any]] = []
    if request.topics:
        hidden = sorted(named - set(visible))
        refused = [{"error_code": int(_REFUSED), "name": name, "topic_id": ZERO_UUID} for name in hidden]
    if not visible:  # no names would ask for all
        return {"topics": refused, "next_cursor": None}
    vars(request)["topics"] = [SimpleNamespace(name=name) for name in visible]
    amend_response(
        ctx,
        lambda response: {**_with_operations(requester, response), "topics": [*response["topics"], *refused]},
    )
    return None


# ---- CreateTopics, DeleteTopics ----------------------------------------------------------------------


def create_topics(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> Response | None:
    """CREATE on the cluster is CREATE on every topic; to be told its configuration takes DESCRIBE_CONFIGS."""
    if not requester.is_authorized(AclOperation.CREATE, AclResourceType.CLUSTER):
        refusal = _EACH_CREATED(requester, node, ctx, request)
        if refusal is not None:
            return refusal
    amend_response(ctx, lambda response: _without_configs(requester, response))
    return None


_EACH_CREATED: Final = AuthorizeItems(
    "topics", "topics", lambda node, request, topic: Action(AclOperation.CREATE, _TOPIC, topic.name)
)


def _without_configs(requester: RequestPrincipal, response: Response) -> Response:
    for topic in response["topics"]:
        if topic["error_code"] == 0 and not requester.is_authorized(
            AclOperation.DESCRIBE_CONFIGS, _TOPIC, topic["name"]
        ):
            topic |= {
                "topic_config_error_code": int(_REFUSED),
                "configs": None,
                "num_partitions": -1,
                "replication_factor": -1,
            }
    return response


def delete_topics(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> Response | None:
    """DELETE on the cluster is DELETE on every topic. A name is told to who gave it, or may DESCRIBE it.
    Ids are looked up where they will be deleted: the controller may know topics that its broker does not."""
    image = node.image if node.controller is None else node.controller.image
    if requester.is_authorized(AclOperation.DELETE, AclResourceType.CLUSTER):
        return None
    refused: list[dict[str, Any]] = []

    def may(name: str | None, topic_id: UUID = ZERO_UUID) -> bool:
        if name is None or requester.is_authorized(AclOperation.DELETE, _TOPIC, name):
            return True
        told = topic_id == ZERO_UUID or requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, name)
        refused.append(
            {
                "name": name if told else None,
                "topic_id": topic_id,
                "error_code": int(_REFUSED),
                "error_message": None,
            }
        )
        requester.log_denied(AclOperation.DELETE, _TOPIC, name)
        return False

    names = [name for name in request.topic_names if may(name)]
    topics = []
    for topic in request.topics:
        by_id = image.topic(topic.topic_id)
        if may(topic.name if by_id is None else by_id.name, topic.topic_id):
            topics.append(topic)
    if not refused:
        return None
    if not (names or topics):
        return {"responses": refused}
    vars(request).update(topic_names=names, topics=topics)
    amend_response(ctx, lambda response: {**response, "responses": [*response["responses"], *refused]})
    return None


# ---- configurations ----------------------------------------------------------------------------------


def config_of(operation: AclOperation) -> ActionOf:
    """What it takes to look at or to change a configuration: a right to what it belongs to."""

    def ask(node: NodeContext, request: Message, item: Message) -> Action | None:
        match item.resource_type:
            case ResourceType.TOPIC:
                return Action(operation, _TOPIC, item.resource_name)
            case ResourceType.GROUP:
                return Action(operation, AclResourceType.GROUP, item.resource_name)
            case _:
                return Action(operation, AclResourceType.CLUSTER, CLUSTER_NAME)

    return ask
