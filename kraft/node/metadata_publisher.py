"""Applies committed metadata on a broker: the one place where image changes become roles.

    state_machine or metadata_follower -> publish(delta, image)
        -> executor               create the logs of many new partitions; later changes wait for it
        -> metadata_cache         what handlers answer from
        -> delta_applier          become leader, become follower, create, delete, configure
        -> fetcher_manager        follow, unfollow
        -> groups, transactions   load a coordinator's partition, or resign from it
        -> failover_metadata      brokers that died, for Metadata responses
        -> a timer                retry partitions whose files could not be created
        -> lifecycle              caught up with our own registration?

Nothing is applied before the metadata contains the registration of this incarnation. Older metadata may still
name this broker as a leader, in epochs that its log must not open again; at our registration it has left
every ISR, so from there on metadata is current. And nothing is applied once another process has registered
under our id (we were paused, and somebody started a second one): what metadata then says of this broker is
about that process, so the node stops.

A change of very many partitions is applied in steps, and other work runs on the loop between them. Handlers
see the new image from the first step on, and each partition changes in one call: one that a later step
changes is as it is on any broker that gets the change a little later, and refuses by its leader epoch or
role. The next change waits for the last step, and only then does this one count as published.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.coordinator.groups.service import GroupCoordinator
from data_plane.coordinator.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from data_plane.coordinator.transactions.service import TransactionCoordinator
from data_plane.log_manager.log_creation import CreatedLogs
from data_plane.replication.delta_applier import DeltaApplier
from data_plane.replication.partition import Partition
from fetch.fetcher_manager import ReplicaFetcherManager
from kraft.broker.failover_metadata import FailoverMetadata
from metadata_quorum.foundation.blocking import Blocking
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.foundation.supervision import bounded, report_fault, supervised
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.metadata_cache import MetadataCache

RETRY_S: Final = 1.0
"""Before partitions that could not be created are retried; doubled each time."""
MAX_RETRY_S: Final = 60.0

STEP: Final = 500
"""Partitions that change or are deleted between two turns of the loop; each takes some 20 to 50 us."""

CONFIG_CHARS: Final = 1024
"""So many of a new topic's configuration count as a partition: a list takes that long to understand."""


class Step(NamedTuple):
    """A part of one change."""

    delta: MetadataDelta
    whole: MetadataDelta
    image: MetadataImage
    first: bool
    last: bool
    deleted: Sequence[tuple[UUID, int]] = ()
    """Partitions to delete; the delta of a later step has their topics."""


class BrokerMetadataPublisher:
    """See the module."""

    def __init__(
        self,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        metadata_cache: MetadataCache,
        applier: DeltaApplier,
        fetcher_manager: ReplicaFetcherManager,
        group_coordinator: GroupCoordinator,
        transaction_coordinator: TransactionCoordinator,
        failover_metadata: FailoverMetadata,
        *,
        incarnation_id: UUID,
        broker_epoch: Callable[[], int],
        on_published: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
        blocking: Blocking,
    ) -> None:
        self._node_id = node_id
        self._loop = loop
        self._metadata_cache = metadata_cache
        self._applier = applier
        self._fetcher_manager = fetcher_manager
        self._group_coordinator = group_coordinator
        self._coordinators: dict[str, GroupCoordinator | TransactionCoordinator] = {
            OFFSETS_TOPIC: group_coordinator,
            TRANSACTIONS_TOPIC: transaction_coordinator,
        }
        self._failover_metadata = failover_metadata
        self._incarnation_id = incarnation_id
        self._broker_epoch = broker_epoch
        self._on_published = on_published
        self._on_fatal = on_fatal
        self._newest = EMPTY_IMAGE
        self._closed = False
        self._blocking = blocking
        self._waiting: deque[Step] = deque()
        self._task: asyncio.Task[None] | None = None
        """Creates logs, or pauses between two steps."""
        self._retry_timer: asyncio.TimerHandle | None = None
        self._retry_s = RETRY_S
        self.begun = False
        """Our registration was in the metadata: changes are applied."""
        self.published_offset = -1
        """Offset of the last record that was applied."""
        self.started = asyncio.Event()
        """Set when metadata has been applied for the first time."""

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take the next image. Called in the order of the metadata log."""
        if self._closed:
            return
        self._newest = image
        if not self.begun:
            self.begin()
            return
        ours = delta.changed_brokers.get(self._node_id)
        if ours is not None and ours.incarnation_id != self._incarnation_id:
            self.close()
            reason = f"another process has registered as node {self._node_id}, so this one stops"
            self._on_fatal(FatalError(ExitCode.BAD_CONFIG, reason))
            return
        self._apply(delta, image)

    def begin(self) -> None:
        """Start with the newest image, if our registration is in it. Called again once the controller has
        sent our broker epoch: the record may have come first."""
        image = self._newest
        ours = image.brokers.get(self._node_id)
        if self.begun or self._closed or ours is None or ours.broker_epoch != self._broker_epoch():
            return
        self.begun = True
        self._apply(MetadataDelta.between(EMPTY_IMAGE, image), image)

    def close(self) -> None:
        """The broker stops: nothing more is applied, because what would be changed is being closed."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self._retry_timer is not None:
            self._retry_timer.cancel()

    def _apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply a change, at once unless it is long or needs many logs created first; always in order."""
        self._waiting.extend(steps_of(delta, image))
        if self._task is None:
            self._apply_waiting()

    def _apply_waiting(self) -> None:
        while self._waiting and not self._closed:
            step = self._waiting[0]
            logs = self._logs_to_create(step.delta, step.image)
            if logs is not None:
                self._task = supervised(self._loop, self._create(logs), "creating logs")
                return
            self._apply_next()
            if not step.last:
                self._task = supervised(self._loop, self._pause(), "a long change of metadata")
                return

    async def _pause(self) -> None:
        await asyncio.sleep(0)
        self._task = None
        self._apply_waiting()

    def _logs_to_create(self, delta: MetadataDelta, image: MetadataImage) -> CreatedLogs | None:
        try:
            return self._applier.logs_to_create(delta, image)
        except Exception as error:  # noqa: BLE001 - `apply` creates what is missing
            report_fault(self._loop, "finding the logs to create", error)
            return None

    async def _create(self, logs: CreatedLogs) -> None:
        try:
            await self._blocking(logs.run)
            self._applier.add_created(logs)
        except Exception as error:  # noqa: BLE001 - `apply` creates what is missing
            report_fault(self._loop, "creating logs", error)
        self._task = None
        self._apply_next()
        self._apply_waiting()

    def _apply_next(self) -> None:
        """Even if it fails: later changes must not wait for ever."""
        step = self._waiting.popleft()
        bounded(self._loop, f"metadata up to {step.image.offset}", self._apply_step, step)

    def _apply_step(self, step: Step) -> None:
        """Each part of the change is bounded by itself: an exception in one leaves the others done."""
        image, whole = step.image, step.whole
        loop = self._loop
        if step.first:
            self._metadata_cache.image = image
            bounded(loop, "the groups' view", self._group_coordinator.view.take, whole, image)
        changes = self._applier.apply(step.delta, image)
        changes.removed.extend(self._applier.remove(step.deleted))
        if step.first:
            self._take_coordinated(whole, image)
        for partition in changes.removed:
            bounded(loop, f"the removal of {partition.tp}", self._remove, partition)
        for partition in changes.leading:
            bounded(loop, f"the leadership of {partition.tp}", self._lead, partition)
        for partition in changes.following:
            bounded(loop, f"the following of {partition.tp}", self._follow, partition)
        if not step.last:
            return
        bounded(loop, "failover metadata", self._failover_metadata.take, whole, image)
        if self.published_offset < 0:
            bounded(loop, "strays", self._applier.remove_stray_replicas, image)
        self._schedule_retry()
        self.published_offset = image.offset
        self.started.set()
        self._on_published()

    def _take_coordinated(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for name, coordinator in self._coordinators.items():
            topic = image.topic(name)
            if topic is not None:
                coordinator.partitions = len(topic.partitions)
        if delta.deleted_topics:
            deleted = list(delta.deleted_topics.values())
            bounded(
                self._loop, "the offsets of deleted topics", self._group_coordinator.topics_deleted, deleted
            )

    def _schedule_retry(self) -> None:
        """Retry partitions for which there was no file descriptor: others may be closed by then."""
        if not self._applier.needs_retry:
            self._retry_s = RETRY_S
        elif self._retry_timer is None and not self._closed:
            self._retry_timer = self._loop.call_later(self._retry_s, self._retry)
            self._retry_s = min(2 * self._retry_s, MAX_RETRY_S)

    def _retry(self) -> None:
        self._retry_timer = None
        image = self._newest
        try:
            self._apply(self._applier.retry_delta(image), image)
        except Exception as error:  # noqa: BLE001
            report_fault(self._loop, "the retry of partitions without files", error)

    def _remove(self, partition: Partition) -> None:
        self._fetcher_manager.unfollow(partition)
        self._resign(partition)

    def _lead(self, partition: Partition) -> None:
        self._fetcher_manager.unfollow(partition)
        coordinator = self._coordinators.get(partition.tp.topic)
        if coordinator is not None and partition.is_leader:  # else its directory has failed since
            partition.on_stopped = self._resign  # its directory fails: no metadata tells it another role
            coordinator.become_leader(partition.tp.partition, partition.leader_epoch)

    def _follow(self, partition: Partition) -> None:
        self._resign(partition)
        self._fetcher_manager.follow(partition)

    def _resign(self, partition: Partition) -> None:
        coordinator = self._coordinators.get(partition.tp.topic)
        if coordinator is not None:
            coordinator.resign(partition.tp.partition)


def steps_of(delta: MetadataDelta, image: MetadataImage) -> list[Step]:
    """Deletions come before creations: a new topic may have the name of a deleted one."""
    before = delta.image.topics_by_id
    old = [(i, n) for i in delta.deleted_topics if i in before for n in before[i].partitions]
    size = sum(len(each) + _weight_of_config(delta, i) for i, each in delta.changed_partitions.items())
    if len(old) + size <= STEP:
        return [Step(delta, delta, image, first=True, last=True)]
    deletions = [old[start : start + STEP] for start in range(0, len(old), STEP)]
    parts = [*(MetadataDelta(delta.image) for _ in deletions), *_in_parts(delta)]
    parts[len(deletions)].deleted_topics = delta.deleted_topics
    # Who may be in an ISR is known before the partitions change, and judged again after.
    parts[0].changed_configs = delta.changed_configs
    parts[0].changed_brokers = parts[-1].changed_brokers = delta.changed_brokers
    last = len(parts) - 1
    return [
        Step(part, delta, image, i == 0, i == last, deletions[i] if i < len(deletions) else ())
        for i, part in enumerate(parts)
    ]


def _weight_of_config(delta: MetadataDelta, topic_id: UUID) -> int:
    values = delta.changed_configs.get((int(ResourceType.TOPIC), delta.topic_name(topic_id) or ""))
    return sum(map(len, values.values())) // CONFIG_CHARS if values else 0


def _in_parts(delta: MetadataDelta) -> Iterator[MetadataDelta]:
    part, size = MetadataDelta(delta.image), 0
    for topic_id, partitions in delta.changed_partitions.items():
        items = iter(partitions.items())
        size += _weight_of_config(delta, topic_id)
        while some := dict(islice(items, max(STEP - size, 1))):
            part.changed_partitions[topic_id] = some
            size += len(some)
            if size >= STEP:
                yield part
                part, size = MetadataDelta(delta.image), 0
    yield part
