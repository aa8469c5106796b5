"""Coordinators of groups and transactions: who leads a partition of an internal topic has loaded all of it,
and knows every record that was written since; no transaction stays open.

    each broker's shards, ten times a second -> loaded, at the end of the log?
    after the heal -> `unloaded`, `open_transactions`, for the oracle of recovery
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from chaos.simulator.cluster import Cluster
from chaos.simulator.oracles.quorum import Report
from data_plane.coordinator.runtime import CoordinatorState, Shard
from data_plane.coordinator.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.metadata.image import MetadataImage

SAMPLE_S: Final = 0.1
COORDINATED: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


class CoordinatorOracle:
    """See the module."""

    def __init__(self, cluster: Cluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._serves: dict[TopicPartition, int] = {}
        """The broker that has served each partition last."""
        cluster.scheduler.at(cluster.scheduler.now + SAMPLE_S, self._sample)

    def _sample(self) -> None:
        scheduler = self._cluster.scheduler
        scheduler.at(scheduler.now + SAMPLE_S, self._sample)
        for node_id, tp, shard in self._shards():
            if _is(shard, CoordinatorState.FAILED) and not self._cluster.machines[node_id].disk.struck:
                self._report("coordinator", f"{tp} could not be loaded on node {node_id}")
            partition = self._partition(node_id, tp)
            if not _is(shard, CoordinatorState.ACTIVE):
                continue
            if partition is None or not partition.is_leader:
                self._report("coordinator", f"{tp} has one on node {node_id}, which does not lead it")
                continue
            if self._serves.setdefault(tp, node_id) != node_id:
                self._serves[tp] = node_id
                self._cluster.story.visit("coordinator move")
            end = partition.log.log_end_offset
            if partition.leader_epoch == shard.leader_epoch and shard.written != end:
                what = f"{tp} on node {node_id} ends at {end}, its coordinator knows {shard.written}"
                self._report("coordinator", what)

    def _shards(self) -> Iterator[tuple[int, TopicPartition, Shard[Any]]]:
        for node_id, running in self._cluster.running.items():
            role = running.node.broker_role
            if role is not None and running.is_ready:
                for group_shard in role.group_coordinator.shards:
                    yield node_id, TopicPartition(OFFSETS_TOPIC, group_shard.partition), group_shard
                for shard in role.transaction_coordinator.shards:
                    yield node_id, TopicPartition(TRANSACTIONS_TOPIC, shard.partition), shard

    def _partition(self, node_id: int, tp: TopicPartition) -> Partition | None:
        running = self._cluster.running.get(node_id)
        if running is None or running.node.broker_role is None:
            return None
        try:
            return running.node.broker_role.replica_manager.get(tp.topic, tp.partition)
        except BrokerError:
            return None

    def serving(self) -> set[tuple[int, TopicPartition, int]]:
        """Which coordinators serve: broker, partition, leader epoch."""
        return {
            (node_id, tp, shard.leader_epoch)
            for node_id, tp, shard in self._shards()
            if _is(shard, CoordinatorState.ACTIVE)
        }

    # ---- after the heal

    def unloaded(self, image: MetadataImage) -> str:
        """Which partitions of internal topics have no coordinator that serves; empty where all have one."""
        serving = self.serving()
        names = [
            str(tp)
            for topic in COORDINATED
            if topic in image.topics_by_name
            for number, state in sorted(image.topics_by_name[topic].partitions.items())
            if (state.leader, tp := TopicPartition(topic, number), state.leader_epoch) not in serving
        ]
        return f"{names} have no coordinator that serves" if names else ""

    def ends(self) -> dict[TopicPartition, int]:
        """Where each log ends now, by whoever has most of it."""
        found: dict[TopicPartition, int] = {}
        for running in self._cluster.running.values():
            if running.node.broker_role is not None:
                for partition in running.node.broker_role.replica_manager:
                    found[partition.tp] = max(found.get(partition.tp, 0), partition.log.log_end_offset)
        return found

    def stable_end(self, image: MetadataImage, tp: TopicPartition) -> int:
        """Up to where a read_committed consumer can read, as its leader has it; 0 where none serves."""
        state = image.partition(tp)
        leader = None if state is None else self._partition(state.leader, tp)
        return 0 if leader is None or leader.leader is None else leader.last_stable_offset

    def open_transactions(self, image: MetadataImage, ends: dict[TopicPartition, int]) -> str:
        """In which partitions a transaction that was open at those ends is open yet."""
        stuck = []
        for tp, end in sorted(ends.items()):
            state = image.partition(tp)
            leader = None if state is None else self._partition(state.leader, tp)
            if leader is not None and leader.last_stable_offset < min(end, leader.high_watermark):
                stuck.append(f"{tp} is stable up to {leader.last_stable_offset} of {leader.high_watermark}")
        return "; ".join(stuck)


def _is(shard: Shard[Any], state: CoordinatorState) -> bool:
    """By value: an older version has an enumeration of its own."""
    return bool(shard.state.value == state.value)
