"""Which right each API asks for: the one place where requests are authorized.

    dispatch.answer -> judge(node, ctx, request) -> the judges of RIGHTS -> the handler, if something is left

Only where `authorizer.class.name` is set. A forwarded request is judged by the active controller, for the
principal and the host that its envelope names. Produce and Fetch read their own messages and ask here as well
(`refused_writes`, `reading_rights`). Operations, resources and errors are those of Apache Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from kraft.api.authz.checks import REFUSALS, Asker, Each, Judge, Question, Seen, Whole, each_topic, name_of
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
from kraft.api.context import NodeContext, RequestContext
from kraft.api.row import Response
from kraft.wire.bridge import Message
from kraft.wire.fast_produce import ProduceRequest
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.security.acls import AclResource, Operation

_TOPIC: Final = AclResource.TOPIC
_GROUP: Final = AclResource.GROUP
_CLUSTER: Final = AclResource.CLUSTER
_TRANSACTION: Final = AclResource.TRANSACTIONAL_ID


def judge(node: NodeContext, ctx: RequestContext, request: Message) -> Response | None:
    """Before the handler: None to go on, or the answer in its place. Raises `BrokerError`."""
    if node.authorizer is None:
        return None
    asker = Asker.of(node.authorizer, ctx)
    for judging in RIGHTS[ctx.api_key]:
        answer = judging(asker, node, ctx, request)
        if answer is not None:
            return answer
    return None


# ---- Produce, Fetch, and what else reads its own messages --------------------------------------------


def refused_writes(node: NodeContext, ctx: RequestContext, request: ProduceRequest) -> dict[int, BrokerError]:
    """By place among a Produce's partitions."""
    assert node.authorizer is not None
    asker = Asker.of(node.authorizer, ctx)
    transactional_id = request.transactional_id
    if transactional_id is not None and not asker.may(Operation.WRITE, _TRANSACTION, transactional_id):
        asker.note_refusal(Operation.WRITE, _TRANSACTION, transactional_id)
        code = REFUSALS[_TRANSACTION]
        return {place: BrokerError(code) for place in range(len(request.partitions))}
    refused = {}
    for place, wanted in enumerate(request.partitions):
        name = name_of(node, wanted.topic, wanted.topic_id)
        if name is not None and not asker.may(Operation.WRITE, _TOPIC, name):
            asker.note_refusal(Operation.WRITE, _TOPIC, name)
            refused[place] = BrokerError(REFUSALS[_TOPIC])
    return refused


def reading_rights(
    node: NodeContext, ctx: RequestContext, *, follower: bool
) -> Callable[[str, UUID], bool] | None:
    """Whether topics may be fetched, as of the time it is asked; None: all of them."""
    if node.authorizer is None or (follower and is_of_cluster(node, ctx)):
        return None

    def may_read(topic: str, topic_id: UUID) -> bool:
        if follower:
            return False
        name = name_of(node, topic, topic_id)
        assert node.authorizer is not None
        return name is None or Asker.of(node.authorizer, ctx).may(Operation.READ, _TOPIC, name)

    return may_read


def is_of_cluster(node: NodeContext, ctx: RequestContext) -> bool:
    """Whether the asker speaks as one of the cluster's nodes."""
    if node.authorizer is None:
        return True
    asker = Asker.of(node.authorizer, ctx)
    if asker.may(Operation.CLUSTER_ACTION, _CLUSTER):
        return True
    asker.note_refusal(Operation.CLUSTER_ACTION, _CLUSTER, ctx.row.name)
    return False


# ---- offsets of epochs -------------------------------------------------------------------------------


def _offset_for_leader_epoch(
    asker: Asker, node: NodeContext, ctx: RequestContext, request: Message
) -> Response | None:
    """Brokers ask for whatever they replicate, clients for what they may DESCRIBE."""
    if asker.may(Operation.CLUSTER_ACTION, _CLUSTER):
        return None
    return _EACH_EPOCH(asker, node, ctx, request)


_EACH_EPOCH: Final = Each(
    "topics", "topics", lambda node, request, topic: Question(Operation.DESCRIBE, _TOPIC, topic.topic)
)


# ---- the table ---------------------------------------------------------------------------------------


def _each_name(operation: Operation, resource: AclResource, items: str, answers: str) -> Each:
    return Each(items, answers, lambda node, request, name: Question(operation, resource, name))


def _failed_deletion(topic: Message, code: ErrorCode) -> dict[str, Any]:
    partitions = [
        {"partition_index": each.partition_index, "error_code": int(code)} for each in topic.partitions
    ]
    return {"name": topic.name, "partitions": partitions}


_NONE: Final[tuple[Judge, ...]] = ()
_BETWEEN_NODES: Final = (Whole((Operation.CLUSTER_ACTION,)),)
_ALTER: Final = (Whole((Operation.ALTER,)),)
_DESCRIBE: Final = (Whole((Operation.DESCRIBE,)),)
_OF_GROUP: Final = Whole((Operation.READ,), _GROUP, "group_id")
_OF_TRANSACTION: Final = Whole((Operation.WRITE,), _TRANSACTION, "transactional_id")

RIGHTS: Final[Mapping[int, tuple[Judge, ...]]] = {
    0: _NONE,  # Produce: refused_writes
    1: _NONE,  # Fetch: reading_rights; on the controllers' listener is_of_cluster
    2: (each_topic(Operation.DESCRIBE),),  # ListOffsets
    3: (metadata,),
    8: (_OF_GROUP, each_topic(Operation.READ)),  # OffsetCommit
    9: (offset_fetch,),
    10: (find_coordinator,),
    11: (_OF_GROUP,),  # JoinGroup
    12: (_OF_GROUP,),  # Heartbeat
    13: (_OF_GROUP,),  # LeaveGroup
    14: (_OF_GROUP,),  # SyncGroup
    15: (_each_name(Operation.DESCRIBE, _GROUP, "groups", "groups"), group_operations),  # DescribeGroups
    16: (Seen("groups", "group_id", Operation.DESCRIBE, _GROUP, unless=Operation.DESCRIBE),),  # ListGroups
    17: _NONE,  # SaslHandshake
    18: _NONE,  # ApiVersions
    19: (create_topics,),
    20: (delete_topics,),
    21: (each_topic(Operation.DELETE),),  # DeleteRecords
    22: (init_producer_id,),
    23: (_offset_for_leader_epoch,),
    24: (add_partitions,),
    25: (_OF_TRANSACTION, _OF_GROUP),  # AddOffsetsToTxn
    26: (_OF_TRANSACTION,),  # EndTxn
    27: (Whole((Operation.ALTER, Operation.CLUSTER_ACTION)),),  # WriteTxnMarkers
    28: (_OF_TRANSACTION, _OF_GROUP, each_topic(Operation.READ)),  # TxnOffsetCommit
    29: _DESCRIBE,  # DescribeAcls
    30: _ALTER,  # CreateAcls
    31: _ALTER,  # DeleteAcls
    32: (Each("resources", "results", config_of(Operation.DESCRIBE_CONFIGS)),),  # DescribeConfigs
    33: (Each("resources", "responses", config_of(Operation.ALTER_CONFIGS)),),  # AlterConfigs
    34: _ALTER,  # AlterReplicaLogDirs
    35: _DESCRIBE,  # DescribeLogDirs
    36: _NONE,  # SaslAuthenticate
    37: (each_topic(Operation.ALTER, "topics", "results"),),  # CreatePartitions
    42: (_each_name(Operation.DELETE, _GROUP, "groups_names", "results"),),  # DeleteGroups
    43: _ALTER,  # ElectLeaders
    44: (Each("resources", "responses", config_of(Operation.ALTER_CONFIGS)),),  # IncrementalAlterConfigs
    45: _ALTER,  # AlterPartitionReassignments
    46: _DESCRIBE,  # ListPartitionReassignments
    47: (  # OffsetDelete
        Whole((Operation.DELETE,), _GROUP, "group_id"),
        each_topic(Operation.READ, failed=_failed_deletion),
    ),
    48: (Whole((Operation.DESCRIBE_CONFIGS,)),),  # DescribeClientQuotas
    49: (Whole((Operation.ALTER_CONFIGS,)),),  # AlterClientQuotas
    50: _DESCRIBE,  # DescribeUserScramCredentials
    51: _ALTER,  # AlterUserScramCredentials
    55: _DESCRIBE,  # DescribeQuorum
    56: _BETWEEN_NODES,  # AlterPartition
    57: _ALTER,  # UpdateFeatures
    58: _BETWEEN_NODES,  # Envelope; what is in it is judged for whom it names
    59: _BETWEEN_NODES,  # FetchSnapshot
    60: (describe_cluster,),
    61: (each_topic(Operation.READ),),  # DescribeProducers
    62: _BETWEEN_NODES,  # BrokerRegistration
    63: _BETWEEN_NODES,  # BrokerHeartbeat
    64: _ALTER,  # UnregisterBroker
    65: (  # DescribeTransactions
        _each_name(Operation.DESCRIBE, _TRANSACTION, "transactional_ids", "transaction_states"),
        hide_topics,
    ),
    66: (
        Seen("transaction_states", "transactional_id", Operation.DESCRIBE, _TRANSACTION),
    ),  # ListTransactions
    67: _BETWEEN_NODES,  # AllocateProducerIds
    68: (_OF_GROUP, subscribed),  # ConsumerGroupHeartbeat
    69: (  # ConsumerGroupDescribe
        _each_name(Operation.DESCRIBE, _GROUP, "group_ids", "groups"),
        group_operations,
        hide_members,
    ),
    70: _BETWEEN_NODES,  # ControllerRegistration
    71: _NONE,  # GetTelemetrySubscriptions
    72: _NONE,  # PushTelemetry
    73: _BETWEEN_NODES,  # AssignReplicasToDirs
    74: (Whole((Operation.DESCRIBE_CONFIGS,)),),  # ListConfigResources
    75: (describe_topic_partitions,),
}
"""By API key. What nodes send each other beside Kafka's APIs (Raft) asks `is_of_cluster`."""
