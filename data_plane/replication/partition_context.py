"""The port through which a partition reaches the broker that keeps it: replica_manager.py, or a test's world.

What a partition decides is carried out here: asking the controller, flushing, removing files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from data_plane.log.consistency import InconsistentLogError
from data_plane.log.cut import CutWork
from data_plane.log.effects import Deletion
from data_plane.replication.leader_state import AlterPartitionItem

if TYPE_CHECKING:
    from data_plane.replication.partition import Partition


class FutureReplica(Protocol):
    """A copy of the replica's log that is being made in another directory (replica_moves.py)."""

    def cut(self, offset: int) -> None:
        """The log is about to lose what it has from `offset` on."""


class PartitionHost(Protocol):
    """What a partition needs of the broker that keeps it (replica_manager.py)."""

    @property
    def broker_id(self) -> int: ...

    @property
    def eligible(self) -> Mapping[int, int]:
        """Brokers that may be in an ISR, and their epochs."""

    def has_online_dir(self, broker_id: int, directory: UUID) -> bool:
        """Whether that broker can serve from that directory, as far as is known."""

    @property
    def lag_time_max(self) -> float:
        """replica.lag.time.max.ms in seconds."""

    def submit_alter_partition(self, partition: Partition, item: AlterPartitionItem) -> None:
        """Send to the controller; the answer comes back through `handle_alter_partition_response`."""

    def flush(self, partition: Partition) -> None:
        """Make its log durable soon; `flushed` is called then."""

    def carry_out(
        self, partition: Partition, work: CutWork, cut: Callable[[bool], bool], done: Callable[[bool], None]
    ) -> None:
        """Run `work`, and make a checkpoint durable that knows the log's recovery point of now; tell `cut`
        whether that went well; make what it did durable, if it did; tell `done` whether. (Nothing more, where
        the broker ends meanwhile.)"""

    def delete_files(self, partition: Partition, deletions: Sequence[Deletion]) -> None:
        """Remove files of its log when they are due."""

    def storage_failed(self, partition: Partition, error: OSError | InconsistentLogError) -> None:
        """Take the log directory of `partition` offline if its disk has failed; else the partition alone, if
        its log is in doubt."""

    def fault(self, work: str, error: Exception) -> None:
        """Something that hangs on the partition has failed of a bug: tell the error boundary."""
