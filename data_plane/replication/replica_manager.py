"""All replicas of a broker: where produces and fetches find them, and what is done to them from time to time.

    api/produce, fetch/*      -> get, get_by_id -> Partition
    metadata_publisher        -> applier (delta_applier.py)
    api/log_dirs              -> move, logs, moves
    timer                     -> ISR checks, checkpoints, retention, compaction, expiry of producers

It makes the parts below and holds them together; each has its own subject:

    registry, applier         which partitions are here; committed metadata is applied to them
    failures                  what a failed disk or a bug takes offline
    moves, isr_requests       copies to other log directories; ISR changes on their way to the controller
    logs, checkpoints,        log_manager/: the logs and their directories
    executor, sweeps, cleaner
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from data_plane.log.cleaner import DEFAULT_MAP_BYTES
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log.producers import DEFAULT_EXPIRATION_MS
from data_plane.log_manager.background_work import BackgroundWork
from data_plane.log_manager.checkpoint_writer import CheckpointWriter
from data_plane.log_manager.log_cleaner import LogCleaner
from data_plane.log_manager.log_configs import LogConfigs
from data_plane.log_manager.log_dir_failures import LogDirFailureListener, LogDirFailures
from data_plane.log_manager.log_dirs import LogDir
from data_plane.log_manager.log_executor import LogExecutor
from data_plane.log_manager.log_manager import LogManager
from data_plane.log_manager.log_sweeps import LogSweeps
from data_plane.purgatory.completion_turns import CompletionTurns
from data_plane.purgatory.timing_wheel import Deadline, WheelTimer
from data_plane.quotas.replication import ReplicationQuota
from data_plane.replication.alive_brokers import AliveBrokers
from data_plane.replication.broker_topic_stats import BrokerTopicStats
from data_plane.replication.delta_applier import DeltaApplier
from data_plane.replication.directory_assignments import (
    AssignmentsManager,
    DirectoryChannel,
    ReplicaAssignment,
)
from data_plane.replication.isr_requests import (
    AlterPartitionManager,
    IsrChannel,
    IsrRequester,
    IsrStats,
)
from data_plane.replication.partition import Partition
from data_plane.replication.partition_context import PartitionContext
from data_plane.replication.partition_registry import PartitionRegistry
from data_plane.replication.replica_failures import FailureHandler
from data_plane.replication.replica_moves import ReplicaMoves
from metadata_quorum.foundation.blocking import Blocking
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.supervision import bounded


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
        on_log_dir_failed: LogDirFailureListener | None = None,
        directory_channel: DirectoryChannel | None = None,
        moves_quota: ReplicationQuota | None = None,
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._timer = timer
        self._deadlines: dict[str, Deadline] = {}
        self._isr_requests = AlterPartitionManager(isr_channel, loop)
        self._unsettled: dict[IsrRequester, None] = {}
        self._assignments = None if directory_channel is None else AssignmentsManager(directory_channel, loop)
        self.log_dir_failures = LogDirFailures(loop)
        self.background = BackgroundWork(loop, timer, blocking, self.log_dir_failures)
        self._build_logs(settings, log_dirs, rng, now_ms)
        self._build_replicas(settings, rng, now_ms, moves_quota or ReplicationQuota())
        if on_log_dir_failed is not None:
            self.log_dir_failures.subscribe(on_log_dir_failed)

    def _build_logs(
        self,
        settings: ReplicaManagerConfig,
        log_dirs: Sequence[LogDir],
        rng: random.Random,
        now_ms: Callable[[], int],
    ) -> None:
        background = self.background
        configs = LogConfigs(settings.broker_id, settings.log_defaults)
        self.logs = LogManager(log_dirs, configs, self.log_dir_failures, background, rng, now_ms)
        self.checkpoints = CheckpointWriter(self.logs, background, self.log_dir_failures)
        self.failures = FailureHandler(self.logs, self.log_dir_failures, self._assignments, self._loop)
        self.executor = LogExecutor(self.logs, self.checkpoints, background, self.failures)
        self.sweeps = LogSweeps(self.logs, self.executor, background, self.failures, now_ms)
        self.cleaner = LogCleaner(
            self.logs,
            self.executor,
            self.checkpoints,
            background,
            self.failures,
            now_ms,
            settings.cleaner_map_bytes,
        )

    def _build_replicas(
        self,
        settings: ReplicaManagerConfig,
        rng: random.Random,
        now_ms: Callable[[], int],
        moves_quota: ReplicationQuota,
    ) -> None:
        self.moves = ReplicaMoves(
            self.logs,
            self.log_dir_failures,
            self.failures,
            self.background,
            now_ms,
            rng,
            moves_quota,
            on_complete=self._moved,
        )
        self._registry = PartitionRegistry(self.logs.unclaimed)
        self.topic_stats = BrokerTopicStats()
        context = PartitionContext(
            settings.broker_id,
            settings.lag_time_max,
            AliveBrokers(),
            self._isr_requests,
            self.executor,
            self.failures,
            self.topic_stats,
            self.logs.uncheckpointed,
            self._unsettled,
            CompletionTurns(self._loop),
        )
        self.applier = DeltaApplier(
            self._registry,
            self.logs,
            self.checkpoints,
            self.background,
            context,
            self.moves,
            self._assignments,
            now_ms,
        )
        # Every produce and fetch calls these: no call of ours in between.
        self.get = self._registry.get
        self.get_by_id = self._registry.get_by_id

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._registry)

    def __len__(self) -> int:
        return len(self._registry)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._registry

    @property
    def isr_stats(self) -> IsrStats:
        return self._isr_requests.stats

    # --- log directories ----------------------------------------------------------------------

    def move(self, tp: TopicPartition, path: str) -> None:
        """Move a replica to another of this broker's log directories, or choose the directory of a replica
        that is not here yet (AlterReplicaLogDirs). Raises BrokerError: LOG_DIR_NOT_FOUND,
        KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION."""
        directory = self.logs.dir_at(path)
        if directory is None:
            raise BrokerError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not among log.dirs")
        if not directory.online:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {path} is offline")
        partition = self._registry.find(tp)
        if partition is None:
            self.logs.prefer_dir(tp, directory)
            self.get(*tp)
        elif partition.offline:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp}: its log directory is offline")
        elif not self.moves.begin(partition, directory):
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} cannot be copied to {path}")

    def _moved(self, partition: Partition, log: UnifiedLog, directory: LogDir) -> None:
        """`log`, a complete copy of the replica's log, takes its place."""
        self.logs.replace(partition, log, directory)
        if self._assignments is not None:
            self._assignments.assign(
                ReplicaAssignment(partition.topic_id, partition.tp.partition, directory.directory_id)
            )
        self.checkpoints.sync_soon()
        self.executor.flush(partition)

    # --- periodic work ------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the periodic work."""
        settings = self._settings
        self._every("isr", settings.lag_time_max / 2, self.maybe_shrink_isr)
        self._every("hw", settings.high_watermark_checkpoint_interval, self.checkpoints.write_soon)
        self._every("recovery", settings.recovery_checkpoint_interval, self.checkpoints.write_all_soon)
        self._every("retention", settings.retention_check_interval, self.sweeps.apply_retention)
        self._clean_every(settings.cleaner_interval)
        self._every("producers", settings.producer_check_interval, self.expire_producers)

    def configure(self, settings: ReplicaManagerConfig) -> None:
        """Take what may change while the broker runs: the cleaner's settings, and when producers expire.
        (The defaults of logs come from the metadata: log_manager/log_configs.py.)"""
        before, self._settings = self._settings, settings
        self.cleaner.max_map_bytes = settings.cleaner_map_bytes
        if settings.cleaner_interval != before.cleaner_interval and "cleaner" in self._deadlines:
            self._deadlines["cleaner"].cancel()
            self._clean_every(settings.cleaner_interval)

    def maybe_shrink_isr(self) -> None:
        """Drop laggards from the ISRs (every half of replica.lag.time.max.ms). Those that are settled are not
        looked at: idle partitions cost nothing."""
        now = self._loop.time()

        def shrink(partition: IsrRequester) -> None:
            bounded(self._loop, f"the ISR of {partition.tp}", partition.maybe_shrink_isr, now)
            if partition.is_settled:
                self._unsettled.pop(partition, None)

        self.background.sweep(self._unsettled, shrink)

    def expire_producers(self) -> None:
        self.sweeps.expire_producers(self._settings.producer_expiration_ms)

    def _clean(self) -> None:
        self.background.spawn(self.cleaner.sweep())

    def _clean_every(self, interval: float | None) -> None:
        if interval is not None:
            self._every("cleaner", interval, self._clean)

    def _every(self, name: str, interval: float, work: Callable[[], object]) -> None:
        def run() -> None:
            if not self.background.closed:
                self._deadlines[name] = self._timer.call_later(interval, run)
                work()

        self._deadlines[name] = self._timer.call_later(interval, run)

    # --- shutdown -----------------------------------------------------------------------------

    async def close(self, broker_epoch: int = -1) -> None:
        """Clean shutdown: everything is flushed, checkpointed and marked as clean."""
        self.background.closed = True
        for deadline in self._deadlines.values():
            deadline.cancel()
        await self.moves.close()
        await self._isr_requests.close()
        if self._assignments is not None:
            await self._assignments.close()
        self.checkpoints.close()
        self.cleaner.close()
        await self.background.drain()
        for partition in self._registry:
            if not partition.offline:
                partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await self.checkpoints.write_clean_shutdown(broker_epoch)
