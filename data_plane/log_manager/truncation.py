"""A follower's log is truncated to where it agrees with its leader's; one such truncation on its way.

    Partition.truncate_to -> Truncation -> LogExecutor: run (executor), checkpoints, truncate, flush, done

No checkpoint may claim what is truncated. Until that is durable the log refuses appends: where new bytes are
written over old ones, a loss of power may leave one page of these and one of those.
"""

from __future__ import annotations

from collections.abc import Callable

from data_plane.log.consistency import InconsistentLogError
from data_plane.log.truncation import TruncationWork
from data_plane.log_manager.local_replica import LocalReplica, ReplicaFailures
from metadata_quorum.foundation.blocking import MayBlock


class Truncation:
    """Whoever carries it out calls `run`, `truncate` and `done`, in this order."""

    def __init__(self, replica: LocalReplica, work: TruncationWork, done: Callable[[bool], None]) -> None:
        """`done` is called with whether the log was truncated, once that is durable."""
        self.replica = replica
        self.done = done
        self._work = work
        self._log = replica.log
        self._leader_epoch = replica.leader_epoch

    def run(self, may_block: MayBlock) -> None:
        """Read what the truncation needs (blocks). Raises OSError."""
        self._work.run(may_block)

    @property
    def log_path(self) -> str:
        return self._log.directory

    @property
    def ready(self) -> bool:
        """Whether `run` has found it."""
        return self._work.ready

    def truncate(self, ready: bool, failures: ReplicaFailures) -> bool:
        """Truncate, unless something came between. `ready`: `run` and the checkpoints have succeeded. Whether
        the log was truncated; then its `take_deletions` has files to delete."""
        replica, log = self.replica, self._log
        overtaken = replica.log is not log or replica.leader_epoch != self._leader_epoch or replica.is_leader
        if overtaken or replica.offline or replica.removed:
            return False
        if not ready:
            log.discard_truncation(self._work)
            return False
        try:
            if not log.truncate_to(self._work):
                return False
        except (OSError, InconsistentLogError) as e:
            log.discard_truncation(self._work)
            failures.storage_failed(replica, e)
            return False
        if replica.move is not None:
            replica.move.truncate(0 if self._work.restarts_empty else self._work.end)
        # A log that has restarted begins behind what was the high watermark.
        replica.high_watermark = max(min(replica.high_watermark, log.log_end_offset), log.log_start_offset)
        return True
