"""What an observer outside would see of a simulated cluster: the same state, the same lines of cluster.jsonl.

    each node's own metadata, ten times a second -> chaos/observed.py, as in the lab -> leader, isr, …

It asks no node over the network, so it disturbs nothing; a node that is down or paused says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from chaos.observed import NO_NODE, Line, NodeState, ObservedCluster, ObservedController, ObservedPartition
from chaos.simulator.cluster import Cluster, RunningNode
from metadata_quorum.foundation.model import NO_LEADER

LOOK_S: Final = 0.1


class SimulatedObserver:
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        now_ns: Callable[[], int],
        write: Callable[[Line], None],
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._now_ns = now_ns
        self._seen = ObservedCluster(write)

    def keep_looking(self) -> None:
        """As part of what happens: roles of a schedule are filled with what it sees."""
        scheduler = self._cluster.scheduler
        scheduler.at(scheduler.now + LOOK_S, self.keep_looking)
        self.look()

    def keys(self) -> Sequence[str]:
        return sorted(self._seen.partitions)

    def leader(self, key: str) -> int | None:
        partition = self._seen.partition(key)
        return partition.leader if partition is not None and partition.leader != NO_NODE else None

    def isr(self, key: str) -> Sequence[int]:
        partition = self._seen.partition(key)
        return partition.isr if partition is not None else ()

    def replicas(self, key: str) -> Sequence[int]:
        partition = self._seen.partition(key)
        return partition.replicas if partition is not None else ()

    def controller(self) -> int | None:
        controller = self._seen.controller()
        return controller.id if controller is not None else None

    def look(self) -> None:
        now_ns = self._now_ns()
        for node, machine in self._cluster.machines.items():
            running = self._cluster.running.get(node)
            state: NodeState = "down"
            if machine.process is not None and machine.process.held:
                state = "paused"
            elif running is not None and running.is_ready:
                state = "up"
            self._seen.node_is(node, now_ns, state)
            if state == "up" and running is not None:
                self._seen.partitions_reported(node, now_ns, self._partitions(running))
                self._seen.high_watermarks_reported(node, now_ns, self._high_watermarks(running))
        leader = self._cluster.leader
        if leader is not None and leader.node.controller_role is not None:
            term = leader.node.controller_role.raft.term
            self._seen.controller_reported(now_ns, ObservedController(leader.node.config.node_id, term))

    def _partitions(self, running: RunningNode) -> dict[str, ObservedPartition]:
        """As the node's own metadata has them."""
        image = running.node.context.metadata_cache.image
        return {
            f"{name}-{number}": ObservedPartition(
                NO_NODE if state.leader == NO_LEADER else state.leader,
                state.leader_epoch,
                tuple(sorted(state.isr)),
                tuple(state.replicas),
            )
            for name in self._topics
            if name in image.topics_by_name
            for number, state in image.topics_by_name[name].partitions.items()
        }

    def _high_watermarks(self, running: RunningNode) -> dict[str, int]:
        """Of what it leads."""
        role = running.node.broker_role
        if role is None:
            return {}
        return {
            str(partition.tp): partition.high_watermark
            for partition in role.replica_manager
            if partition.is_leader and not partition.offline and partition.tp.topic in self._topics
        }
