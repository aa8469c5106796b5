"""Finding the partition of a request on this broker, and what to answer if it is not here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from data_plane.replication.partition import Partition
from data_plane.replication.replica_manager import ReplicaManager
from kraft.api.context import BrokerContext, NodeContext
from kraft.wire.fast_produce import LeaderHint, NodeEndpoint
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID

_NOT_HERE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
MAX_UNKNOWN_PARTITIONS: Final = 1000
"""A request may name this many partitions more than the broker has, for clients with old metadata."""

_ASK_ANOTHER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def max_request_partitions(replica_manager: ReplicaManager) -> int:
    """How many partitions one Produce or Fetch request may name."""
    return MAX_UNKNOWN_PARTITIONS + len(replica_manager)


def find(broker: BrokerContext, topic: str, topic_id: UUID, number: int) -> Partition:
    """This broker's replica, by topic id if there is one, otherwise by name. Raises `BrokerError`."""
    try:
        if topic_id is ZERO_UUID or topic_id.int == 0:
            return broker.replica_manager.get(topic, number)
        return broker.replica_manager.get_by_id(topic_id, number)
    except BrokerError as error:
        code = error_of_absence(broker.node, error.code, topic, topic_id, number)
        raise BrokerError(code, error.message) from None


def error_of_absence(
    node: NodeContext, code: ErrorCode, topic: str, topic_id: UUID, number: int
) -> ErrorCode:
    """A partition that exists on other brokers is not unknown: the client has asked the wrong broker."""
    if code not in _NOT_HERE:
        return code
    known = node.image.topic(topic_id if topic_id.int else topic)
    if known is None:
        return code
    if number in known.partitions:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def leader_hint(
    node: NodeContext, code: ErrorCode | int, topic: str, topic_id: UUID, number: int
) -> LeaderHint | None:
    """Who leads the partition, for a client that asked the wrong broker."""
    if code not in _ASK_ANOTHER:
        return None
    known = node.image.topic(topic_id if topic_id.int else topic)
    partition = None if known is None else known.partitions.get(number)
    return None if partition is None else LeaderHint(partition.leader, partition.leader_epoch)


def endpoints_of(node: NodeContext, listener: str, hints: Iterable[LeaderHint | None]) -> list[NodeEndpoint]:
    """How to reach the leaders that are hinted at, by the listener the client uses."""
    leaders = sorted({hint.leader_id for hint in hints if hint is not None})
    found = []
    for leader in leaders:
        broker = node.image.brokers.get(leader)
        endpoint = None if broker is None or broker.fenced else broker.endpoint(listener)
        if broker is not None and endpoint is not None:
            found.append(NodeEndpoint(leader, endpoint.host, endpoint.port, broker.rack))
    return found
