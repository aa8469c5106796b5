"""Which right each API asks for: the one place where requests are authorized.

    dispatch.answer -> judge(node, ctx, request) -> the judges of RIGHTS -> the handler, if something is left

Only where `authorizer.class.name` is set. A forwarded request is judged by the active controller, for the
principal and the host that its envelope names. Produce and Fetch read their own messages and ask here as well
(`unauthorized_writes`, `read_authorization`). Operations, resources and errors are those of Apache Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from kraft.api.authz.checks import (
    AUTHORIZATION_ERRORS,
    Action,
    Authorization,
    AuthorizeItems,
    AuthorizeRequest,
    FilterByAuthorized,
    RequestPrincipal,
    authorize_topics,
    name_of,
)
from kraft.api.authz.group_checks import (
    add_partitions,
    find_coordinator,
    group_operations,
    hide_members,
    hide_topics,
    init_producer_id,
    offset_fetch,
    subscribed,
)
from kraft.api.authz.topic_checks import (
    config_of,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_topic_partitions,
    metadata,
)
from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.row import Response
from kraft.wire.bridge import Message
from kraft.wire.fast_produce import ProduceRequest
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.security.acls import AclOperation, AclResourceType

_TOPIC: Final = AclResourceType.TOPIC
_GROUP: Final = AclResourceType.GROUP
_CLUSTER: Final = AclResourceType.CLUSTER
_TRANSACTION: Final = AclResourceType.TRANSACTIONAL_ID


def authorize(node: NodeContext, ctx: RequestContext, request: Message) -> Response | None:
    """Before the handler: None to go on, or the answer in its place. Raises `BrokerError`."""
    if node.authorizer is None:
        return None
    requester = RequestPrincipal.of(node.authorizer, ctx)
    for judging in AUTHORIZATIONS[ctx.api_key]:
        answer = judging(requester, node, ctx, request)
        if answer is not None:
            return answer
    return None


# ---- Produce, Fetch, and what else reads its own messages --------------------------------------------


def unauthorized_writes(
    node: NodeContext, ctx: RequestContext, request: ProduceRequest
) -> dict[int, BrokerError]:
    """By place among a Produce's partitions."""
    assert node.authorizer is not None
    requester = RequestPrincipal.of(node.authorizer, ctx)
    transactional_id = request.transactional_id
    if transactional_id is not None and not requester.is_authorized(
        AclOperation.WRITE, _TRANSACTION, transactional_id
    ):
        requester.log_denied(AclOperation.WRITE, _TRANSACTION, transactional_id)
        code = AUTHORIZATION_ERRORS[_TRANSACTION]
        return {place: BrokerError(code) for place in range(len(request.partitions))}
    refused = {}
    for place, wanted in enumerate(request.partitions):
        name = name_of(node, wanted.topic, wanted.topic_id)
        if name is not None and not requester.is_authorized(AclOperation.WRITE, _TOPIC, name):
            requester.log_denied(AclOperation.WRITE, _TOPIC, name)
            refused[place] = BrokerError(AUTHORIZATION_ERRORS[_TOPIC])
    return refused


def read_authorization(
    node: NodeContext, ctx: RequestContext, *, follower: bool
) -> Callable[[str, UUID], bool] | None:
    """Whether topics may be fetched, as of the time it is asked; None: all of them."""
    if node.authorizer is None or (follower and is_cluster_action_authorized(node, ctx)):
        return None

    def may_read(topic: str, topic_id: UUID) -> bool:
        if follower:
            return False
        name = name_of(node, topic, topic_id)
        assert node.authorizer is not None
        return name is None or RequestPrincipal.of(node.authorizer, ctx).is_authorized(
            AclOperation.READ, _TOPIC, name
        )

    return may_read


def is_cluster_action_authorized(node: NodeContext, ctx: RequestContext) -> bool:
    """Whether the asker speaks as one of the cluster's nodes."""
    if node.authorizer is None:
        return True
    requester = RequestPrincipal.of(node.authorizer, ctx)
    if requester.is_authorized(AclOperation.CLUSTER_ACTION, _CLUSTER):
        return True
    requester.log_denied(AclOperation.CLUSTER_ACTION, _CLUSTER, ctx.row.name)
    return False


# ---- offsets of epochs -------------------------------------------------------------------------------


def _offset_for_leader_epoch(
    requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
) -> Response | None:
    """Brokers ask for whatever they replicate, clients for what they may DESCRIBE."""
    if requester.is_authorized(AclOperation.CLUSTER_ACTION, _CLUSTER):
        return None
    return _EACH_EPOCH(requester, node, ctx, request)


_EACH_EPOCH: Final = AuthorizeItems(
    "topics", "topics", lambda node, request, topic: Action(AclOperation.DESCRIBE, _TOPIC, topic.topic)
)


# ---- the table ---------------------------------------------------------------------------------------


def _authorize_names(
    operation: AclOperation, resource: AclResourceType, items: str, answers: str
) -> AuthorizeItems:
    return AuthorizeItems(items, answers, lambda node, request, name: Action(operation, resource, name))


def _failed_deletion(topic: Message, code: ErrorCode) -> dict[str, Any]:
    partitions = [
        {"partition_index": each.partition_index, "error_code": int(code)} for each in topic.partitions
    ]
    return {"name": topic.name, "partitions": partitions}


_NONE: Final[tuple[Authorization, ...]] = ()
_CLUSTER_ACTION: Final = (AuthorizeRequest((AclOperation.CLUSTER_ACTION,)),)
_ALTER: Final = (AuthorizeRequest((AclOperation.ALTER,)),)
_DESCRIBE: Final = (AuthorizeRequest((AclOperation.DESCRIBE,)),)
_READ_GROUP: Final = AuthorizeRequest((AclOperation.READ,), _GROUP, "group_id")
_WRITE_TRANSACTION: Final = AuthorizeRequest((AclOperation.WRITE,), _TRANSACTION, "transactional_id")

AUTHORIZATIONS: Final[Mapping[int, tuple[Authorization, ...]]] = {
    0: _NONE,  # Produce: refused_writes
    1: _NONE,  # Fetch: reading_rights; on the controllers' listener is_of_cluster
    2: (authorize_topics(AclOperation.DESCRIBE),),  # ListOffsets
    3: (metadata,),
    8: (_READ_GROUP, authorize_topics(AclOperation.READ)),  # OffsetCommit
    9: (offset_fetch,),
    10: (find_coordinator,),
    11: (_READ_GROUP,),  # JoinGroup
    12: (_READ_GROUP,),  # Heartbeat
    13: (_READ_GROUP,),  # LeaveGroup
    14: (_READ_GROUP,),  # SyncGroup
    15: (
        _authorize_names(AclOperation.DESCRIBE, _GROUP, "groups", "groups"),
        group_operations,
    ),  # DescribeGroups
    16: (
        FilterByAuthorized("groups", "group_id", AclOperation.DESCRIBE, _GROUP, unless=AclOperation.DESCRIBE),
    ),  # ListGroups
    17: _NONE,  # SaslHandshake
    18: _NONE,  # ApiVersions
    19: (create_topics,),
    20: (delete_topics,),
    21: (authorize_topics(AclOperation.DELETE),),  # DeleteRecords
    22: (init_producer_id,),
    23: (_offset_for_leader_epoch,),
    24: (add_partitions,),
    25: (_WRITE_TRANSACTION, _READ_GROUP),  # AddOffsetsToTxn
    26: (_WRITE_TRANSACTION,),  # EndTxn
    27: (AuthorizeRequest((AclOperation.ALTER, AclOperation.CLUSTER_ACTION)),),  # WriteTxnMarkers
    28: (_WRITE_TRANSACTION, _READ_GROUP, authorize_topics(AclOperation.READ)),  # TxnOffsetCommit
    29: _DESCRIBE,  # DescribeAcls
    30: _ALTER,  # CreateAcls
    31: _ALTER,  # DeleteAcls
    32: (
        AuthorizeItems("resources", "results", config_of(AclOperation.DESCRIBE_CONFIGS)),
    ),  # DescribeConfigs
    33: (AuthorizeItems("resources", "responses", config_of(AclOperation.ALTER_CONFIGS)),),  # AlterConfigs
    34: _ALTER,  # AlterReplicaLogDirs
    35: _DESCRIBE,  # DescribeLogDirs
    36: _NONE,  # SaslAuthenticate
    37: (authorize_topics(AclOperation.ALTER, "topics", "results"),),  # CreatePartitions
    42: (_authorize_names(AclOperation.DELETE, _GROUP, "groups_names", "results"),),  # DeleteGroups
    43: _ALTER,  # ElectLeaders
    44: (
        AuthorizeItems("resources", "responses", config_of(AclOperation.ALTER_CONFIGS)),
    ),  # IncrementalAlterConfigs
    45: _ALTER,  # AlterPartitionReassignments
    46: _DESCRIBE,  # ListPartitionReassignments
    47: (  # OffsetDelete
        AuthorizeRequest((AclOperation.DELETE,), _GROUP, "group_id"),
        authorize_topics(AclOperation.READ, failed=_failed_deletion),
    ),
    48: (AuthorizeRequest((AclOperation.DESCRIBE_CONFIGS,)),),  # DescribeClientQuotas
    49: (AuthorizeRequest((AclOperation.ALTER_CONFIGS,)),),  # AlterClientQuotas
    50: _DESCRIBE,  # DescribeUserScramCredentials
    51: _ALTER,  # AlterUserScramCredentials
    55: _DESCRIBE,  # DescribeQuorum
    56: _CLUSTER_ACTION,  # AlterPartition
    57: _ALTER,  # UpdateFeatures
    58: _CLUSTER_ACTION,  # Envelope; what is in it is judged for whom it names
    59: _CLUSTER_ACTION,  # FetchSnapshot
    60: (describe_cluster,),
    61: (authorize_topics(AclOperation.READ),),  # DescribeProducers
    62: _CLUSTER_ACTION,  # BrokerRegistration
    63: _CLUSTER_ACTION,  # BrokerHeartbeat
    64: _ALTER,  # UnregisterBroker
    65: (  # DescribeTransactions
        _authorize_names(AclOperation.DESCRIBE, _TRANSACTION, "transactional_ids", "transaction_states"),
        hide_topics,
    ),
    66: (
        FilterByAuthorized("transaction_states", "transactional_id", AclOperation.DESCRIBE, _TRANSACTION),
    ),  # ListTransactions
    67: _CLUSTER_ACTION,  # AllocateProducerIds
    68: (_READ_GROUP, subscribed),  # ConsumerGroupHeartbeat
    69: (  # ConsumerGroupDescribe
        _authorize_names(AclOperation.DESCRIBE, _GROUP, "group_ids", "groups"),
        group_operations,
        hide_members,
    ),
    70: _CLUSTER_ACTION,  # ControllerRegistration
    71: _NONE,  # GetTelemetrySubscriptions
    72: _NONE,  # PushTelemetry
    73: _CLUSTER_ACTION,  # AssignReplicasToDirs
    74: (AuthorizeRequest((AclOperation.DESCRIBE_CONFIGS,)),),  # ListConfigResources
    75: (describe_topic_partitions,),
}
"""By API key. What nodes send each other beside Kafka's APIs (Raft) asks `is_cluster_action_authorized`."""
