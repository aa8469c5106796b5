"""Committed metadata is applied to the replicas of this broker (Kafka's ReplicaManager.applyDelta).

For each changed partition: become leader, become follower, be created, be deleted; then configurations, and
the brokers that may join an ISR. Where a new replica lies is reported to the controller (KIP-858). A
partition that cannot be served is left offline, and the others are applied all the same.

    metadata_publisher -> apply(delta, image) -> LocalReplicaChanges -> fetchers, coordinators
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from data_plane.log.config import LogConfig
from data_plane.log_manager.background_work import BackgroundWork
from data_plane.log_manager.checkpoint_writer import CheckpointWriter
from data_plane.log_manager.directory_names import DELETED, STRAY
from data_plane.log_manager.log_creation import CreatedLogs
from data_plane.log_manager.log_manager import LogManager
from data_plane.replication.directory_assignments import AssignmentsManager, ReplicaAssignment
from data_plane.replication.isr_requests import IsrRequester
from data_plane.replication.partition import Partition
from data_plane.replication.partition_context import PartitionContext
from data_plane.replication.partition_registry import PartitionRegistry
from data_plane.replication.replica_moves import ReplicaMoves
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import LOST_DIR, UNASSIGNED_DIR, PartitionRegistration, TopicPartition
from metadata_quorum.foundation.supervision import bounded, report_fault
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage

logger = logging.getLogger(__name__)

CREATED_ON_LOOP: Final = 4
"""Up to this many new logs are created on the loop in one of its turns; more are created in the executor
beforehand."""


@dataclass(slots=True)
class LocalReplicaChanges:
    """What `apply` did, for the fetchers and the coordinators."""

    leading: list[Partition] = field(default_factory=list)
    following: list[Partition] = field(default_factory=list)
    removed: list[Partition] = field(default_factory=list)


class DeltaApplier:
    """The only one that adds and removes partitions."""

    def __init__(
        self,
        registry: PartitionRegistry,
        logs: LogManager,
        checkpoints: CheckpointWriter,
        background: BackgroundWork,
        context: PartitionContext,
        moves: ReplicaMoves,
        assignments: AssignmentsManager | None,
        now_ms: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._logs = logs
        self._unclaimed = logs.unclaimed
        self._checkpoints = checkpoints
        self._background = background
        self._loop = background.loop
        self._context = context
        self._brokers = context.brokers
        self._moves = moves
        self._assignments = assignments
        self._now_ms = now_ms
        self._room = CREATED_ON_LOOP
        """For new logs, in this turn: very many changes of one partition each may come at once."""
        self._image = EMPTY_IMAGE
        """The newest one."""

    # --- every change -------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> LocalReplicaChanges:
        """Apply committed metadata. Never raises for a partition that cannot be served here."""
        changes = LocalReplicaChanges()
        self._image = image
        if delta.changed_configs:
            bounded(self._loop, "the change of configurations", self._configure, delta, image)
        self._brokers.take_registrations(image.brokers)
        bounded(self._loop, "the change of brokers", self._brokers.take_changes, delta)
        for topic_id in delta.deleted_topics:
            self._logs.forget(topic_id)
            topic = delta.image.topics_by_id.get(topic_id)
            if topic is not None:
                changes.removed += self.remove([(topic_id, number) for number in topic.partitions])
        for topic_id, partitions in delta.changed_partitions.items():
            name = image.topics_by_id[topic_id].name
            for number, registration in partitions.items():
                tp = TopicPartition(name, number)
                try:
                    self._apply_partition(tp, topic_id, registration, image, changes)
                except Exception as error:  # noqa: BLE001
                    self._give_up_change(tp, topic_id, error)
        if delta.changed_brokers:  # who may join
            now = self._loop.time()

            def expand(partition: IsrRequester) -> None:
                bounded(self._loop, f"the ISR of {partition.tp}", partition.maybe_expand_isr, now)

            self._background.sweep(self._context.unsettled, expand)
        self._checkpoints.sync_soon()
        return changes

    def _configure(self, delta: MetadataDelta, image: MetadataImage) -> None:
        topics = self._logs.configs.changed_by(delta, image)
        changed = self._registry if topics is None else self._partitions_of(topics, image)

        def configure(partition: Partition) -> bool | None:
            return bounded(self._loop, f"the configuration of {partition.tp}", self._configure_one, partition)

        self._background.sweep(changed, configure)

    def _partitions_of(self, topics: Iterable[str], image: MetadataImage) -> Iterator[Partition]:
        """Those that are here, of topics that are not deleted."""
        for name in topics:
            topic = image.topics_by_name.get(name)
            for number in () if topic is None else topic.partitions:
                partition = self._registry.find(TopicPartition(name, number))
                if partition is not None:
                    yield partition

    def _configure_one(self, partition: Partition) -> bool:
        """In the turn of the change or a later one: what is the newest by then holds. True if that took
        long."""
        if partition.removed:
            return False
        configs, topic = self._logs.configs, partition.tp.topic
        takes_long = configs.takes_long(self._image, topic)
        partition.configure(configs.of(self._image, topic))
        partition.maybe_expand_isr(self._loop.time())  # what min.insync.replicas held back
        return takes_long

    def _apply_partition(
        self,
        tp: TopicPartition,
        topic_id: UUID,
        registration: PartitionRegistration,
        image: MetadataImage,
        changes: LocalReplicaChanges,
    ) -> None:
        partition = self._registry.find(tp)
        if partition is not None and partition.topic_id != topic_id:
            self._remove(partition, changes)
            partition = None
        if self._context.broker_id not in registration.replicas:
            if partition is not None:
                self._remove(partition, changes, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif tp in self._unclaimed.unreadable:  # else it would be in the way, should it come back
                self._logs.clear_way(tp, None, STRAY)
            return
        if partition is None:
            self._unclaimed.suspect(tp, registration, self._context.broker_id)
            partition = self._create(tp, topic_id, self._logs.configs.of(image, tp.topic))
        if partition is None:
            self._report_lost(tp, topic_id, registration)
            return
        self._report_directory(partition, registration)
        if partition.offline:
            return
        if registration.leader == self._context.broker_id:
            try:
                if partition.become_leader(registration, self._loop.time()):
                    changes.leading.append(partition)
            except BrokerError as e:
                logger.error("%s cannot lead: %s", tp, e)
        elif partition.become_follower(registration):
            changes.following.append(partition)

    def _give_up_change(self, tp: TopicPartition, topic_id: UUID, error: Exception) -> None:
        """A partition's change could not be applied."""
        partition = self._registry.find(tp)
        if partition is not None:
            self._context.failures.give_up(partition, "the change", error)
            return
        report_fault(self._loop, f"the creation of {tp}, which is offline,", error)
        retriable = isinstance(error, OSError)  # not the disk's: that ends with the directory
        self._unclaimed.creation_failed(
            tp, topic_id, f"{tp} could not be created: {error}", retriable=retriable
        )
        if self._assignments is not None:
            self._assignments.assign(ReplicaAssignment(topic_id, tp.partition, LOST_DIR))

    # --- creation and removal -----------------------------------------------------------------

    def _create(self, tp: TopicPartition, topic_id: UUID, config: LogConfig) -> Partition | None:
        placed = self._logs.get_or_create(tp, topic_id, config)
        if placed is None:
            return None
        partition = Partition(tp, topic_id, placed.log, self._context, placed.high_watermark)
        self._registry.add(partition)
        self._logs.add(partition, placed.directory)
        self._moves.resume(partition)
        return partition

    def _report_directory(self, partition: Partition, registration: PartitionRegistration) -> None:
        """Tell the controller in which directory the replica is, if the metadata says otherwise."""
        if self._assignments is None:
            return
        # A replica that was given up does not serve until the next start: another one should lead.
        directory = LOST_DIR if partition.log.inconsistent else self._logs.dir_of(partition).directory_id
        number = partition.tp.partition
        if registration.directory(self._context.broker_id) == directory:
            self._assignments.cancel_assignment(partition.topic_id, number)
        else:
            self._assignments.assign(ReplicaAssignment(partition.topic_id, number, directory))

    def _report_lost(self, tp: TopicPartition, topic_id: UUID, registration: PartitionRegistration) -> None:
        """Tell the controller that the replica cannot be served before the next start: it would be elected as
        the last of its ISR, and as long as it leads, nobody is elected uncleanly. Where its directory has
        failed, the controller knows that."""
        directory = registration.directory(self._context.broker_id)
        online = {UNASSIGNED_DIR, *(each.directory_id for each in self._logs.dirs if each.online)}
        if self._assignments is not None and directory in online:
            self._assignments.assign(ReplicaAssignment(topic_id, tp.partition, LOST_DIR))

    def remove(self, gone: Iterable[tuple[UUID, int]]) -> list[Partition]:
        """Remove partitions of deleted topics; returns those that were here."""
        changes = LocalReplicaChanges()
        for topic_id, number in gone:
            partition = self._registry.find_by_id(topic_id, number)
            if partition is not None:
                bounded(self._loop, f"the removal of {partition.tp}", self._remove, partition, changes)
        return changes.removed

    def _remove(
        self,
        partition: Partition,
        changes: LocalReplicaChanges,
        error: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ) -> None:
        """Remove the replica and its files; requests that wait for it get `error`."""
        partition.removed = True
        self._moves.cancel(partition)
        partition.stop(error)
        self._registry.remove(partition)
        self._context.topic_stats.leave(partition.tp.topic)
        directory = self._logs.remove(partition)
        if self._assignments is not None:
            self._assignments.cancel_assignment(partition.topic_id, partition.tp.partition)
        changes.removed.append(partition)
        if directory.online:
            self._logs.set_aside(partition.tp, partition.log, directory, DELETED)

    # --- logs created before the change is applied --------------------------------------------

    def logs_to_create(self, delta: MetadataDelta, image: MetadataImage) -> CreatedLogs | None:
        """Logs of new partitions, to be created in the executor and handed to `add_created`; None where
        `apply` can create them without holding up the loop."""
        new: list[tuple[TopicPartition, UUID, PartitionRegistration, LogConfig]] = []
        for topic_id, partitions in delta.changed_partitions.items():
            topic = image.topics_by_id[topic_id].name
            for number, registration in partitions.items():
                tp = TopicPartition(topic, number)
                here = self._context.broker_id in registration.replicas
                if here and tp not in self._registry and tp not in self._unclaimed:
                    new.append((tp, topic_id, registration, self._logs.configs.of(image, topic)))
        placed = list(self._logs.place(new, self._context.broker_id))
        if len(placed) > self._room:
            return CreatedLogs(placed, self._now_ms())
        if placed:
            if self._room == CREATED_ON_LOOP:
                self._loop.call_soon(self._next_turn)
            self._room -= len(placed)
        return None

    def _next_turn(self) -> None:
        self._room = CREATED_ON_LOOP

    def add_created(self, created: CreatedLogs) -> None:
        """`apply` finds these logs."""
        self._logs.add_created(created)

    # --- partitions for which there was no file descriptor ------------------------------------

    @property
    def needs_retry(self) -> bool:
        """Whether there are partitions whose creation failed for a temporary reason."""
        return self._unclaimed.needs_retry

    def retry_delta(self, image: MetadataImage) -> MetadataDelta:
        """A delta that creates them."""
        delta = MetadataDelta(image)
        for topic_id, number in self._unclaimed.take_retriable():
            topic = image.topics_by_id.get(topic_id)
            if topic is not None and number in topic.partitions:
                delta.changed_partitions.setdefault(topic_id, {})[number] = topic.partitions[number]
        return delta

    # --- strays -------------------------------------------------------------------------------

    def remove_stray_replicas(self, image: MetadataImage) -> None:
        """Set aside logs found on disk that the metadata, complete by now, does not assign to this broker."""
        for tp in self._unclaimed:
            for stray in () if self._placed_here(tp, image) else self._unclaimed.take(tp):
                logger.warning("%s is no replica of this broker any longer; set aside", tp)
                self._logs.set_aside(tp, stray.log, stray.directory, STRAY)
        for tp in list(self._unclaimed.unreadable):
            if not self._placed_here(tp, image):
                self._logs.clear_way(tp, None, STRAY)
        for directory in self._logs.dirs:
            for tp in [tp for tp in directory.unfinished if tp not in self._registry]:
                self._background.remove_in(directory, directory.unfinished.pop(tp))
        self._checkpoints.sync_soon()

    def _placed_here(self, tp: TopicPartition, image: MetadataImage) -> bool:
        registration = image.partition(tp)
        return registration is not None and self._context.broker_id in registration.replicas
