"""A replica as the keepers of its log see it: the port between log_manager/ and replication/.

`LocalReplica` is what a Partition shows of itself; `ReplicaFailures` is where the keepers report what goes
wrong with one (replication/replica_failures.py).
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from data_plane.log.consistency import InconsistentLogError
from data_plane.log.log import UnifiedLog
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition


class FutureReplica(Protocol):
    """A copy of a replica's log in another log directory, not complete yet (replication/replica_moves.py)."""

    def truncate(self, offset: int) -> None:
        """The replica's log is about to be truncated to `offset`."""

    def cancel(self) -> None:
        """Drop the copy."""


class LocalReplica(Protocol):
    """A replica of this broker, and its log."""

    tp: TopicPartition
    topic_id: UUID
    log: UnifiedLog
    high_watermark: int
    leader_epoch: int
    move: FutureReplica | None
    offline: bool
    removed: bool

    @property
    def is_leader(self) -> bool: ...

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def is_flush_due(self) -> bool:
        """Whether somebody waits for one, or so many records are not durable (flush.messages)."""

    def flushed(self, now: float) -> None:
        """The log is durable up to its recovery point. `now` in seconds of the loop."""

    def after_truncation(self) -> None:
        """The log was truncated, or a prepared truncation was discarded."""

    def log_start_moved(self) -> None:
        """The log start offset is higher now."""

    def stop(self, error: ErrorCode) -> None:
        """The replica serves nobody any longer; requests that wait at it get `error`."""


class ReplicaFailures(Protocol):
    """What becomes of a replica whose log or whose work has failed."""

    def storage_failed(
        self, replica: LocalReplica, error: OSError | InconsistentLogError, log_path: str = ""
    ) -> None:
        """Take the log directory of `replica` offline if its disk has failed, or else the replica alone if
        its log is inconsistent. `log_path`: of the log that was read or flushed, if that took a while: the
        replica may have moved to another log directory meanwhile, which has not failed."""

    def give_up(self, replica: LocalReplica, work: str, error: Exception) -> None:
        """Take the replica alone offline: a bug in `work` has left its state in doubt."""

    def fault(self, work: str, error: Exception) -> None:
        """Report a bug that ends `work` and nothing else."""
