"""Rules about topics that are more than yes or no: a refusal must not tell what exists, a request for
everything is narrowed to what the principal may see, and allowed operations are listed on request.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Final
from uuid import UUID

from kraft.api.authz.authorization import (
    AUTHORIZATION_ERRORS,
    Action,
    AuthorizedRequest,
    RequestPrincipal,
    ResponseCompletion,
)
from kraft.api.authz.checks import AuthorizeItems, OwnRule, authorize_topics, camel_case, requires, topic_name
from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext, Role
from kraft.api.response import OnError, Response, ResponseStruct
from kraft.wire.bridge import Message, replaced
from metadata_quorum.foundation.model import ZERO_UUID, ResourceType
from metadata_quorum.security.acls import CLUSTER_NAME, AclOperation, AclResourceType

_TOPIC: Final = AclResourceType.TOPIC
_CLUSTER: Final = AclResourceType.CLUSTER
_REFUSED: Final = AUTHORIZATION_ERRORS[_TOPIC]


# ---- Metadata ----------------------------------------------------------------------------------------


@requires("Describe on each Topic; Create on Cluster or Topic to create it")
def metadata(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> AuthorizedRequest:
    """Named topics: without DESCRIBE nobody learns whether they exist. All topics: those that may be seen."""
    if request.topics is None or (ctx.version == 0 and not request.topics):
        authorized = AuthorizedRequest(request, lambda response: _only_visible(requester, response))
    else:
        authorized = _authorize_named(requester, node, ctx, request)
    if request.include_topic_authorized_operations:
        with_operations = AuthorizedRequest(
            authorized.request, lambda response: _with_operations(requester, response)
        )
        authorized = authorized.then(with_operations)
    if request.include_cluster_authorized_operations:
        with_operations = AuthorizedRequest(authorized.request, _with_cluster_operations(requester))
        authorized = authorized.then(with_operations)
    return authorized


def _only_visible(requester: RequestPrincipal, response: Response) -> Response:
    visible = [
        each
        for each in response["topics"]
        if requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, each["name"])
    ]
    return {**response, "topics": visible}


def _authorize_named(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> AuthorizedRequest:
    creates = request.allow_auto_topic_creation and node.config.auto_create_topics_enable
    allowed: list[Message] = []
    refused: list[ResponseStruct] = []
    for topic in request.topics:
        by_id: UUID = topic.topic_id
        name = topic_name(node, topic.name, by_id)
        if name is None or _may_ask_for(requester, node, name, creates=creates):
            allowed.append(topic)
            continue
        shown = {"name": name} if by_id == ZERO_UUID else {"name": None if ctx.version >= 12 else ""}
        refused.append({"error_code": int(_REFUSED), **shown, "topic_id": by_id, "partitions": []})
        requester.log_denied(AclOperation.DESCRIBE, _TOPIC, name)
    if not refused:
        return AuthorizedRequest(request)
    return AuthorizedRequest(
        replaced(request, topics=allowed),  # in version 0 an empty list asks for all: none of them is shown
        lambda response: {**response, "topics": [*(response["topics"] if allowed else ()), *refused]},
    )


def _may_ask_for(requester: RequestPrincipal, node: NodeContext, name: str, *, creates: bool) -> bool:
    if not requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, name):
        return False
    if not creates or node.image.topic(name) is not None:
        return True
    return requester.is_authorized(AclOperation.CREATE, _CLUSTER) or requester.is_authorized(
        AclOperation.CREATE, _TOPIC, name
    )


def _with_operations(requester: RequestPrincipal, response: Response) -> Response:
    for topic in response["topics"]:
        if topic["error_code"] != _REFUSED and topic["name"]:
            topic["topic_authorized_operations"] = requester.operations(_TOPIC, topic["name"])
    return response


def _with_cluster_operations(requester: RequestPrincipal) -> ResponseCompletion:
    """Show the operations that are allowed on the cluster to principals that may DESCRIBE it."""
    may_describe = requester.is_authorized(AclOperation.DESCRIBE, _CLUSTER)
    bits = requester.operations(_CLUSTER) if may_describe else 0
    told = {"cluster_authorized_operations": bits}
    return lambda response: response if response.get("error_code") else {**response, **told}


@requires("none on a broker; Alter on Cluster on a controller")
def describe_cluster(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> AuthorizedRequest:
    """Anybody may ask a broker; to ask a controller takes ALTER."""
    if ctx.role is Role.CONTROLLER:
        requester.require_authorized(AclOperation.ALTER, _CLUSTER)
    if not request.include_cluster_authorized_operations:
        return AuthorizedRequest(request)
    return AuthorizedRequest(request, _with_cluster_operations(requester))


@requires("Describe on each Topic")
def describe_topic_partitions(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> AuthorizedRequest | Response:
    """The request is narrowed, not the response, because the response comes in pages. Of all topics the
    handler describes those that may be seen: it looks only at those of its page."""
    if not request.topics:
        return AuthorizedRequest(request, lambda response: _with_operations(requester, response))
    named = {topic.name for topic in request.topics}
    visible = [name for name in named if requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, name)]
    hidden = sorted(named - set(visible))
    refused = [{"error_code": int(_REFUSED), "name": name, "topic_id": ZERO_UUID} for name in hidden]
    if not visible:  # no names would ask for all
        return {"topics": refused, "next_cursor": None}
    return AuthorizedRequest(
        replaced(request, topics=[SimpleNamespace(name=name) for name in visible]),
        lambda response: {**_with_operations(requester, response), "topics": [*response["topics"], *refused]},
    )


# ---- CreateTopics, DeleteTopics ----------------------------------------------------------------------


def create_topics(on_error: OnError) -> OwnRule:
    """CREATE on the cluster is CREATE on every topic; to see a new topic's configuration takes
    DESCRIBE_CONFIGS."""
    each_topic = authorize_topics(AclOperation.CREATE, on_error)

    @requires("Create on Cluster, or on each Topic; DescribeConfigs on Topic to see its configuration")
    def check(
        requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> AuthorizedRequest | Response:
        authorized: AuthorizedRequest | Response = AuthorizedRequest(request)
        if not requester.is_authorized(AclOperation.CREATE, _CLUSTER):
            authorized = each_topic(requester, node, ctx, request)
        if not isinstance(authorized, AuthorizedRequest):
            return authorized
        return authorized.then(
            AuthorizedRequest(authorized.request, lambda response: _without_configs(requester, response))
        )

    return check


def _without_configs(requester: RequestPrincipal, response: Response) -> Response:
    for topic in response["topics"]:
        if topic["error_code"] == 0 and not requester.is_authorized(
            AclOperation.DESCRIBE_CONFIGS, _TOPIC, topic["name"]
        ):
            topic |= {
                "topic_config_error_code": int(_REFUSED),
                "configs": [],
                "num_partitions": -1,
                "replication_factor": -1,
            }
    return response


@requires("Delete on Cluster, or on each Topic")
def delete_topics(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> AuthorizedRequest | Response:
    """DELETE on the cluster is DELETE on every topic. A topic's name is shown to a principal that gave it, or
    that may DESCRIBE the topic. Ids are looked up where they will be deleted: the controller may know topics
    that its broker does not."""
    image = node.committed_metadata.image
    if requester.is_authorized(AclOperation.DELETE, _CLUSTER):
        return AuthorizedRequest(request)
    refused: list[ResponseStruct] = []

    def may_delete(name: str | None, topic_id: UUID = ZERO_UUID) -> bool:
        if name is None or requester.is_authorized(AclOperation.DELETE, _TOPIC, name):
            return True
        is_shown = topic_id == ZERO_UUID or requester.is_authorized(AclOperation.DESCRIBE, _TOPIC, name)
        refused.append(
            {
                "name": name if is_shown else None,
                "topic_id": topic_id,
                "error_code": int(_REFUSED),
                "error_message": None,
            }
        )
        requester.log_denied(AclOperation.DELETE, _TOPIC, name)
        return False

    names = [name for name in request.topic_names if may_delete(name)]
    topics = []
    for topic in request.topics:
        by_id = image.topic(topic.topic_id)
        if may_delete(topic.name if by_id is None else by_id.name, topic.topic_id):
            topics.append(topic)
    if not refused:
        return AuthorizedRequest(request)
    if not (names or topics):
        return {"responses": refused}
    return AuthorizedRequest(
        replaced(request, topic_names=names, topics=topics),
        lambda response: {**response, "responses": [*response["responses"], *refused]},
    )


# ---- configurations ----------------------------------------------------------------------------------


def authorize_configs(operation: AclOperation, answers: str, on_error: OnError) -> AuthorizeItems[Message]:
    """Reading or changing a configuration needs a right to the resource that it belongs to."""

    def action_of(node: NodeContext, request: Message, item: Message) -> Action:
        match item.resource_type:
            case ResourceType.TOPIC:
                return Action(operation, _TOPIC, item.resource_name)
            case ResourceType.GROUP:
                return Action(operation, AclResourceType.GROUP, item.resource_name)
            case _:
                return Action(operation, _CLUSTER, CLUSTER_NAME)

    required = f"{camel_case(operation.name)} on each Topic, Group or Cluster"
    return AuthorizeItems(required, "resources", answers, action_of, on_error)


def authorize_epochs(on_error: OnError) -> OwnRule:
    """OffsetForLeaderEpoch: brokers ask for all that they replicate, clients for what they may DESCRIBE."""
    each_topic: AuthorizeItems[Message] = AuthorizeItems(
        "Describe on each Topic",
        "topics",
        "topics",
        lambda node, request, topic: Action(AclOperation.DESCRIBE, _TOPIC, topic.topic),
        on_error,
    )

    @requires("ClusterAction on Cluster, or Describe on each Topic")
    def check(
        requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> AuthorizedRequest | Response:
        if requester.is_authorized(AclOperation.CLUSTER_ACTION, _CLUSTER):
            return AuthorizedRequest(request)
        return each_topic(requester, node, ctx, request)

    return check
