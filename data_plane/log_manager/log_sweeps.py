"""What is done to every log from time to time on the loop, some of them a turn: retention, and expiry of idle
producers.

Beside the data's way: replica_manager's timer -> here -> log. Compaction is log_cleaner.py's.
"""

from __future__ import annotations

from collections.abc import Callable

from data_plane.log.consistency import InconsistentLogError
from data_plane.log.retention import delete_old_segments
from data_plane.log_manager.background_work import BackgroundWork
from data_plane.log_manager.local_replica import LocalReplica, ReplicaFailures
from data_plane.log_manager.log_executor import LogExecutor
from data_plane.log_manager.log_manager import LogManager
from metadata_quorum.foundation.supervision import bounded


class LogSweeps:
    """Those over the logs of one broker; a fault in one log ends that log's turn only."""

    def __init__(
        self,
        logs: LogManager,
        executor: LogExecutor,
        background: BackgroundWork,
        failures: ReplicaFailures,
        now_ms: Callable[[], int],
    ) -> None:
        self._logs = logs
        self._executor = executor
        self._background = background
        self._loop = background.loop
        self._failures = failures
        self._now_ms = now_ms

    def apply_retention(self) -> None:
        """Roll segments, and delete old ones by time and size (log.retention.check.interval.ms)."""
        now_ms = self._now_ms()

        def retain(replica: LocalReplica) -> bool | None:
            if replica.removed or replica.offline or not self._logs.dir_of(replica).online:
                return False
            return bounded(self._loop, f"retention of {replica.tp}", self._retain, replica, now_ms)

        self._background.sweep(self._logs.replicas, retain)

    def _retain(self, replica: LocalReplica, now_ms: int) -> bool:
        """Whether files were made or renamed."""
        try:
            rolled = replica.log.maybe_roll(now_ms)
            start_before = replica.log.log_start_offset
            deletions = delete_old_segments(replica.log, now_ms, replica.high_watermark)
        except (OSError, InconsistentLogError) as e:
            self._failures.storage_failed(replica, e)
            return False
        if replica.log.log_start_offset != start_before:
            replica.log_start_moved()
        self._executor.delete_files(replica, deletions)
        return rolled or bool(deletions)

    def expire_producers(self, limit_ms: int) -> None:
        """Forget producers that have written nothing for `limit_ms` (producer.id.expiration.ms)."""
        now_ms = self._now_ms()

        def expire(replica: LocalReplica) -> None:
            of_log = replica.log.producers.expire
            bounded(self._loop, f"the producers of {replica.tp}", of_log, now_ms, limit_ms)

        self._background.sweep(self._logs.replicas, expire)
