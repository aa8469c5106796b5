"""States of a cluster that last a few milliseconds: a fault that waits for one of them strikes in it.

    at 3.2 for 1.5 when prepared 5ms: kill seen

From 3.2 s on: the first broker that coordinates a transaction which is decided and not ended yet is killed
5 ms after that was seen. Chance alone hardly meets such a moment. Each sighting names the nodes at which it
is so now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from chaos.simulator.cluster import Cluster, host_of
from data_plane.replication.partition import Partition
from kraft.node.broker_role import BrokerRole
from metadata_quorum.foundation.blocking import MayBlock

Sighting = Callable[[Cluster], Iterator[int]]

DECIDED: Final = frozenset({"PREPARE_COMMIT", "PREPARE_ABORT"})
"""By name: an older version has an enumeration of its own."""
LOADING: Final = "LOADING"
SIMULATED: Final = MayBlock("a simulated disk waits for nothing when a fault looks for its moment")


def _prepared(cluster: Cluster) -> Iterator[int]:
    """Coordinators that have decided how a transaction ends, and owe its markers."""
    for node_id, role in _brokers(cluster):
        coordinator = role.transaction_coordinator
        unfinished = coordinator.unfinished() if hasattr(coordinator, "unfinished") else ()  # an older one's
        if any(found.state.name in DECIDED for _, found in unfinished):
            yield node_id


def _loading(cluster: Cluster) -> Iterator[int]:
    """Coordinators that read the log of their predecessor."""
    for node_id, role in _brokers(cluster):
        states = [shard.state for shard in role.group_coordinator.shards]
        states += [shard.state for shard in role.transaction_coordinator.shards]
        if any(state.name == LOADING for state in states):
            yield node_id


def _elected(cluster: Cluster) -> Iterator[int]:
    """Leaders that hold more than the high watermark they know: what their predecessor has acknowledged."""
    for node_id, partition in _replicas(cluster):
        if partition.leader is not None and partition.high_watermark < partition.leader.epoch_start_offset:
            yield node_id


def _alone(cluster: Cluster) -> Iterator[int]:
    """Leaders whose ISR nobody else is left in."""
    for node_id, partition in _replicas(cluster):
        if partition.leader is not None and partition.leader.isr == (node_id,):
            yield node_id


def _isr_change(cluster: Cluster) -> Iterator[int]:
    """Leaders that have asked the controller for another ISR, and have no answer yet."""
    for node_id, partition in _replicas(cluster):
        if partition.leader is not None and partition.leader.change is not None:
            yield node_id


def _truncation(cluster: Cluster) -> Iterator[int]:
    """Followers whose truncation is not carried out, or not durable yet."""
    for node_id, partition in _replicas(cluster):
        log = partition.log
        if log.prepared_truncation is not None or not log.unflushed.truncation_is_durable:
            yield node_id


def _snapshot(cluster: Cluster) -> Iterator[int]:
    """Voters that write a snapshot, their own or their leader's."""
    for node_id in cluster.shape.controllers:
        names = cluster.machines[node_id].disk.list(f"/{host_of(node_id)}/data/raft", SIMULATED)
        if any(name.endswith(".tmp") for name in names):
            yield node_id


def _moving(cluster: Cluster) -> Iterator[int]:
    """Brokers that copy a replica from one of their log directories to another."""
    for node_id, role in _brokers(cluster):
        moves = role.replica_manager.moves
        if any(moves.of(partition) is not None for partition in role.replica_manager):
            yield node_id


def _candidate(cluster: Cluster) -> Iterator[int]:
    """Voters that know no leader."""
    for node_id, running in cluster.running.items():
        role = running.node.controller_role
        if role is not None and running.is_ready and role.raft.leader_id < 0:
            yield node_id


def _brokers(cluster: Cluster) -> Iterator[tuple[int, BrokerRole]]:
    for node_id, running in cluster.running.items():
        role = running.node.broker_role
        if role is not None and running.is_ready:
            yield node_id, role


def _replicas(cluster: Cluster) -> Iterator[tuple[int, Partition]]:
    for node_id, role in _brokers(cluster):
        for partition in role.replica_manager:
            if not partition.offline and not partition.removed:
                yield node_id, partition


SIGHTINGS: Final[dict[str, Sighting]] = {
    "prepared": _prepared, "loading": _loading, "elected": _elected, "alone": _alone,
    "isr-change": _isr_change, "truncation": _truncation, "snapshot": _snapshot, "candidate": _candidate,
    "moving": _moving,
}  # fmt: skip
OF_TRANSACTIONS: Final = "prepared"
"""Only clients that write in transactions bring it about."""
OF_DIRECTORIES: Final = "moving"
"""Only brokers with several log directories come to it."""
