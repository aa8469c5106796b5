"""Authorization of what reads its own bytes and is authorized by its handler: Produce, Fetch, Raft."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from kraft.api.authz.authorization import AUTHORIZATION_ERRORS, RequestPrincipal
from kraft.api.authz.checks import topic_name
from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext
from kraft.wire.fast_produce import ProduceRequest
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.security.acls import AclOperation, AclResourceType


def unauthorized_writes(
    node: NodeContext, ctx: RequestContext, request: ProduceRequest
) -> dict[int, BrokerError]:
    """The errors of the partitions that the principal may not write to, by their place in the request."""
    assert node.authorizer is not None
    requester = RequestPrincipal.of(node.authorizer, ctx)
    transactional_id = request.transactional_id
    if transactional_id is not None and not requester.is_authorized(
        AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        requester.log_denied(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
        code = AUTHORIZATION_ERRORS[AclResourceType.TRANSACTIONAL_ID]
        return {place: BrokerError(code) for place in range(len(request.partitions))}
    refused = {}
    for place, wanted in enumerate(request.partitions):
        name = topic_name(node, wanted.topic, wanted.topic_id)
        if name is None:  # it may have one by the time that its turn comes, or have its replicas still
            refused[place] = BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
        elif not requester.is_authorized(AclOperation.WRITE, AclResourceType.TOPIC, name):
            requester.log_denied(AclOperation.WRITE, AclResourceType.TOPIC, name)
            refused[place] = BrokerError(AUTHORIZATION_ERRORS[AclResourceType.TOPIC])
    return refused


def read_authorization(
    node: NodeContext, ctx: RequestContext, *, follower: bool
) -> Callable[[str, UUID], bool] | None:
    """Whether a topic may be read, as of the moment of the call, which raises UNKNOWN_TOPIC_ID for an id that
    the metadata does not know: its replicas may be here still. None: every topic may."""
    if node.authorizer is None or (follower and is_cluster_action_authorized(node, ctx)):
        return None

    def may_read(topic: str, topic_id: UUID) -> bool:
        if follower:
            return False
        name = topic_name(node, topic, topic_id)
        if name is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
        assert node.authorizer is not None
        return RequestPrincipal.of(node.authorizer, ctx).is_authorized(
            AclOperation.READ, AclResourceType.TOPIC, name
        )

    return may_read


def is_cluster_action_authorized(node: NodeContext, ctx: RequestContext) -> bool:
    """Whether the principal may act as a node of the cluster."""
    if node.authorizer is None:
        return True
    requester = RequestPrincipal.of(node.authorizer, ctx)
    if requester.is_authorized(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER):
        return True
    requester.log_denied(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, ctx.api_key.api_name)
    return False
