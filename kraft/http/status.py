"""`GET /status`: a node's own view of itself and of its partitions, as JSON.

All of it is read from memory, a slice of partitions in one turn of the loop.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from data_plane.replication.partition import Partition
from kraft.api.context import BrokerContext, ControllerContext
from kraft.api.node_view import PER_SLICE
from kraft.api.slices import in_slices
from kraft.metrics.sources import Sources


async def status(sources: Sources) -> dict[str, Any]:
    """The body of the response."""
    node, broker, controller = sources.node, sources.broker, sources.controller
    return {
        "cluster_id": node.cluster_id,
        "node_id": node.node_id,
        "broker": None if broker is None else await _broker(broker.context),
        "controller": None if controller is None else _controller(controller.context),
        "metadata": {"offset": node.image.offset, "epoch": node.image.epoch},
        "loop": asdict(node.loop_health),
        "faults": dict(node.faults),
    }


def is_fenced(sources: Sources) -> bool:
    """A node that is no broker is not."""
    if sources.broker is None:
        return False
    registration = sources.node.image.brokers.get(sources.node.node_id)
    return registration is None or registration.fenced


async def _broker(broker: BrokerContext) -> dict[str, Any]:
    node, replica_manager = broker.node, broker.replica_manager
    partitions = in_slices(node.long_work, list(replica_manager), PER_SLICE)
    registration = node.image.brokers.get(node.node_id)
    return {
        "epoch": broker.lifecycle.broker_epoch,
        "fenced": registration is None or registration.fenced,
        "log_dirs": [
            {
                "path": each.path,
                "online": each.online,
                "uncleanable_partitions": replica_manager.cleaner.uncleanable_in(each),
            }
            for each in replica_manager.logs.dirs
        ],
        "partitions": [_partition(each) async for each in partitions if not each.removed],
    }


def _partition(partition: Partition) -> dict[str, Any]:
    leader = partition.leader
    return {
        "topic": partition.tp.topic,
        "partition": partition.tp.partition,
        "leader": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "isr": None if leader is None else list(leader.isr),
        "log_start_offset": partition.log.log_start_offset,
        "high_watermark": partition.high_watermark,
        "log_end_offset": partition.log.log_end_offset,
        "offline": partition.offline,
    }


def _controller(controller: ControllerContext) -> dict[str, Any]:
    state = controller.raft.state()
    return {
        "active": controller.quorum_controller.is_active,
        "leader": state.leader_id,
        "term": state.term,
        "commit_index": state.commit_index,
        "last_index": state.last_index,
    }
