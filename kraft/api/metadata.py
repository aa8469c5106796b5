"""The cluster as clients see it: Metadata, DescribeTopicPartitions, DescribeCluster.

All of it comes from the newest metadata image of this broker. A Metadata request may create the topics
that it names (`auto.create.topics.enable`), in the background (`auto_topic_creation.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from data_plane.coordinator.topics import INTERNAL_TOPICS
from kraft.api import auto_topic_creation
from kraft.api.authz.authorization import RequestPrincipal
from kraft.api.authz.topic_checks import describe_cluster, describe_topic_partitions, metadata
from kraft.api.context import BrokerContext, ControllerContext, NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import in_slices
from kraft.config.node_config import NodeAddress
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import (
    NO_EPOCH,
    NO_LEADER,
    ZERO_UUID,
    BrokerRegistration,
    Endpoint,
    PartitionRegistration,
)
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from metadata_quorum.security.acls import OPERATIONS_OMITTED, AclOperation, AclResourceType, operation_bits

_TOPIC_OPERATIONS: Final = operation_bits(AclResourceType.TOPIC)
_CLUSTER_OPERATIONS: Final = operation_bits(AclResourceType.CLUSTER)

TOPICS_PER_SLICE: Final = 500
"""Topics and partitions between two turns of the loop."""
_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_Found = TopicImage | dict[str, Any] | None
"""A topic that is there, what is said of one that is not, or nothing."""
_ENDPOINT_TYPES: Final = {_BROKERS: "BROKER", _CONTROLLERS: "CONTROLLER"}


async def handle_metadata(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    await broker.failover_metadata.settled()
    image = broker.client_image
    view = _View(image, ctx.listener, ctx.version, broker.suspected_brokers)
    wants_operations = request.include_topic_authorized_operations
    found: Iterable[_Found] = (
        image.topics_by_name.values() if _asks_for_all(ctx, request) else _named_topics(broker, view, request)
    )
    topics = [
        _with_operations(view.topic(each) if isinstance(each, TopicImage) else each, wants_operations)
        async for each in in_slices(broker.node.long_work, found, TOPICS_PER_SLICE, _weight)
        if each is not None
    ]
    return {
        "brokers": [
            {"node_id": broker.broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            for broker, endpoint in (
                *image.alive_brokers(ctx.listener),
                *_still_listed(broker, image, ctx.listener),
            )
        ],
        "cluster_id": broker.node.cluster_id,
        "controller_id": _any_broker(broker.node, ctx),
        "topics": topics,
        "cluster_authorized_operations": (
            _CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_OMITTED
        ),
    }


def _still_listed(
    broker: BrokerContext, image: MetadataImage, listener: str
) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
    """Brokers that have just died; broker/failover_metadata.py says why they are still listed."""
    for broker_id in broker.failover_metadata.still_listed:
        registration = image.brokers.get(broker_id)
        endpoint = None if registration is None else registration.endpoint(listener)
        if registration is not None and registration.fenced and endpoint is not None:
            yield registration, endpoint


def metadata_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {
        "brokers": [],
        "error_code": int(code),
        "topics": [
            {"error_code": int(code), "name": topic.name, "topic_id": topic.topic_id, "partitions": []}
            for topic in request.topics or ()
        ],
    }


async def handle_describe_topic_partitions(
    broker: BrokerContext, ctx: RequestContext, request: Message
) -> Response:
    """Topics in the order of their names, with a limited number of partitions, and a cursor to continue
    from."""
    image = broker.node.image
    view = _View(image, ctx.listener, version=13)
    # Sorting very many names takes long.
    names = await broker.node.computing(lambda: _pages_from(request, image))
    most = broker.node.config.max_request_partition_size_limit
    limit = left = max(min(request.response_partition_limit, most), 1)
    authorizer, cursor = broker.node.authorizer, request.cursor
    requester = None if authorizer is None else RequestPrincipal.of(authorizer, ctx)
    topics: list[dict[str, Any]] = []

    def weight(name: str) -> int:
        topic = image.topic(name)
        return 1 if topic is None else 1 + min(len(topic.partitions), limit)

    async for name in in_slices(broker.node.long_work, names, TOPICS_PER_SLICE, weight):
        if requester and not requester.is_authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, name):
            continue
        if left == 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        topic = image.topic(name)
        if topic is None:
            missing = _missing_topic(name, auto_topic_creation.unknown_topic_error(name))
            topics.append(_with_operations(missing, asked=True))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        numbers = [number for number in sorted(topic.partitions) if number >= first]
        described = _with_operations(view.topic(topic, numbers[:left]), asked=True)
        for partition in described["partitions"]:
            registration = topic.partitions[partition["partition_index"]]
            partition["eligible_leader_replicas"] = registration.elr
            partition["last_known_elr"] = registration.last_known_elr
        topics.append(described)
        if len(numbers) > left:
            return {
                "topics": topics,
                "next_cursor": {"topic_name": name, "partition_index": numbers[left]},
            }
        left -= len(numbers)
    return {"topics": topics, "next_cursor": None}


def _pages_from(request: Message, image: MetadataImage) -> list[str]:
    """The requested topics, or all if none is named, from the cursor on."""
    names = sorted({topic.name for topic in request.topics} or image.topics_by_name)
    cursor = request.cursor
    if cursor is None:
        return names
    if request.topics and cursor.topic_name not in names:
        message = "DescribeTopicPartitionsRequest topic list should contain the cursor topic: "
        raise BrokerError(ErrorCode.INVALID_REQUEST, message + cursor.topic_name)
    if cursor.partition_index < 0:
        message = "DescribeTopicPartitionsRequest cursor partition must be valid: "
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{message}{cursor.partition_index}")
    return [name for name in names if name >= cursor.topic_name]


def describe_topic_partitions_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"topics": [{"error_code": int(code), "name": topic.name} for topic in request.topics]}


def handle_describe_cluster(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    """Asked of a broker: the brokers."""
    _check_endpoint_type(ctx, request, _BROKERS)
    node = broker.node
    brokers = _describe_brokers(node.image, ctx.listener, with_fenced=request.include_fenced_brokers)
    return _described_cluster(node, request, brokers, _any_broker(node, ctx))


def handle_describe_controllers(
    controller: ControllerContext, ctx: RequestContext, request: Message
) -> Response:
    """Asked of a controller: the controllers."""
    _check_endpoint_type(ctx, request, _CONTROLLERS)
    node = controller.node
    return _described_cluster(
        node, request, _describe_controllers(node, ctx.listener), controller.raft.leader_id
    )


def _check_endpoint_type(ctx: RequestContext, request: Message, served: int) -> None:
    """Raises `BrokerError` where the client takes this node for one of the other kind."""
    wanted = request.endpoint_type
    if wanted not in _ENDPOINT_TYPES:
        raise BrokerError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {wanted}")
    if wanted != served:
        raise BrokerError(
            # That there are two kinds is news of version 1.
            ErrorCode.MISMATCHED_ENDPOINT_TYPE if ctx.version > 0 else ErrorCode.INVALID_REQUEST,
            f"The request was sent to an endpoint of type {_ENDPOINT_TYPES[served]}, "
            f"but we wanted an endpoint of type {_ENDPOINT_TYPES[wanted]}",
        )


def _described_cluster(
    node: NodeContext, request: Message, nodes: list[dict[str, Any]], controller_id: int
) -> Response:
    return {
        "error_code": 0,
        "endpoint_type": request.endpoint_type,
        "cluster_id": node.cluster_id,
        "controller_id": controller_id,
        "brokers": nodes,
        "cluster_authorized_operations": (
            _CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_OMITTED
        ),
    }


def _describe_brokers(image: MetadataImage, listener: str, *, with_fenced: bool) -> list[dict[str, Any]]:
    nodes = []
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        endpoint = broker.endpoint(listener)
        if endpoint is not None and (with_fenced or not broker.fenced):
            nodes.append(
                {
                    "broker_id": broker_id,
                    "host": endpoint.host,
                    "port": endpoint.port,
                    "rack": broker.rack,
                    "is_fenced": broker.fenced,
                }
            )
    return nodes


def _describe_controllers(node: NodeContext, listener: str) -> list[dict[str, Any]]:
    """Those that have registered such a listener, as in Kafka. Our voters are static: until they have
    registered, they are known all the same."""
    found: dict[int, NodeAddress | Endpoint | None] = {voter.node_id: voter for voter in node.config.voters}
    registered = node.committed_metadata.image.controllers
    found |= {each.controller_id: each.endpoint(listener) for each in registered.values()}
    return [
        {"broker_id": controller_id, "host": address.host, "port": address.port, "rack": None}
        for controller_id, address in sorted(found.items())
        if address is not None
    ]


def _any_broker(node: NodeContext, ctx: RequestContext) -> int:
    """The "controller" that clients are shown: any broker, for each one forwards to the real one."""
    alive = node.image.alive_brokers(ctx.listener)
    return node.random.choice(alive)[0].broker_id if alive else -1


def _asks_for_all(ctx: RequestContext, request: Message) -> bool:
    return request.topics is None or (ctx.version == 0 and not request.topics)


def _weight(found: _Found) -> int:
    return 1 + len(found.partitions) if isinstance(found, TopicImage) else 1


def _named_topics(broker: BrokerContext, view: _View, request: Message) -> Iterator[_Found]:
    """An item for every name: None for duplicates, and for unknown topics, which come at the end."""
    creates = request.allow_auto_topic_creation and broker.node.config.auto_create_topics_enable
    may_create = auto_topic_creation.MOST_AT_ONCE if creates else 0
    unknown: list[str] = []
    seen: set[object] = set()
    for wanted in request.topics:
        by_id = wanted.topic_id != ZERO_UUID
        key = wanted.topic_id if by_id else wanted.name
        if key is None or (by_id and view.version < 12):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "topics are named by id from version 12 on")
        if key in seen:
            yield None
            continue
        seen.add(key)
        topic = view.image.topic(key)
        if topic is not None:
            yield topic
        elif by_id:
            yield {
                "error_code": int(ErrorCode.UNKNOWN_TOPIC_ID),
                "name": None if view.version >= 12 else "",
                "topic_id": wanted.topic_id,
                "partitions": [],
            }
        else:
            unknown.append(key)
            if may_create and auto_topic_creation.request_creation(broker, key):
                may_create -= 1
            yield None
    for name in unknown:
        yield _missing_topic(name, auto_topic_creation.unknown_topic_error(name))


def _missing_topic(name: str, code: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": int(code),
        "name": name,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
    }


def _with_operations(topic: dict[str, Any], asked: bool) -> dict[str, Any]:
    told = asked and topic["name"]  # a topic that is asked for by an unknown id has none
    topic["topic_authorized_operations"] = _TOPIC_OPERATIONS if told else OPERATIONS_OMITTED
    return topic


class _View:
    """Topics of one image as the clients of one listener see them."""

    def __init__(
        self, image: MetadataImage, listener: str, version: int, suspected: Iterable[int] = ()
    ) -> None:
        self.image = image
        self.version = version
        self._reachable = {broker.broker_id for broker, _ in image.alive_brokers(listener)}
        self._suspected = frozenset(suspected)

    def topic(self, topic: TopicImage, numbers: Iterable[int] | None = None) -> dict[str, Any]:
        if numbers is None:
            numbers = sorted(topic.partitions)
        return {
            "error_code": 0,
            "name": topic.name,
            "topic_id": topic.id,
            "is_internal": topic.name in INTERNAL_TOPICS,
            "partitions": [self._partition(number, topic.partitions[number]) for number in numbers],
        }

    def _partition(self, number: int, partition: PartitionRegistration) -> dict[str, Any]:
        code, leader, leader_epoch = ErrorCode.NONE, partition.leader, partition.leader_epoch
        replicas: list[int] | tuple[int, ...] = partition.replicas
        isr: list[int] | tuple[int, ...] = partition.isr
        if leader in self._suspected:
            code, leader = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
        elif leader not in self._reachable:
            # LISTENER_NOT_FOUND exists from version 6 on; before, such a leader was just missing.
            known = leader != NO_LEADER and self.image.is_active(leader) and self.version >= 6
            code = ErrorCode.LISTENER_NOT_FOUND if known else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_LEADER
        if self.version == 0:  # clients of that age believe every id they see to be reachable
            replicas = [replica for replica in replicas if replica in self._reachable]
            isr = [replica for replica in isr if replica in self._reachable]
        return {
            "error_code": int(code),
            "partition_index": number,
            "leader_id": leader,
            "leader_epoch": leader_epoch if leader_epoch >= 0 else NO_EPOCH,
            "replica_nodes": replicas,
            "isr_nodes": isr,
            "offline_replicas": [each for each in partition.replicas if not self._online(partition, each)],
        }

    def _online(self, partition: PartitionRegistration, replica: int) -> bool:
        broker = self.image.brokers.get(replica)
        return (
            broker is not None
            and replica in self._reachable
            and broker.has_online_dir(partition.directory(replica))
        )


ROWS: Final = (
    ApiRow(
        ApiKey.METADATA, (0, 13), (metadata,), broker=handle_metadata, on_error=metadata_error, in_turn=True
    ),
    ApiRow(
        ApiKey.DESCRIBE_CLUSTER,
        (0, 2),
        (describe_cluster,),
        broker=handle_describe_cluster,
        controller=handle_describe_controllers,
    ),
    ApiRow(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        (0, 0),
        (describe_topic_partitions,),
        broker=handle_describe_topic_partitions,
        on_error=describe_topic_partitions_error,
    ),
)
