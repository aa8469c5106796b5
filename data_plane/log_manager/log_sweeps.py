"""Periodic work on every log, on the loop, some logs per turn: retention, and expiry of idle producers.

Off the path of the data: replica_manager's timer -> here -> log. Compaction is in log_cleaner.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from data_plane.log.consistency import InconsistentLogError
from data_plane.log.retention import delete_old_segments, is_of_unknown_age
from data_plane.log_manager.background_work import BackgroundWork
from data_plane.log_manager.local_replica import LocalReplica, ReplicaFailures
from data_plane.log_manager.log_executor import LogExecutor
from data_plane.log_manager.log_manager import LogManager
from metadata_quorum.foundation.disk import is_gone
from metadata_quorum.foundation.supervision import bounded

PRODUCERS_PER_TURN: Final = 20_000
"""Of all logs together; each takes a fraction of a microsecond."""


class LogSweeps:
    """The sweeps over the logs of one broker; a fault in one log ends only that log's turn."""

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
        self._of_unknown_age: dict[LocalReplica, None] = {}
        """Whose oldest segment nobody has looked at since the start; a set has no order."""

    def apply_retention(self) -> None:
        """Roll segments, and delete old ones by time and size (log.retention.check.interval.ms)."""
        now_ms = self._now_ms()

        def retain(replica: LocalReplica) -> bool | None:
            if not self._is_used(replica):
                return False
            there_is_more = bounded(self._loop, f"retention of {replica.tp}", self._retain, replica, now_ms)
            if not there_is_more and is_of_unknown_age(replica.log):
                if not self._of_unknown_age:
                    self._background.spawn(self._look_up_ages(retain))
                self._of_unknown_age[replica] = None
            return there_is_more

        self._background.sweep(self._logs.replicas, retain)

    def _is_used(self, replica: LocalReplica) -> bool:
        return not replica.removed and not replica.offline and self._logs.dir_of(replica).online

    async def _look_up_ages(self, retain: Callable[[LocalReplica], bool | None]) -> None:
        """Beside the loop, one after another: what an old segment's index says is in no cache. Where it is
        too old, it is dropped, and the next one is looked at."""
        try:
            while self._of_unknown_age and not self._background.closed:
                replica = next(iter(self._of_unknown_age))
                try:
                    while self._is_used(replica) and is_of_unknown_age(log := replica.log):
                        await self._background.blocking(log.segments[0].look_up_age)
                        self._background.sweep([replica], retain)
                except OSError as error:
                    if not is_gone(error):  # dropped meanwhile
                        self._failures.storage_failed(replica, error, log.directory)
                self._of_unknown_age.pop(replica)
        finally:
            self._of_unknown_age.clear()

    def _retain(self, replica: LocalReplica, now_ms: int) -> bool:
        """Returns whether files were created or renamed."""
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
        looked_at = 0
        last_of_turn: LocalReplica | None = None

        def expire(replica: LocalReplica) -> bool:
            nonlocal looked_at, last_of_turn
            if replica is last_of_turn:  # the next turn begins with it
                return False
            of_log = replica.log.producers
            looked_at += len(of_log.states)
            bounded(self._loop, f"the producers of {replica.tp}", of_log.expire, now_ms, limit_ms)
            if looked_at < PRODUCERS_PER_TURN:
                return False
            looked_at, last_of_turn = 0, replica
            return True

        self._background.sweep(self._logs.replicas, expire)
