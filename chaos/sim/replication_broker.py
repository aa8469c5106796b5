"""One broker of a simulated partition: its replica, and the ports that the replica asks for.

Its disk outlives its process. Flushes are left out, since here nothing loses its page cache; truncations and
deletions are done at once; ISR changes wait in `asked` until the world lets one reach the controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from chaos.sim.disk import SimDisk
from data_plane.log.config import LogConfig
from data_plane.log.consistency import InconsistentLogError
from data_plane.log.deletion import Deletion
from data_plane.log.load import load
from data_plane.log.log import UnifiedLog
from data_plane.log_manager.local_replica import LocalReplica
from data_plane.log_manager.truncation import Truncation
from data_plane.purgatory.timing_wheel import TimerHandle
from data_plane.replication.alive_brokers import AliveBrokers
from data_plane.replication.isr_requests import IsrRequester
from data_plane.replication.leader_state import AlterPartitionItem
from data_plane.replication.partition import Partition
from data_plane.replication.partition_context import PartitionContext
from fetch.follower import FollowerRules
from fetch.messages import FetchedPartition
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import NO_EPOCH, NO_LEADER, PartitionRegistration, TopicPartition

TP: Final = TopicPartition("simulated", 0)
TOPIC_ID: Final = UUID(int=77)
SIMULATED: Final = MayBlock("time stands still")
LAG_TIME_MAX: Final = 10.0
BATCH_MS: Final = 1_700_000_000_000


class SimClock:
    """Time that stands still until it is moved; stands in for the event loop's timer."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: object, /) -> TimerHandle:
        return _NoTimer()

    def call_exception_handler(self, context: dict[str, Any], /) -> None:
        raise context["exception"]


class _NoTimer:
    def cancel(self) -> None:
        """Deadlines of produces never come here: what is late stays unknown."""


class SimBroker:
    """See the module."""

    def __init__(self, broker_id: int, clock: SimClock, rules: FollowerRules, min_insync: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = 0
        self.disk = SimDisk()
        self.partition: Partition | None = None
        self.known = -1  # the last registration of the controller's history that it has seen
        self.checkpointed_high_watermark = 0
        self.wiped_in = NO_EPOCH  # the leader epoch in which its replica was last taken away
        self.asked: list[AlterPartitionItem] = []
        self.answer: tuple[int, FetchedPartition] | None = None  # on its way here, and its leader epoch
        self._clock = clock
        self._rules = rules
        self._config = replace(LogConfig(), min_insync_replicas=min_insync, segment_bytes=2048)
        self._alive = AliveBrokers()
        self._context = PartitionContext(broker_id, LAG_TIME_MAX, self._alive, self, self, self)

    # --- ports of the partition ---------------------------------------------------------------

    def submit(self, partition: IsrRequester, item: AlterPartitionItem) -> None:
        self.asked.append(item)

    def flush(self, replica: LocalReplica) -> None:
        """Nothing here loses its page cache."""

    def truncate(self, truncation: Truncation) -> None:
        truncation.run(SIMULATED)
        was_truncated = truncation.truncate(truncation.ready, self)
        log = truncation.replica.log
        if was_truncated:
            self.delete_files(truncation.replica, log.take_deletions())
            flush = log.prepare_flush()
            if flush is not None:
                flush.run(SIMULATED)
                log.flush_done(flush)
        truncation.done(was_truncated)

    def delete_files(self, replica: LocalReplica, deletions: Sequence[Deletion]) -> None:
        for deletion in deletions:
            deletion.run(SIMULATED)

    def storage_failed(
        self, replica: LocalReplica, error: OSError | InconsistentLogError, log_path: str = ""
    ) -> None:
        raise error

    def give_up(self, replica: LocalReplica, work: str, error: Exception) -> None:
        raise error

    def fault(self, work: str, error: Exception) -> None:
        raise error

    # --- where the reader finds it (PartitionSource) ------------------------------------------

    def get(self, topic: str, partition: int) -> Partition:
        return self.get_by_id(TOPIC_ID, partition)

    def get_by_id(self, topic_id: UUID, partition: int) -> Partition:
        """Raises BrokerError."""
        if self.partition is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.partition

    # --- life ---------------------------------------------------------------------------------

    def start(self, broker_epoch: int) -> None:
        """A new incarnation on the old disk."""
        self.broker_epoch = broker_epoch
        self.disk.kill()
        self._open()
        self.known = -1
        self.asked.clear()
        self.answer = None

    def crash(self) -> None:
        """The process dies; what it wrote stays."""
        self.disk.kill()
        self.partition = None
        self.answer = None

    def _open(self) -> None:
        log = UnifiedLog(
            load(
                self.disk,
                f"/broker{self.broker_id}/{TP}",
                self._config,
                recovery_point=0,
                log_start_offset=0,
                clean=False,
                now_ms=BATCH_MS,
                topic_id=TOPIC_ID,
                may_block=SIMULATED,
            )
        )
        self.partition = Partition(TP, TOPIC_ID, log, self._context, self.checkpointed_high_watermark)

    def learn(self, number: int, registration: PartitionRegistration, active: dict[int, int]) -> None:
        """Apply entry `number` of the controller's history, unless a later one was applied before."""
        partition = self.partition
        if partition is None or number <= self.known:
            return
        self.known = number
        self._alive.epochs.clear()  # the partition shares the mapping itself
        self._alive.epochs.update(active)
        if self.broker_id not in registration.replicas:
            self._remove(partition, registration.leader_epoch)
            return
        if registration.leader == self.broker_id:
            partition.become_leader(registration, self._clock.now)
        elif partition.become_follower(registration):
            self.answer = None  # its old leader's connection is closed
            offset = self._rules.initial_truncation_offset(partition.high_watermark)
            if offset is not None and registration.leader != NO_LEADER:
                partition.truncate_to(offset, check_truncation)
        partition.maybe_expand_isr(self._clock.now)

    def _remove(self, partition: Partition, leader_epoch: int) -> None:
        """The replica has moved away: its files are deleted, and an empty one may lead a life here later."""
        partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.wiped_in = leader_epoch
        self.disk = SimDisk()
        self.checkpointed_high_watermark = 0
        self.asked.clear()
        self.answer = None
        self._open()


def check_truncation(done: bool) -> None:
    assert done, "here nothing comes between"
