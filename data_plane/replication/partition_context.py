"""What a Partition needs of its broker: facts, and ports for what it decides but does not do itself.

The broker's implementations: AlterPartitionManager, log_manager/log_executor.py and replica_failures.py. The
simulator (chaos/sim/) has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from data_plane.log.deletion import Deletion
from data_plane.log_manager.local_replica import LocalReplica, ReplicaFailures
from data_plane.log_manager.truncation import Truncation
from data_plane.purgatory.completion_turns import CompletionTurns
from data_plane.replication.alive_brokers import AliveBrokers
from data_plane.replication.broker_topic_stats import BrokerTopicStats
from data_plane.replication.isr_requests import IsrRequester
from data_plane.replication.leader_state import AlterPartitionItem


class IsrRequests(Protocol):
    """The way of ISR changes to the controller."""

    def submit(self, partition: IsrRequester, item: AlterPartitionItem) -> None:
        """Send `item`; the answer comes back through `handle_alter_partition_response`."""


class LogWork(Protocol):
    """Work on a replica's log that waits for the disk; see log_manager/log_executor.py."""

    def flush(self, replica: LocalReplica) -> None:
        """Make its log durable soon; `flushed` is called then."""

    def truncate(self, truncation: Truncation) -> None:
        """Run it, write checkpoints with the log's present recovery point, truncate, make that durable; then
        it is `done` (not if the broker stops meanwhile)."""

    def delete_files(self, replica: LocalReplica, deletions: Sequence[Deletion]) -> None:
        """Remove files of its log when they are due."""


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """What all partitions of a broker share."""

    broker_id: int
    lag_time_max: float
    """replica.lag.time.max.ms, in seconds."""
    brokers: AliveBrokers
    isr_requests: IsrRequests
    log_work: LogWork
    failures: ReplicaFailures
    topic_stats: BrokerTopicStats = field(default_factory=BrokerTopicStats)
    uncheckpointed: dict[LocalReplica, None] = field(default_factory=dict)
    """Replicas with other offsets than the checkpoints have (log_manager/checkpoint_writer.py)."""
    unsettled: dict[IsrRequester, None] = field(default_factory=dict)
    """Leaders that were not settled (`is_settled`) when they were last looked at, or have changed since."""
    completion_turns: CompletionTurns | None = None
    """In which those are called back who waited for a partition; None: all at once."""
