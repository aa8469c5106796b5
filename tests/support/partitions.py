"""Partitions without a broker: what they ask for is not done, what fails is raised."""

from __future__ import annotations

from collections.abc import Sequence

from data_plane.log.consistency import InconsistentLogError
from data_plane.log.deletion import Deletion
from data_plane.log_manager.local_replica import LocalReplica
from data_plane.log_manager.truncation import Truncation
from data_plane.replication.alive_brokers import AliveBrokers
from data_plane.replication.isr_requests import IsrRequester
from data_plane.replication.leader_state import AlterPartitionItem
from data_plane.replication.partition_context import PartitionContext


class NoIsrRequests:
    """A controller that never answers."""

    def submit(self, partition: IsrRequester, item: AlterPartitionItem) -> None: ...


class NoLogWork:
    """An executor that does nothing."""

    def flush(self, replica: LocalReplica) -> None: ...

    def truncate(self, truncation: Truncation) -> None: ...

    def delete_files(self, replica: LocalReplica, deletions: Sequence[Deletion]) -> None: ...


class RaisedFailures:
    """Failures end the test."""

    def storage_failed(
        self, replica: LocalReplica, error: OSError | InconsistentLogError, log_path: str = ""
    ) -> None:
        raise error

    def give_up(self, replica: LocalReplica, work: str, error: Exception) -> None:
        raise error

    def fault(self, work: str, error: Exception) -> None:
        raise error


def lone_context(broker_id: int = 1, lag_time_max: float = 30.0) -> PartitionContext:
    """Of a broker that is alive, and alone."""
    brokers = AliveBrokers()
    brokers.epochs[broker_id] = 1
    return PartitionContext(broker_id, lag_time_max, brokers, NoIsrRequests(), NoLogWork(), RaisedFailures())
