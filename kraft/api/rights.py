"""Which right each API asks for: the one place where requests are authorized.

    dispatch.answer -> judge(node, ctx, request) -> the judges of RIGHTS -> the handler, if something is left

Only where `authorizer.class.name` is set. A forwarded request is judged by the active controller, for the
principal and the host that its envelope names. Produce and Fetch read their own messages and ask here as well
(`may_write`, `may_read`). Operations, resources and errors are those of Apache Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from kraft.api.judging import (
    REFUSALS,
    Asker,
    Each,
    Judge,
    Question,
    Seen,
    Whole,
    amend,
    topic_name,
    with_items,
)
from kraft.api.row import Response
from kraft.api.topic_rights import (
    config_of,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_topic_partitions,
    metadata,
)
from kraft.context import NodeContext, RequestContext
from kraft.wire.bridge import Message
from kraft.wire.fast_produce import ProduceRequest
from metadata_quorum.acls import AclResource, Operation
from metadata_quorum.errors import BrokerError, ErrorCode

_HIDDEN_GROUP: Final = "The group has described topic(s) that the client is not authorized to describe."

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
        name = _name(node, wanted.topic, wanted.topic_id)
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
        name = _name(node, topic, topic_id)
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


def _name(node: NodeContext, topic: str, topic_id: UUID) -> str | None:
    if not topic_id.int:
        return topic
    known = node.image.topic(topic_id)
    return None if known is None else known.name


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


# ---- groups and their offsets ------------------------------------------------------------------------


def _find_coordinator(
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


def _offset_fetch(asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> Response | None:
    """A right to the group, and one to each topic; who asks for all topics hears of those he may see."""
    if ctx.version < 8:
        asker.must(Operation.DESCRIBE, _GROUP, request.group_id)
        if request.topics is not None:
            return _EACH_OFFSET_TOPIC(asker, node, ctx, request)
        amend(ctx, lambda response: {**response, "topics": _visible(asker, node, response["topics"])})
        return None
    refusal = _EACH_OFFSET_GROUP(asker, node, ctx, request)
    if refusal is not None:
        return refusal
    refused: dict[str, list[dict[str, Any]]] = {}
    for group in request.groups:
        if group.topics is not None:
            hidden = [topic for topic in group.topics if not _may_see(asker, node, topic)]
            refused[group.group_id] = [_failed_offsets(topic, REFUSALS[_TOPIC]) for topic in hidden]
            vars(group)["topics"] = [topic for topic in group.topics if topic not in hidden]
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
        return topic["name"] if "name" in topic else _name(node, "", topic["topic_id"])

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


def _group_operations(asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> None:
    if not request.include_authorized_operations:
        return

    def told(response: Response) -> Response:
        for group in response["groups"]:
            if not group["error_code"]:
                group["authorized_operations"] = asker.operations(_GROUP, group["group_id"])
        return response

    amend(ctx, told)


def _subscribed(asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> None:
    for name in request.subscribed_topic_names or ():
        asker.must(Operation.DESCRIBE, _TOPIC, name)


def _hide_members(asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> None:
    """A group that has topics which the asker may not see is not described at all."""

    def hidden(group: Mapping[str, Any]) -> bool:
        return any(
            not asker.may(Operation.DESCRIBE, _TOPIC, topic["topic_name"])
            for member in group.get("members", ())
            for part in ("assignment", "target_assignment")
            for topic in member[part]["topic_partitions"]
        )

    def seen(response: Response) -> Response:
        groups = [
            {
                "group_id": group["group_id"],
                "error_code": int(REFUSALS[_TOPIC]),
                "error_message": _HIDDEN_GROUP,
            }
            if hidden(group)
            else group
            for group in response["groups"]
        ]
        return {**response, "groups": groups}

    amend(ctx, seen)


# ---- transactions ------------------------------------------------------------------------------------


def _init_producer_id(asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> None:
    if request.transactional_id is not None:
        asker.must(Operation.WRITE, _TRANSACTION, request.transactional_id)
    elif not asker.authorizer.allows_any(asker.principal, asker.host, Operation.WRITE, _TOPIC):
        asker.must(Operation.IDEMPOTENT_WRITE, _CLUSTER)


def _add_partitions(
    asker: Asker, node: NodeContext, ctx: RequestContext, request: Message
) -> Response | None:
    """All partitions, or none; from version 4 on it is brokers who ask."""
    if ctx.version >= 4:
        asker.must(Operation.CLUSTER_ACTION, _CLUSTER)
        return None
    asker.must(Operation.WRITE, _TRANSACTION, request.v3_and_below_transactional_id)
    answers: list[Any] = []
    refused = [
        topic for topic in request.v3_and_below_topics if not asker.may(Operation.WRITE, _TOPIC, topic.name)
    ]
    if not refused:
        return None
    others = [topic for topic in request.v3_and_below_topics if topic not in refused]
    assert ctx.row.on_error is not None
    for topics, code in ((refused, REFUSALS[_TOPIC]), (others, ErrorCode.OPERATION_NOT_ATTEMPTED)):
        answer = ctx.row.on_error(with_items(request, "v3_and_below_topics", topics), code, "")
        answers += answer["results_by_topic_v3_and_below"]
    return {"results_by_topic_v3_and_below": answers}


def _hide_topics(asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> None:
    """Of a transaction, the topics that the asker may see."""

    def seen(response: Response) -> Response:
        for state in response["transaction_states"]:
            state["topics"] = [
                each for each in state["topics"] if asker.may(Operation.DESCRIBE, _TOPIC, each["topic"])
            ]
        return response

    amend(ctx, seen)


# ---- the table ---------------------------------------------------------------------------------------


def _each_topic(operation: Operation, items: str = "topics", answers: str = "topics", **more: Any) -> Each:
    def ask(node: NodeContext, request: Message, topic: Message) -> Question | None:
        name = topic_name(node, topic)
        return None if name is None else Question(operation, _TOPIC, name)

    return Each(items, answers, ask, **more)


def _each_name(operation: Operation, resource: AclResource, items: str, answers: str) -> Each:
    return Each(items, answers, lambda node, request, name: Question(operation, resource, name))


_EACH_OFFSET_TOPIC: Final = _each_topic(Operation.DESCRIBE)
_EACH_OFFSET_GROUP: Final = Each(
    "groups", "groups", lambda node, request, group: Question(Operation.DESCRIBE, _GROUP, group.group_id)
)


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
    2: (_each_topic(Operation.DESCRIBE),),  # ListOffsets
    3: (metadata,),
    8: (_OF_GROUP, _each_topic(Operation.READ)),  # OffsetCommit
    9: (_offset_fetch,),
    10: (_find_coordinator,),
    11: (_OF_GROUP,),  # JoinGroup
    12: (_OF_GROUP,),  # Heartbeat
    13: (_OF_GROUP,),  # LeaveGroup
    14: (_OF_GROUP,),  # SyncGroup
    15: (_each_name(Operation.DESCRIBE, _GROUP, "groups", "groups"), _group_operations),  # DescribeGroups
    16: (Seen("groups", "group_id", Operation.DESCRIBE, _GROUP, unless=Operation.DESCRIBE),),  # ListGroups
    17: _NONE,  # SaslHandshake
    18: _NONE,  # ApiVersions
    19: (create_topics,),
    20: (delete_topics,),
    21: (_each_topic(Operation.DELETE),),  # DeleteRecords
    22: (_init_producer_id,),
    23: (_offset_for_leader_epoch,),
    24: (_add_partitions,),
    25: (_OF_TRANSACTION, _OF_GROUP),  # AddOffsetsToTxn
    26: (_OF_TRANSACTION,),  # EndTxn
    27: (Whole((Operation.ALTER, Operation.CLUSTER_ACTION)),),  # WriteTxnMarkers
    28: (_OF_TRANSACTION, _OF_GROUP, _each_topic(Operation.READ)),  # TxnOffsetCommit
    29: _DESCRIBE,  # DescribeAcls
    30: _ALTER,  # CreateAcls
    31: _ALTER,  # DeleteAcls
    32: (Each("resources", "results", config_of(Operation.DESCRIBE_CONFIGS)),),  # DescribeConfigs
    33: (Each("resources", "responses", config_of(Operation.ALTER_CONFIGS)),),  # AlterConfigs
    34: _ALTER,  # AlterReplicaLogDirs
    35: _DESCRIBE,  # DescribeLogDirs
    36: _NONE,  # SaslAuthenticate
    37: (_each_topic(Operation.ALTER, "topics", "results"),),  # CreatePartitions
    42: (_each_name(Operation.DELETE, _GROUP, "groups_names", "results"),),  # DeleteGroups
    43: _ALTER,  # ElectLeaders
    44: (Each("resources", "responses", config_of(Operation.ALTER_CONFIGS)),),  # IncrementalAlterConfigs
    45: _ALTER,  # AlterPartitionReassignments
    46: _DESCRIBE,  # ListPartitionReassignments
    47: (  # OffsetDelete
        Whole((Operation.DELETE,), _GROUP, "group_id"),
        _each_topic(Operation.READ, failed=_failed_deletion),
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
    61: (_each_topic(Operation.READ),),  # DescribeProducers
    62: _BETWEEN_NODES,  # BrokerRegistration
    63: _BETWEEN_NODES,  # BrokerHeartbeat
    64: _ALTER,  # UnregisterBroker
    65: (  # DescribeTransactions
        _each_name(Operation.DESCRIBE, _TRANSACTION, "transactional_ids", "transaction_states"),
        _hide_topics,
    ),
    66: (
        Seen("transaction_states", "transactional_id", Operation.DESCRIBE, _TRANSACTION),
    ),  # ListTransactions
    67: _BETWEEN_NODES,  # AllocateProducerIds
    68: (_OF_GROUP, _subscribed),  # ConsumerGroupHeartbeat
    69: (  # ConsumerGroupDescribe
        _each_name(Operation.DESCRIBE, _GROUP, "group_ids", "groups"),
        _group_operations,
        _hide_members,
    ),
    70: _BETWEEN_NODES,  # ControllerRegistration
    71: _NONE,  # GetTelemetrySubscriptions
    72: _NONE,  # PushTelemetry
    73: _BETWEEN_NODES,  # AssignReplicasToDirs
    74: (Whole((Operation.DESCRIBE_CONFIGS,)),),  # ListConfigResources
    75: (describe_topic_partitions,),
}
"""By API key. What nodes send each other beside Kafka's APIs (Raft) asks `is_of_cluster`."""
