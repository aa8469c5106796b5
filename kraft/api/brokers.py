"""Requests of nodes to the active controller: BrokerRegistration, BrokerHeartbeat, AlterPartition,
AssignReplicasToDirs, AllocateProducerIds, UnregisterBroker; of other controllers, ControllerRegistration.

    broker/lifecycle, broker/isr_channel, … -> controllers' listener -> here -> controller/controller.py

The connection of a broker's heartbeats is noted, on standby controllers too: when it breaks, the broker has
most likely died (`kraft/node/node.py` informs the controller).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from kraft.api.authz.checks import ALTER_CLUSTER, CLUSTER_ACTION
from kraft.api.bounds import check_few
from kraft.api.context import ControllerContext
from kraft.api.request_context import RequestContext
from kraft.api.response import error_code_only
from kraft.api.row import ApiRow, Response
from kraft.api.slices import each_within, in_batches, in_slices
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import Endpoint, FeatureRange
from metadata_quorum.protocol.commands import DirectoryAssignment, IsrChange, IsrMember
from metadata_quorum.protocol.replies import DirectoryResult, IsrResult
from metadata_quorum.protocol.requests import BrokerHeartbeatRequest, RegisterBrokerRequest

NAMED_PER_SLICE: Final = 1000
"""Replicas that are looked at in one turn of the loop."""


async def handle_registration(
    controller: ControllerContext, ctx: RequestContext, request: Message
) -> Response:
    controller.quorum_controller.check_registrant(request.cluster_id)
    if request.is_migrating_zk_broker:
        raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED, "There is no migration from ZooKeeper")
    check_few(request.listeners, request.features, request.log_dirs)
    if request.broker_id < 0 or not request.features or not request.log_dirs:
        why = "A registration has a broker id from 0 on, features, and log directories"
        raise BrokerError(ErrorCode.INVALID_REGISTRATION, why)
    epoch = await controller.quorum_controller.register_broker(
        RegisterBrokerRequest(
            broker_id=request.broker_id,
            cluster_id=request.cluster_id,
            incarnation_id=request.incarnation_id,
            endpoints=_endpoints(request),
            features=_features(request),
            rack=request.rack,
            log_dirs=tuple(request.log_dirs),
            previous_broker_epoch=request.previous_broker_epoch,
        )
    )
    return {"error_code": int(ErrorCode.NONE), "broker_epoch": epoch}


async def handle_controller_registration(
    controller: ControllerContext, ctx: RequestContext, request: Message
) -> Response:
    check_few(request.listeners, request.features)
    await controller.quorum_controller.register_controller(
        request.controller_id, request.incarnation_id, _endpoints(request), _features(request)
    )
    return {"error_code": int(ErrorCode.NONE), "error_message": None}


def _endpoints(request: Message) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(each.name, each.host, each.port, each.security_protocol) for each in request.listeners
    )


def _features(request: Message) -> tuple[FeatureRange, ...]:
    return tuple(
        FeatureRange(each.name, each.min_supported_version, each.max_supported_version)
        for each in request.features
    )


async def handle_heartbeat(controller: ControllerContext, ctx: RequestContext, request: Message) -> Response:
    check_few(request.offline_log_dirs)
    state, incarnation = ctx.connection.state, (request.broker_id, request.broker_epoch)
    is_new = state.heartbeats_of is None or state.heartbeats_of[:2] != incarnation
    if is_new and not ctx.connection.gone:  # of one that is, the end has been told already
        if state.heartbeats_of is not None:
            controller.quorum_controller.connection_closed(state.heartbeats_of)
        state.heartbeats_of = controller.quorum_controller.connection_up(*incarnation, state.number)
        controller.broker_heard(request.broker_id)
    reply = await controller.quorum_controller.heartbeat(
        BrokerHeartbeatRequest(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            current_metadata_offset=request.current_metadata_offset,
            want_fence=request.want_fence,
            want_shut_down=request.want_shut_down,
            offline_log_dirs=tuple(request.offline_log_dirs),
        )
    )
    return {
        "error_code": int(ErrorCode.NONE),
        "is_caught_up": reply.is_caught_up,
        "is_fenced": reply.is_fenced,
        "should_shut_down": reply.should_shut_down,
    }


def _check_not_late(controller: ControllerContext, ctx: RequestContext, request: Message) -> None:
    """A broker sends again, on its new connection, what nobody answered on the one before. Once that is heard
    of, the first copy counts no more: by the answer to the second, a leader may have given up what it asked
    for. (Brokers of Apache Kafka send their heartbeats on a connection apart.) Raises `BrokerError`."""
    link = ctx.connection.state.heartbeats_of
    if link is None or link[:2] != (request.broker_id, request.broker_epoch):
        return
    if controller.quorum_controller.is_replaced(link):
        raise BrokerError(ErrorCode.NETWORK_EXCEPTION, "The broker has a newer connection.")


async def handle_alter_partition(
    controller: ControllerContext, ctx: RequestContext, request: Message
) -> Response:
    _check_not_late(controller, ctx, request)
    work = controller.node.long_work
    named = each_within(request.topics, "partitions")
    changes = [
        _change(topic, each)
        async for topic, each in in_slices(work, named, NAMED_PER_SLICE, _of_change)
        if each is not None
    ]

    async def alter(some: Sequence[IsrChange]) -> Sequence[IsrResult]:
        return await controller.quorum_controller.alter_partition(
            request.broker_id, request.broker_epoch, some
        )

    topics: list[dict[str, Any]] = []
    results = await in_batches(work, changes, alter)
    async for result in in_slices(work, results, NAMED_PER_SLICE):
        if not topics or topics[-1]["topic_id"] != result.topic_id:
            topics.append({"topic_id": result.topic_id, "partitions": []})
        topics[-1]["partitions"].append(
            {
                "partition_index": result.partition,
                "error_code": int(result.error),
                "leader_id": result.leader,
                "leader_epoch": result.leader_epoch,
                "isr": list(result.isr),
                "leader_recovery_state": result.leader_recovery_state,
                "partition_epoch": result.partition_epoch,
            }
        )
    return {"error_code": int(ErrorCode.NONE), "topics": topics}


def _change(topic: Message, partition: Message) -> IsrChange:
    """Raises `BrokerError`."""
    return IsrChange(
        topic_id=topic.topic_id,
        partition=partition.partition_index,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=_members(partition),
        leader_recovery_state=partition.leader_recovery_state,
    )


def _of_change(named: tuple[Message, Message | None]) -> int:
    """The weight of a change, by the members of its ISR."""
    partition = named[1]
    return 1 if partition is None else 1 + len(partition.new_isr_with_epochs or partition.new_isr)


def _members(partition: Message) -> tuple[IsrMember, ...]:
    """Version 3 names each member with its epoch; before, there were only ids. Raises `BrokerError`."""
    check_few(partition.new_isr_with_epochs or partition.new_isr)
    if partition.new_isr_with_epochs:
        return tuple(
            IsrMember(broker_id=each.broker_id, broker_epoch=each.broker_epoch)
            for each in partition.new_isr_with_epochs
        )
    return tuple(IsrMember(broker_id=each) for each in partition.new_isr)


async def handle_assign_replicas(
    controller: ControllerContext, ctx: RequestContext, request: Message
) -> Response:
    _check_not_late(controller, ctx, request)
    work = controller.node.long_work
    assignments = [
        DirectoryAssignment(topic_id=topic.topic_id, partition=each.partition_index, directory=directory.id)
        async for directory, topic, each in in_slices(work, _each_assigned(request), NAMED_PER_SLICE)
        if each is not None
    ]

    async def assign(some: Sequence[DirectoryAssignment]) -> Sequence[DirectoryResult]:
        return await controller.quorum_controller.assign_replicas_to_dirs(
            request.broker_id, request.broker_epoch, some
        )

    directories: dict[UUID, dict[str, Any]] = {}
    topics: dict[tuple[UUID, UUID], list[dict[str, int]]] = {}
    results = await in_batches(work, assignments, assign)
    async for result in in_slices(work, results, NAMED_PER_SLICE):
        place = result.directory, result.topic_id
        if place not in topics:
            topics[place] = []
            directory = directories.setdefault(result.directory, {"id": result.directory, "topics": []})
            directory["topics"].append({"topic_id": result.topic_id, "partitions": topics[place]})
        topics[place].append({"partition_index": result.partition, "error_code": int(result.error)})
    return {"error_code": int(ErrorCode.NONE), "directories": list(directories.values())}


def _each_assigned(request: Message) -> Iterator[tuple[Message, Message, Message | None]]:
    """What has nothing in it takes time too."""
    for directory in request.directories:
        yield directory, directory, None
        for topic, each in each_within(directory.topics, "partitions"):
            yield directory, topic, each


async def handle_allocate_producer_ids(
    controller: ControllerContext, ctx: RequestContext, request: Message
) -> Response:
    block = await controller.quorum_controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
    return {
        "error_code": int(ErrorCode.NONE),
        "producer_id_start": block.first,
        "producer_id_len": block.size,
    }


async def handle_unregister(controller: ControllerContext, ctx: RequestContext, request: Message) -> Response:
    await controller.quorum_controller.unregister_broker(request.broker_id)
    return {"error_code": int(ErrorCode.NONE), "error_message": None}


ROWS: Final = (
    ApiRow(
        ApiKey.ALTER_PARTITION,
        (2, 3),
        (CLUSTER_ACTION,),
        controller=handle_alter_partition,
        on_error=error_code_only,
    ),
    ApiRow(
        ApiKey.BROKER_REGISTRATION,
        (0, 4),
        (CLUSTER_ACTION,),
        controller=handle_registration,
        on_error=error_code_only,
    ),
    ApiRow(
        ApiKey.BROKER_HEARTBEAT,
        (0, 1),
        (CLUSTER_ACTION,),
        controller=handle_heartbeat,
        on_error=error_code_only,
    ),
    ApiRow(ApiKey.UNREGISTER_BROKER, (0, 0), (ALTER_CLUSTER,), forwarded=handle_unregister),
    ApiRow(
        ApiKey.ALLOCATE_PRODUCER_IDS,
        (0, 0),
        (CLUSTER_ACTION,),
        controller=handle_allocate_producer_ids,
        on_error=error_code_only,
    ),
    ApiRow(
        ApiKey.CONTROLLER_REGISTRATION,
        (0, 0),
        (CLUSTER_ACTION,),
        controller=handle_controller_registration,
    ),
    ApiRow(
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        (0, 0),
        (CLUSTER_ACTION,),
        controller=handle_assign_replicas,
        on_error=error_code_only,
    ),
)
