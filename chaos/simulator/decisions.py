"""What the cluster decides, and the rule behind it, for the story, in the product's own words.

    ClusterEvents of every node (kraft/monitoring) -> each event once, of the first node that has it -> Story
    `replicas_at`: every partition as it is, for the moment of a violation

The console and the nodes' logs show the same events, so there is one place that knows why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from chaos.events import DECIDED
from chaos.simulator.cluster import Cluster, RunningNode
from data_plane.replication.partition import Partition
from kraft.monitoring.cluster_events import ClusterEvent, ClusterEvents, EventKind
from metadata_quorum.foundation.model import NO_LEADER, PartitionRegistration

QUIET: Final = frozenset({EventKind.TOPIC_CREATED, EventKind.TOPIC_DELETED, EventKind.MORE})
"""Without a reason that would explain anything."""


class Decisions:
    """See the module."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._newest = -1
        """Offset in the metadata log of the last event in the story."""
        cluster.on_start.append(self._started)

    def _started(self, node_id: int, running: RunningNode) -> None:
        running.node.events.listeners[_Listener(running.node.events, self)] = None

    def take(self, news: Sequence[ClusterEvent]) -> None:
        """Events of one node; what another node has reported before is left out."""
        fresh = [event for event in news if event.offset > self._newest]
        for event in fresh:
            self._newest = max(self._newest, event.offset)
            if event.kind not in QUIET:
                self._cluster.story.tell(self._cluster.scheduler.now, DECIDED, str(event))


class _Listener:
    """To one process's events."""

    def __init__(self, events: ClusterEvents, decisions: Decisions) -> None:
        self._events = events
        self._decisions = decisions
        self._taken = events.newest

    def __call__(self) -> None:
        news, self._taken = self._events.since(self._taken), self._events.newest
        if news:
            self._decisions.take(news)


def replicas_at(cluster: Cluster) -> Iterator[str]:
    """A line for each partition, as metadata has it, and one for each of its replicas, as brokers have it."""
    leader = cluster.leader
    image = None if leader is None else leader.node.context.metadata_cache.image
    states: dict[str, PartitionRegistration] = {}
    for name, topic in sorted(image.topics_by_name.items()) if image is not None else ():
        states |= {f"{name}-{number}": state for number, state in sorted(topic.partitions.items())}
    replicas: dict[str, dict[int, Partition]] = {key: {} for key in states}
    for node_id, running in sorted(cluster.running.items()):
        role = running.node.broker_role
        for partition in role.replica_manager if role is not None else ():
            if not partition.offline and not partition.removed:
                replicas.setdefault(str(partition.tp), {})[node_id] = partition
    for key, found in replicas.items():
        yield f"{key}: {_registered(states.get(key))}"
        for node_id, partition in found.items():
            log, role_name = partition.log, "leads" if partition.is_leader else "follows"
            yield (
                f"  n{node_id} {role_name} in epoch {partition.leader_epoch}: log {log.log_start_offset} to "
                f"{log.log_end_offset}, HW {partition.high_watermark}, LSO {partition.last_stable_offset}"
            )


def _registered(state: PartitionRegistration | None) -> str:
    if state is None:
        return "not in the metadata of any active controller"
    leader = "no leader" if state.leader == NO_LEADER else f"leader {state.leader}"
    elr = f", ELR {list(state.elr)}" if state.elr else ""
    return (
        f"{leader}, leader epoch {state.leader_epoch}, partition epoch {state.partition_epoch}, "
        f"ISR {list(state.isr)} of {list(state.replicas)}{elr}"
    )
