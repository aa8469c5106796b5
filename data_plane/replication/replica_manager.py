"""All partitions of a broker, and the hand of the cluster's metadata on them.

`apply(delta, image)` is told of every committed change by the publisher: partitions are made, lead,
follow, or go; their configurations change; brokers become eligible for ISRs or cease to be. What
takes long (fsync, removal of files) goes to the executor. Beyond that: checkpoints of the high
watermarks, recovery points and log starts, the sweeps for laggards and for old segments, and log
directories that fail.

Way of the data: api/*, fetch/* find their partition here. A partition calls back as its host.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.log.cleaner import DEFAULT_MAP_BYTES
from data_plane.log.config import LogConfig
from data_plane.log.consistency import InconsistentLogError, disk_failure
from data_plane.log.cut import CutWork
from data_plane.log.effects import Deletion
from data_plane.log.log import UnifiedLog
from data_plane.log.producers import DEFAULT_EXPIRATION_MS
from data_plane.log.recovery import LogCorruptError
from data_plane.log_manager.found_logs import UnclaimedLog, UnclaimedLogs
from data_plane.log_manager.log_configs import LogConfigs
from data_plane.log_manager.log_dirs import LogDir
from data_plane.purgatory.timing_wheel import Deadline, WheelTimer
from data_plane.quotas.replication import ReplicationQuota
from data_plane.replication.directory_assignments import (
    AssignmentsManager,
    DirectoryChannel,
    ReplicaAssignment,
)
from data_plane.replication.isr_requests import AlterPartitionManager, IsrChannel
from data_plane.replication.leader_state import AlterPartitionItem
from data_plane.log_manager.log_cleaner import LogCleaner
from data_plane.replication.partition import Partition
from data_plane.replication.replica_moves import ReplicaMoves
from metadata_quorum.foundation.blocking import Blocking, MayBlock
from metadata_quorum.foundation.disk import is_of_disk
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import (
    LOST_DIR,
    BrokerRegistration,
    PartitionRegistration,
    TopicPartition,
)
from metadata_quorum.foundation.supervision import bounded, report_fault, supervised
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

NEW_LOG: Final = MayBlock("opening an empty log waits for no device")

RETRY_S: Final = 1.0
"""Until work is tried again that has failed of the process's limits, not of the disk."""
CREATED_ON_LOOP: Final = 8
"""Logs that the loop makes by itself; more are made outside it."""


@dataclass(frozen=True, slots=True)
class ReplicaManagerConfig:
    """Times in seconds; Kafka's keys beside them."""

    broker_id: int
    lag_time_max: float = 30.0  # replica.lag.time.max.ms
    high_watermark_checkpoint_interval: float = 5.0  # replica.high.watermark.checkpoint.interval.ms
    recovery_checkpoint_interval: float = 60.0  # log.flush.offset.checkpoint.interval.ms
    retention_check_interval: float = 300.0  # log.retention.check.interval.ms
    cleaner_interval: float | None = 15.0  # log.cleaner.backoff.ms; None: log.cleaner.enable=false
    cleaner_map_bytes: int = DEFAULT_MAP_BYTES  # log.cleaner.dedupe.buffer.size
    producer_check_interval: float = 600.0  # producer.id.expiration.check.interval.ms
    producer_expiration_ms: int = DEFAULT_EXPIRATION_MS  # producer.id.expiration.ms
    log_defaults: LogConfig = field(default_factory=LogConfig)


@dataclass(slots=True)
class LocalReplicaChanges:
    """What `apply` did, for those who follow (fetch/fetcher_manager.py) and coordinate."""

    leading: list[Partition] = field(default_factory=list)
    following: list[Partition] = field(default_factory=list)
    removed: list[Partition] = field(default_factory=list)


class ReplicaManager:
    """See the module."""

    def __init__(
        self,
        settings: ReplicaManagerConfig,
        log_dirs: Sequence[LogDir],
        isr_channel: IsrChannel,
        *,
        loop: asyncio.AbstractEventLoop,
        timer: WheelTimer,
        rng: random.Random,
        now_ms: Callable[[], int],
        blocking: Blocking,
        on_log_dir_failed: Callable[[LogDir, OSError], None] = lambda directory, error: None,
        directory_channel: DirectoryChannel | None = None,
        moves_quota: ReplicationQuota | None = None,
    ) -> None:
        self._settings = settings
        self._dirs = list(log_dirs)
        self._loop = loop
        self._timer = timer
        self._rng = rng
        self._now_ms = now_ms
        self._blocking = blocking
        self._on_log_dir_failed = on_log_dir_failed
        self._alter_partition = AlterPartitionManager(isr_channel, loop)
        self._assignments = None if directory_channel is None else AssignmentsManager(directory_channel, loop)
        self._cleaner = LogCleaner(self, blocking, now_ms, settings.cleaner_map_bytes)
        quota = moves_quota or ReplicationQuota()
        self.moves = ReplicaMoves(self, blocking, loop, now_ms, rng, quota)
        self._chosen_dirs: dict[TopicPartition, LogDir] = {}  # for replicas that are not here yet
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[UUID, int], Partition] = {}
        self._dir_of: dict[Partition, LogDir] = {}
        self._unclaimed = UnclaimedLogs(rng, self.fail_log_dir)
        self._eligible: dict[int, int] = {}
        self._brokers: Mapping[int, BrokerRegistration] = {}
        self._configs = LogConfigs(settings.broker_id, settings.log_defaults)
        self._deadlines: dict[str, Deadline] = {}
        self._flushing: dict[Partition, asyncio.Task[None]] = {}
        self._checkpointing = asyncio.Lock()
        self._checkpoints_stale = False  # they tell of logs that are gone, or say too much
        self._unsynced: dict[
            LogDir, list[UnifiedLog]
        ] = {}  # where something was made or renamed; what is new
        self._before_cuts: list[asyncio.Future[bool]] = []  # wait for checkpoints that are yet to begin
        self._syncing = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    # --- finding ------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> Partition:
        """Raises UNKNOWN_TOPIC_OR_PARTITION or KAFKA_STORAGE_ERROR."""
        found = self._by_name.get((topic, partition))
        if found is not None:
            return found
        tp = TopicPartition(topic, partition)
        reason = self._unclaimed.why_offline(tp)
        if reason is not None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))

    def get_by_id(self, topic_id: UUID, partition: int) -> Partition:
        """Raises UNKNOWN_TOPIC_ID or KAFKA_STORAGE_ERROR."""
        found = self._by_id.get((topic_id, partition))
        if found is not None:
            return found
        offline = self._unclaimed.offline_by_id(topic_id, partition)
        if offline is not None:
            return self.get(*offline)
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"{topic_id}:{partition}")

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def whole_epoch(self) -> int:
        """The broker epoch of the last run, if all that was kept then is here; else -1."""
        epochs = {directory.whole_epoch for directory in self._dirs if directory.online}
        whole = len(epochs) == 1 and self._unclaimed.whole and all(d.online for d in self._dirs)
        return epochs.pop() if whole else -1

    @property
    def log_dirs(self) -> Sequence[LogDir]:
        return self._dirs

    def log_dir_of(self, partition: Partition) -> LogDir:
        return self._dir_of[partition]

    def uncleanable_in(self, directory: LogDir) -> int:
        """How many there are not compacted any more (uncleanable-partitions-count)."""
        return sum(self._dir_of.get(partition) is directory for partition in self._cleaner.uncleanable)

    def registered(self, broker_epoch: int) -> None:
        """The broker runs in that epoch now."""
        for directory in self._dirs:
            if directory.online:
                try:
                    directory.mark_running(broker_epoch)
                except OSError as e:
                    self.dir_error(directory, e)

    # --- host of the partitions ---------------------------------------------------------------

    @property
    def broker_id(self) -> int:
        return self._settings.broker_id

    @property
    def eligible(self) -> Mapping[int, int]:
        return self._eligible

    def has_online_dir(self, broker_id: int, directory: UUID) -> bool:
        broker = self._brokers.get(broker_id)
        return broker is None or broker.has_online_dir(directory)

    @property
    def lag_time_max(self) -> float:
        return self._settings.lag_time_max

    def submit_alter_partition(self, partition: Partition, item: AlterPartitionItem) -> None:
        self._alter_partition.submit(partition, item)

    def flush(self, partition: Partition) -> None:
        if partition not in self._flushing and not self._closed:
            self._flushing[partition] = self._spawn(self._flush(partition))

    async def _flush(self, partition: Partition) -> None:
        """Flush until nothing is due any more: appends go on while one runs."""
        try:
            while not partition.offline and not partition.removed:
                log = partition.log
                work = log.prepare_flush()
                if work is not None:
                    try:
                        await self._blocking(work.run)
                    except (OSError, ValueError) as e:  # ValueError: closed under the flush
                        if partition.log is not log and isinstance(e, FileNotFoundError | ValueError):
                            continue  # it has moved to another directory meanwhile
                        if isinstance(e, OSError):
                            log.flush_failed(work)
                        raise
                    log.flush_done(work)
                partition.flushed(self._loop.time())
                if (
                    partition.log.unflushed_records < partition.log.config.flush_messages
                    or partition.log.is_to_be_cut
                ):
                    return
        except Exception as e:  # noqa: BLE001 - those who wait for the flush must not wait for ever
            if not partition.removed:  # else its files were closed meanwhile
                self._flush_failed(partition, e)
        finally:
            self._flushing.pop(partition, None)

    def _flush_failed(self, partition: Partition, error: Exception) -> None:
        if not isinstance(error, OSError):
            self.give_up(partition, "the flush", error)
        elif is_of_disk(error):
            self.storage_failed(partition, error)
        else:  # the recovery point stays: nothing is lost but time
            report_fault(self._loop, f"the flush of {partition.tp}, which is tried again,", error)
            self._timer.call_later(RETRY_S, partial(self._flush_again, partition))

    def _flush_again(self, partition: Partition) -> None:
        if not partition.offline and not partition.removed:
            self.flush(partition)

    def carry_out(
        self, partition: Partition, work: CutWork, cut: Callable[[bool], bool], done: Callable[[bool], None]
    ) -> None:
        if not self._closed:
            self._spawn(self._carry_out(partition, work, cut, done))

    async def _carry_out(
        self, partition: Partition, work: CutWork, cut: Callable[[bool], bool], done: Callable[[bool], None]
    ) -> None:
        ready = False
        try:
            await self._blocking(work.run)
            ready = work.ready and await self._checkpointed_from_now()
        except OSError as e:
            self.storage_failed(partition, e)
        except Exception as e:  # noqa: BLE001 - what is below the cut cannot be read
            self.give_up(partition, "a cut", e)
        was_cut = cut(ready)
        if was_cut:
            for _ in range(2):  # one that runs already has begun before the cut
                self.flush(partition)
                if partition in self._flushing:
                    await asyncio.wait([self._flushing[partition]])
        done(was_cut)

    async def _checkpointed_from_now(self) -> bool:
        """Wait for checkpoints that know the recovery points of now; many wait for the same ones. Whether
        they are durable: none is begun once the broker closes, and nobody may wait for one."""
        if self._closed:
            return False
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._before_cuts.append(waiter)
        self._checkpoints_stale = True
        if len(self._before_cuts) == 1:
            self._loop.call_soon(self._sync_created_soon)
        return await waiter

    def delete_files(self, partition: Partition, deletions: Sequence[Deletion]) -> None:
        directory = self._dir_of.get(partition)
        if directory is None:
            return
        now_ms = self._now_ms()
        for deletion in deletions:
            self._timer.call_later(
                max(deletion.due_ms - now_ms, 0) / 1000, partial(self._run_blocking, directory, deletion.run)
            )

    def storage_failed(self, partition: Partition, error: OSError | InconsistentLogError) -> None:
        directory = self._dir_of.get(partition)
        if directory is None:
            return
        if not partition.log.inconsistent or disk_failure(error) is not None:
            self.dir_error(directory, error)
        else:
            self.give_up(partition, "the log", error)

    def dir_error(self, directory: LogDir, error: OSError | InconsistentLogError) -> bool:
        """Whether it has failed: then it is offline now. Else only what was tried has come to nothing."""
        failure = disk_failure(error)
        if failure is not None:
            self.fail_log_dir(directory, failure)
            return True
        report_fault(self._loop, f"work in {directory.path}", error)
        return False

    def fault(self, work: str, error: Exception) -> None:
        report_fault(self._loop, work, error)

    def give_up(self, partition: Partition, work: str, error: Exception) -> None:
        """A bug has left its state in doubt: it answers KAFKA_STORAGE_ERROR from now on, it alone."""
        report_fault(self._loop, f"{work} of {partition.tp}, which goes offline,", error)
        partition.offline = partition.log.inconsistent = True
        self._report_lost(partition.topic_id, partition.tp)
        self.moves.cancel(partition)
        bounded(self._loop, f"the end of {partition.tp}", partition.stop, ErrorCode.KAFKA_STORAGE_ERROR)

    def fail_log_dir(self, directory: LogDir, error: OSError) -> None:
        """Take a directory offline: its partitions answer KAFKA_STORAGE_ERROR from now on."""
        if not directory.online:
            return
        directory.online = False
        with contextlib.suppress(OSError):
            directory.mark_lost()
        logger.error("Log directory %s goes offline: %s", directory.path, error)
        for partition, its_directory in self._dir_of.items():
            if its_directory is directory:
                partition.offline = True
                bounded(
                    self._loop, f"the end of {partition.tp}", partition.stop, ErrorCode.KAFKA_STORAGE_ERROR
                )
        self.moves.directory_failed(directory)
        self._on_log_dir_failed(directory, error)

    # --- log directories ----------------------------------------------------------------------

    def move(self, tp: TopicPartition, path: str) -> None:
        """Move a replica to another of this broker's log directories, or choose the one for a replica that
        is not here yet. Raises BrokerError where it cannot be done."""
        directory = next((each for each in self._dirs if each.path == path.rstrip("/")), None)
        if directory is None:
            raise BrokerError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not among log.dirs")
        if not directory.online:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {path} is offline")
        partition = self._by_name.get(tp)
        if partition is None:
            self._chosen_dirs[tp] = directory
            self.get(*tp)
        elif partition.offline:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp}: its log directory is offline")
        else:
            self.moves.begin(partition, directory)

    def arrived(self, partition: Partition, log: UnifiedLog, directory: LogDir) -> None:
        old, old_log = self._dir_of[partition], partition.log
        partition.log = log
        self._dir_of[partition] = directory
        # Not closed: what has been found in it for a fetch is still to be read.
        self._let_go(partition.tp, old_log, old, "delete")
        if self._assignments is not None:
            self._assignments.assign(
                ReplicaAssignment(partition.topic_id, partition.tp.partition, directory.directory_id)
            )
        self._sync_created_soon()
        self.flush(partition)

    def _resume_move(self, partition: Partition) -> None:
        """The last run had begun to copy the replica elsewhere."""
        for directory in self._dirs:
            if directory.online and partition.tp in directory.unfinished:
                self.moves.begin(partition, directory)

    # --- start and end ------------------------------------------------------------------------

    def load(self, may_block: MayBlock, image: MetadataImage | None = None) -> None:
        """Open the logs on disk (blocks; before the node serves). `image`: what is known already."""
        configs: dict[str, LogConfig] = {}
        if image is not None:
            self._configs.take_defaults(image)
            configs = {topic: self._configs.of(image, topic) for topic in image.topics_by_name}
        self._unclaimed.load(self._dirs, self._configs.defaults, configs, self._now_ms(), may_block)

    def start(self) -> None:
        """Begin the periodic work."""
        settings = self._settings
        self._every("isr", settings.lag_time_max / 2, self.maybe_shrink_isr)
        self._every("hw", settings.high_watermark_checkpoint_interval, self._checkpoint_soon)
        self._every("recovery", settings.recovery_checkpoint_interval, self._checkpoint_all_soon)
        self._every("retention", settings.retention_check_interval, self.sweep_retention)
        self._clean_every(settings.cleaner_interval)
        self._every("producers", settings.producer_check_interval, self.sweep_producers)

    def configure(self, settings: ReplicaManagerConfig) -> None:
        """What may change while the broker runs: how the cleaner works, and when producers are forgotten.
        The defaults of logs are not taken from here (log_manager/log_configs.py)."""
        before, self._settings = self._settings, settings
        self._cleaner.max_map_bytes = settings.cleaner_map_bytes
        if settings.cleaner_interval != before.cleaner_interval and "cleaner" in self._deadlines:
            self._deadlines["cleaner"].cancel()
            self._clean_every(settings.cleaner_interval)

    def _clean_every(self, interval: float | None) -> None:
        if interval is not None:
            self._every("cleaner", interval, lambda: self._spawn(self._cleaner.sweep()))

    def _every(self, name: str, interval: float, work: Callable[[], object]) -> None:
        def run() -> None:
            if not self._closed:
                self._deadlines[name] = self._timer.call_later(interval, run)
                work()

        self._deadlines[name] = self._timer.call_later(interval, run)

    async def close(self, broker_epoch: int = -1) -> None:
        """Clean shutdown: everything flushed, checkpointed and marked as clean."""
        self._closed = True
        for deadline in self._deadlines.values():
            deadline.cancel()
        await self.moves.close()
        await self._alter_partition.close()
        if self._assignments is not None:
            await self._assignments.close()
        for waiter in self._before_cuts:
            waiter.cancel()
        if self._background:
            await asyncio.gather(*self._background, return_exceptions=True)
        for partition in self:
            if not partition.offline:
                partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for directory in self._dirs:
            if directory.online:
                await self._blocking(partial(self._close_dir, directory, broker_epoch))

    def _close_dir(self, directory: LogDir, broker_epoch: int, may_block: MayBlock) -> None:
        logs, hws = self._logs_in(directory)
        try:
            certain = [log for log in logs.values() if not log.inconsistent]
            for log in certain:
                log.close_clean(may_block)
            directory.checkpoint(may_block, hws, *_offsets_of(logs))
            if len(certain) == len(logs):  # what is in doubt has to be recovered
                directory.mark_clean(broker_epoch, may_block)
        except OSError as e:
            logger.error("Log directory %s could not be closed cleanly: %s", directory.path, e)

    # --- metadata -----------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> LocalReplicaChanges:
        """Take committed metadata. Never raises for a partition that cannot be served here."""
        changes = LocalReplicaChanges()
        if delta.changed_configs:
            bounded(self._loop, "the change of configurations", self._configure, delta, image)
        self._brokers = image.brokers
        bounded(self._loop, "the change of brokers", self._take_brokers, delta)
        for topic_id in delta.deleted_topics:
            self._unclaimed.forget(topic_id)
            topic = delta.image.topics_by_id.get(topic_id)
            if topic is not None:
                changes.removed += self.remove([(topic_id, number) for number in topic.partitions])
        for topic_id, partitions in delta.changed_partitions.items():
            name = image.topics_by_id[topic_id].name
            for number, registration in partitions.items():
                tp = TopicPartition(name, number)
                try:
                    self._take_partition(tp, topic_id, registration, image, changes)
                except Exception as error:  # noqa: BLE001
                    self._give_up_change(tp, topic_id, error)
        if delta.changed_brokers:
            now = self._loop.time()
            for partition in self:
                bounded(self._loop, f"the ISR of {partition.tp}", partition.maybe_expand_isr, now)
        self._sync_created_soon()
        return changes

    def remove(self, gone: Iterable[tuple[UUID, int]]) -> list[Partition]:
        """Their topics are deleted; those that were here."""
        changes = LocalReplicaChanges()
        for key in gone:
            partition = self._by_id.get(key)
            if partition is not None:
                bounded(self._loop, f"the removal of {partition.tp}", self._remove, partition, changes)
        return changes.removed

    def _configure(self, delta: MetadataDelta, image: MetadataImage) -> None:
        topics = self._configs.changed_by(delta, image)
        for partition in self:
            if topics is None or partition.tp.topic in topics:
                config = self._configs.of(image, partition.tp.topic)
                bounded(self._loop, f"the configuration of {partition.tp}", partition.configure, config)

    def _give_up_change(self, tp: TopicPartition, topic_id: UUID, error: Exception) -> None:
        """What the metadata says of a partition could not be put into action."""
        partition = self._by_name.get(tp)
        if partition is not None:
            self.give_up(partition, "the change", error)
        else:
            report_fault(self._loop, f"the making of {tp}, which is offline,", error)
            again = isinstance(error, OSError)  # not of the disk: that ends with the directory
            self._unclaimed.give_up(tp, topic_id, f"{tp} could not be made: {error}", again=again)
            self._report_lost(topic_id, tp)

    @property
    def to_make_again(self) -> bool:
        """Whether there are partitions for which the process had no file left."""
        return self._unclaimed.to_make_again

    def make_again(self, image: MetadataImage) -> MetadataDelta:
        """These, as if they were new."""
        delta = MetadataDelta(image)
        for topic_id, number in self._unclaimed.make_again():
            topic = image.topics_by_id.get(topic_id)
            if topic is not None and number in topic.partitions:
                delta.changed_partitions.setdefault(topic_id, {})[number] = topic.partitions[number]
        return delta

    def logs_to_create(self, delta: MetadataDelta, image: MetadataImage) -> CreatedLogs | None:
        """The logs of so many new partitions that `apply` would hold up the loop: to be made before it."""
        made: list[NewLog] = []
        held = Counter(self._dir_of.values())
        for topic_id, partitions in delta.changed_partitions.items():
            topic = image.topics_by_id[topic_id].name
            config = self._configs.of(image, topic)
            for number, registration in partitions.items():
                tp = TopicPartition(topic, number)
                if (
                    self.broker_id not in registration.replicas
                    or tp in self._by_name
                    or tp in self._unclaimed
                ):
                    continue
                self._unclaimed.suspect(tp, registration)
                directory = self._directory_for(tp, held)
                if directory is not None and not self._unclaimed.is_offline(tp, topic_id):
                    held[directory] += 1
                    made.append(NewLog(tp, topic_id, config, directory))
        return CreatedLogs(made, self._now_ms()) if len(made) > CREATED_ON_LOOP else None

    def add_created(self, made: CreatedLogs) -> None:
        """They lie ready for `apply` to claim them."""
        for new, log in made.logs:
            if new.directory.online:
                self._unclaimed.put(new.tp, UnclaimedLog(log, new.topic_id, new.directory))
                self._unsynced.setdefault(new.directory, []).append(log)

    def remove_stray_replicas(self, image: MetadataImage) -> None:
        """Set aside what lies on disk though the metadata, now complete, does not place it here."""
        for tp in self._unclaimed:
            stray = None if self._placed_here(tp, image) else self._unclaimed.take(tp)
            if stray is not None:
                logger.warning("%s is no replica of this broker any longer; set aside", tp)
                self._set_aside(tp, stray.log, stray.directory, "stray")
        for directory in self._dirs:
            for tp in [tp for tp in directory.unfinished if tp not in self._by_name]:
                self._run_blocking(
                    directory, partial(directory.disk.remove_tree, directory.unfinished.pop(tp))
                )
        self._sync_created_soon()

    def _placed_here(self, tp: TopicPartition, image: MetadataImage) -> bool:
        registration = image.partition(tp)
        return registration is not None and self.broker_id in registration.replicas

    def _take_brokers(self, delta: MetadataDelta) -> None:
        for broker_id, broker in delta.changed_brokers.items():
            if broker is not None and broker.active:
                self._eligible[broker_id] = broker.broker_epoch
            else:
                self._eligible.pop(broker_id, None)

    def _take_partition(
        self,
        tp: TopicPartition,
        topic_id: UUID,
        registration: PartitionRegistration,
        image: MetadataImage,
        changes: LocalReplicaChanges,
    ) -> None:
        partition = self._by_name.get(tp)
        if partition is not None and partition.topic_id != topic_id:
            self._remove(partition, changes)
            partition = None
        if self.broker_id not in registration.replicas:
            if partition is not None:
                self._remove(partition, changes, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if partition is None:
            self._unclaimed.suspect(tp, registration)
            partition = self._create(tp, topic_id, self._configs.of(image, tp.topic))
        if partition is not None:
            self._report_place(partition, registration)
        if partition is None or partition.offline:
            return
        if registration.leader == self.broker_id:
            try:
                if partition.become_leader(registration, self._loop.time()):
                    changes.leading.append(partition)
            except BrokerError as e:
                logger.error("%s cannot lead: %s", tp, e)
        elif partition.become_follower(registration):
            changes.following.append(partition)

    def _report_lost(self, topic_id: UUID, tp: TopicPartition) -> None:
        if self._assignments is not None:
            self._assignments.assign(ReplicaAssignment(topic_id, tp.partition, LOST_DIR))

    def _report_place(self, partition: Partition, registration: PartitionRegistration) -> None:
        """Tell the controller where the replica lies, where it does not know."""
        if self._assignments is None:
            return
        # A replica that was given up serves nobody until the next start: another is to lead.
        directory = LOST_DIR if partition.log.inconsistent else self._dir_of[partition].directory_id
        if registration.directory(self.broker_id) == directory:
            self._assignments.cancel_assignment(partition.topic_id, partition.tp.partition)
        else:
            self._assignments.assign(ReplicaAssignment(partition.topic_id, partition.tp.partition, directory))

    def _create(self, tp: TopicPartition, topic_id: UUID, config: LogConfig) -> Partition | None:
        high_watermark = 0
        found = self._unclaimed.take(tp)
        if found is not None and not found.belongs_to(topic_id):
            self._set_aside(tp, found.log, found.directory, "delete")
            found = None
        if found is not None:
            log, directory = found.log, found.directory
            log.config = config
            high_watermark = directory.high_watermarks.get(tp, 0)
        elif self._unclaimed.is_offline(tp, topic_id):
            return None
        elif (made := self._make_log(tp, topic_id, config)) is not None:
            log, directory = made
        else:
            return None
        if log.topic_id is None:
            log.topic_id, log.unidentified = topic_id, True
        if log.unidentified:
            self._unsynced.setdefault(directory, []).append(log)
        partition = Partition(tp, topic_id, log, self, high_watermark)
        self._by_name[tp] = partition
        self._by_id[topic_id, tp.partition] = partition
        self._dir_of[partition] = directory
        self._chosen_dirs.pop(tp, None)
        self._resume_move(partition)
        return partition

    def _make_log(
        self, tp: TopicPartition, topic_id: UUID, config: LogConfig
    ) -> tuple[UnifiedLog, LogDir] | None:
        """A new log in the directory that was chosen for it, or else in the one with the fewest partitions,
        of those that work."""
        while (directory := self._directory_for(tp, Counter(self._dir_of.values()))) is not None:
            try:
                return directory.open_log(tp, topic_id, config, self._now_ms(), NEW_LOG), directory
            except OSError as e:
                if not is_of_disk(e):
                    raise
                self.fail_log_dir(directory, e)
            except (BrokerError, LogCorruptError) as e:
                logger.error("%s cannot be opened: %s", tp, e)
                return None
        return None

    def _directory_for(self, tp: TopicPartition, held: Mapping[LogDir, int]) -> LogDir | None:
        chosen = self._chosen_dirs.get(tp)
        if chosen is not None and chosen.online:
            return chosen
        online = [each for each in self._dirs if each.online]
        return min(online, key=lambda each: held.get(each, 0), default=None)

    def _remove(
        self,
        partition: Partition,
        changes: LocalReplicaChanges,
        error: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ) -> None:
        """The replica goes, with its files; `error` is for those who wait for it."""
        partition.removed = True
        self.moves.cancel(partition)
        partition.stop(error)
        del self._by_name[partition.tp]
        del self._by_id[partition.topic_id, partition.tp.partition]
        directory = self._dir_of.pop(partition)
        if self._assignments is not None:
            self._assignments.cancel_assignment(partition.topic_id, partition.tp.partition)
        changes.removed.append(partition)
        if directory.online:
            self._set_aside(partition.tp, partition.log, directory, "delete")

    def _set_aside(self, tp: TopicPartition, log: UnifiedLog, directory: LogDir, suffix: str) -> None:
        try:
            log.close()
        except OSError as e:
            if self.dir_error(directory, e):
                return
        self._let_go(tp, log, directory, suffix)

    def _let_go(self, tp: TopicPartition, log: UnifiedLog, directory: LogDir, suffix: str) -> None:
        try:
            path = directory.set_aside(tp, log, UUID(int=self._rng.getrandbits(128)), suffix)
        except OSError as e:
            self.dir_error(directory, e)
            return
        self._checkpoints_stale = True
        self._unsynced.setdefault(directory, [])
        if suffix == "delete":
            remove = partial(directory.disk.remove_tree, path)
            delay = log.config.file_delete_delay_ms / 1000
            self._timer.call_later(delay, partial(self._run_blocking, directory, remove))

    # --- periodic work ------------------------------------------------------------------------

    def maybe_shrink_isr(self) -> None:
        """Drop laggards from the ISRs (every half of replica.lag.time.max.ms)."""
        now = self._loop.time()
        for partition in self:
            bounded(self._loop, f"the ISR of {partition.tp}", partition.maybe_shrink_isr, now)

    def sweep_retention(self) -> None:
        """Roll and delete by time and size."""
        now_ms = self._now_ms()
        for partition in list(self):
            directory = self._dir_of[partition]
            if not partition.offline and directory.online:
                bounded(
                    self._loop, f"retention of {partition.tp}", self._retain, partition, directory, now_ms
                )

    def _retain(self, partition: Partition, directory: LogDir, now_ms: int) -> None:
        try:
            partition.log.maybe_roll(now_ms)
            start_before = partition.log.log_start_offset
            deletions = partition.log.delete_old_segments(now_ms, partition.high_watermark)
        except (OSError, InconsistentLogError) as e:
            self.storage_failed(partition, e)
            return
        if partition.log.log_start_offset != start_before:
            partition.log_start_moved()
        self.delete_files(partition, deletions)

    def compacted(self) -> list[Partition]:
        """Those that the cleaner may look at; not while a copy is being made, which it would overtake."""
        return [
            p
            for p in self
            if p.log.config.compact and not p.offline and p.move is None and self._dir_of[p].online
        ]

    def sweep_producers(self) -> None:
        """Forget producers that have been silent for long."""
        now_ms = self._now_ms()
        limit_ms = self._settings.producer_expiration_ms
        for partition in self:
            expire = partition.log.producers.expire
            bounded(self._loop, f"the producers of {partition.tp}", expire, now_ms, limit_ms)

    async def checkpoint(self, *, everything: bool = False) -> None:
        """Write the high watermarks and log starts, and with `everything` recovery points too."""
        await self._checkpoint(everything=everything)

    async def _checkpoint(self, *, everything: bool) -> bool:
        """Whether it is done wherever the directory has not failed."""
        written = True
        # One at a time: two would take each other's temporary files away.
        async with self._checkpointing:
            for directory in self._dirs:
                if not directory.online:
                    continue
                logs, hws = self._logs_in(directory)
                # Log starts move by DeleteRecords too, which must survive the next crash.
                points, starts, cleaned_to = _offsets_of(logs)
                write = partial(
                    _checkpoint_in, directory, hws, points if everything else None, starts, cleaned_to
                )
                try:
                    await self._blocking(write)
                except OSError as e:
                    if not self.dir_error(directory, e):
                        self._checkpoints_stale, written = True, False
        return written

    def _logs_in(
        self, directory: LogDir
    ) -> tuple[dict[TopicPartition, UnifiedLog], dict[TopicPartition, int]]:
        """The logs that lie there, with their high watermarks; also those that no metadata has claimed
        yet, for the checkpoints must not forget them meanwhile."""
        logs = self._unclaimed.in_dir(directory)
        hws = {tp: hw for tp, hw in directory.high_watermarks.items() if tp in logs}
        for partition, its_dir in self._dir_of.items():
            if its_dir is directory:
                logs[partition.tp] = partition.log
                hws[partition.tp] = partition.high_watermark
        return logs, hws

    def _sync_created_soon(self) -> None:
        """What was made and renamed becomes durable. And a new topic may get the name of a removed one: the
        checkpoints must not let it begin with that one's offsets; nor let a start trust in a log that was cut
        more than is durable."""
        if self._closed:
            return
        if self._unsynced or self._checkpoints_stale:
            self._spawn(self._sync_created())

    async def _sync_created(self) -> None:
        # One after another, the checkpoints first: a log that is said to be known to them must not find there
        # what was written of an older one.
        async with self._syncing:
            if self._checkpoints_stale:
                self._checkpoints_stale = False
                await self._checkpoint_before_cuts()
            if self._checkpoints_stale:  # again: whoever has made them so settles the rest
                return
            unsettled, self._unsynced = self._unsynced, {}
            for directory, new in unsettled.items():
                if not directory.online:
                    continue
                failed: Mapping[UnifiedLog, OSError]
                try:
                    failed = await self._blocking(partial(_sync_created_in, directory, new))
                except OSError as e:
                    failed = dict.fromkeys(new, e)
                    if not new:
                        self._unsynced.setdefault(directory, [])
                        self.dir_error(directory, e)
                for log, error in failed.items():
                    if not self.dir_error(directory, error):
                        self._unsynced.setdefault(directory, []).append(log)
            if self._unsynced:
                self._timer.call_later(RETRY_S, self._sync_created_soon)

    async def _checkpoint_before_cuts(self) -> None:
        waiters, self._before_cuts = self._before_cuts, []
        written = False
        try:
            written = await self._checkpoint(everything=True)
        finally:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(written)

    def _checkpoint_soon(self) -> None:
        self._spawn(self.checkpoint())

    def _checkpoint_all_soon(self) -> None:
        self._checkpoints_stale = True
        self._sync_created_soon()

    def _run_blocking(self, directory: LogDir, work: Callable[[MayBlock], None]) -> None:
        async def run() -> None:
            try:
                await self._blocking(work)
            except OSError as e:
                self.dir_error(directory, e)

        if directory.online and not self._closed:
            self._spawn(run())

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = supervised(self._loop, work, "work of the partitions")
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


class NewLog(NamedTuple):
    """The log of a partition that is new here, and where it is to lie."""

    tp: TopicPartition
    topic_id: UUID
    config: LogConfig
    directory: LogDir


class CreatedLogs:
    """Work for the executor. What cannot be made here is tried, and judged, again by `apply`."""

    def __init__(self, new: Sequence[NewLog], now_ms: int) -> None:
        self._new = new
        self._now_ms = now_ms
        self.logs: list[tuple[NewLog, UnifiedLog]] = []

    def run(self, may_block: MayBlock) -> None:
        for new in self._new:
            with contextlib.suppress(OSError, BrokerError, LogCorruptError):
                log = new.directory.open_log(new.tp, new.topic_id, new.config, self._now_ms, may_block)
                self.logs.append((new, log))


def _checkpoint_in(
    directory: LogDir,
    high_watermarks: Mapping[TopicPartition, int],
    recovery_points: Mapping[TopicPartition, int] | None,
    log_starts: Mapping[TopicPartition, int],
    cleaned_to: Mapping[TopicPartition, int],
    may_block: MayBlock,
) -> None:
    directory.checkpoint(may_block, high_watermarks, recovery_points, log_starts, cleaned_to)


def _sync_created_in(
    directory: LogDir, new: Sequence[UnifiedLog], may_block: MayBlock
) -> Mapping[UnifiedLog, OSError]:
    """Each log for itself; those of which it could not be done. What is identified has a durable name."""
    directory.disk.sync_dir(directory.path, may_block)
    failed: dict[UnifiedLog, OSError] = {}
    for log in new:
        try:
            log.identify(may_block)
        except OSError as error:
            failed[log] = error
    return failed


def _offsets_of(
    logs: Mapping[TopicPartition, UnifiedLog],
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Recovery points, log start offsets, and how far they are compacted."""
    points = {tp: log.recovery_point for tp, log in logs.items()}
    starts = {tp: log.log_start_offset for tp, log in logs.items() if log.log_start_offset > 0}
    cleaned_to = {tp: log.cleaned_to for tp, log in logs.items() if log.cleaned_to > 0}
    return points, starts, cleaned_to
