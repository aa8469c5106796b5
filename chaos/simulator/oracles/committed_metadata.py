"""Committed metadata, on every controller: all apply the same, and no partition's state breaks its rules.

state machine of each controller -> delta, image -> the oracle's own register of every state of a partition
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from chaos.simulator.cluster import Cluster, RunningNode
from chaos.simulator.oracles.quorum import Report
from metadata_quorum.controller.state_machine import MetadataStateMachine
from metadata_quorum.foundation.invariants import Invariant
from metadata_quorum.foundation.model import NO_LEADER, PartitionRegistration
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage


class MetadataOracle:
    """See the module."""

    def __init__(self, cluster: Cluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._hashes: dict[int, bytes] = {}
        self._states: dict[tuple[UUID, int, int], PartitionRegistration] = {}
        """By partition and partition epoch."""
        self._latest: dict[tuple[UUID, int], PartitionRegistration] = {}
        self._leaders: dict[tuple[UUID, int, int], int] = {}
        """By partition and leader epoch."""
        self._newest_offset = -1
        self._leads: dict[str, int] = {}
        """The leader of each partition, `topic-0`, by the newest metadata."""
        self.elected: set[str] = set()
        """Partitions, `topic-0`, whose leader has changed."""
        cluster.on_start.append(self._started)

    def newest(self, topic_id: UUID, number: int) -> PartitionRegistration | None:
        """The newest state of a partition that any controller has applied, alive or not."""
        return self._latest.get((topic_id, number))

    def is_deposed(self, name: str, broker: int) -> bool:
        """Whether the partition has another leader by now, or none: a broker that is cut off cannot know."""
        return self._leads.get(name, broker) != broker

    def _started(self, node_id: int, running: RunningNode) -> None:
        role = running.node.controller_role
        if role is not None:
            role.state_machine.subscribe(partial(self._applied, node_id, role.state_machine))

    def _applied(
        self, node_id: int, machine: MetadataStateMachine, delta: MetadataDelta, image: MetadataImage
    ) -> None:
        known = self._hashes.setdefault(machine.applied_index, machine.rolling_hash)
        if known != machine.rolling_hash:
            what = f"voter {node_id} applied another history at {machine.applied_index}"
            self._report(Invariant.STATE_MACHINE_SAFETY.name, what)
        if image.offset <= self._newest_offset:
            return
        self._newest_offset = image.offset
        for topic_id, partitions in delta.changed_partitions.items():
            for number, state in partitions.items():
                self._changed(topic_id, number, state, image)
        for broker_id, broker in delta.changed_brokers.items():
            before = delta.image.brokers.get(broker_id)
            if broker is not None and broker.fenced and before is not None and not before.fenced:
                self._cluster.story.visit("fence")
        if delta.changed_brokers:
            self._check_isrs(image)

    def _check_isrs(self, image: MetadataImage) -> None:
        """Of all partitions, also those that a change of a broker should have changed, and has not."""
        for name, topic in image.topics_by_name.items():
            for number, state in topic.partitions.items():
                self._check_isr(f"{name}-{number}", state, image)

    def _check_isr(self, name: str, state: PartitionRegistration, image: MetadataImage) -> None:
        """The last member stays, where no other replica could replace it without a loss."""
        dead = [each for each in state.isr if not image.is_active(each)]
        if dead and len(state.isr) > 1:
            self._report(Invariant.ISR_ALIVE.name, f"{name}: {dead} of {state}")

    def _changed(
        self, topic_id: UUID, number: int, state: PartitionRegistration, image: MetadataImage
    ) -> None:
        topic = image.topic(topic_id)
        name = f"{topic.name if topic else topic_id}-{number}"
        before = self._latest.get((topic_id, number))
        self._latest[topic_id, number] = state
        self._leads[name] = state.leader
        key = (topic_id, number, state.partition_epoch)
        if self._states.setdefault(key, state) != state:
            what = f"{name} has two states of epoch {state.partition_epoch}"
            self._report(Invariant.PARTITION_EPOCH_MONOTONIC.name, what)
        if state.leader != NO_LEADER:
            led_by = self._leaders.setdefault((topic_id, number, state.leader_epoch), state.leader)
            if led_by != state.leader:
                what = f"{name} has leaders {led_by} and {state.leader} in epoch {state.leader_epoch}"
                self._report(Invariant.ONE_LEADER_PER_EPOCH.name, what)
        if before is not None:
            self._stepped(name, before, state)
        if state.leader not in (NO_LEADER, *state.isr) or not set(state.isr) <= set(state.replicas):
            self._report(Invariant.ISR_WELL_FORMED.name, f"{name}: {state}")
        self._check_isr(name, state, image)
        if set(state.isr) & set(state.elr):
            self._report(Invariant.ISR_WELL_FORMED.name, f"{name}: {state}")

    def _stepped(self, name: str, before: PartitionRegistration, state: PartitionRegistration) -> None:
        visit = self._cluster.story.visit
        if state.partition_epoch < before.partition_epoch or state.leader_epoch < before.leader_epoch:
            self._report(Invariant.PARTITION_EPOCH_MONOTONIC.name, f"{name}: {before} -> {state}")
        if state.leader != before.leader:
            visit("election" if state.leader != NO_LEADER else "leaderless")
            self.elected.add(name)
            if state.leader_epoch == before.leader_epoch:
                self._report(Invariant.PARTITION_EPOCH_MONOTONIC.name, f"{name}: {before} -> {state}")
        if len(state.isr) < len(before.isr):
            visit("isr shrink")
        elif len(state.isr) > len(before.isr):
            visit("isr expand")
        if state.elr and not before.elr:
            visit("elr")
