"""Replication of one partition, one step at a time: a leader, its followers, a controller, in memory.

Partition, log (on a simulated disk), the leader's reader and the follower's steps are the product's own code;
the world only decides who moves next. After every step the checks run (replication_checks.py).

    replication_schedules.py -> here -> replication_broker.py, replication_controller.py

`rules=TRUNCATE_TO_HIGH_WATERMARK` replays replication as it was before leader epochs.
"""

from __future__ import annotations

from chaos.sim.replication_broker import (
    BATCH_MS,
    SIMULATED,
    TOPIC_ID,
    TP,
    SimBroker,
    SimClock,
    check_truncation,
)
from chaos.sim.replication_checks import ReplicationChecks, values_of
from chaos.sim.replication_controller import SimController
from data_plane.purgatory.timing_wheel import WheelTimer
from data_plane.quotas.replication import ReplicationQuota
from data_plane.replication.delayed_produce import await_replication
from data_plane.replication.leader_state import AlterPartitionItem, AlterPartitionResult, IsrOutcome
from data_plane.replication.partition import ALL_REPLICAS, Partition
from fetch.fetcher import process_partition_data, truncation_offset_for
from fetch.follower import (
    TRUNCATE_BY_EPOCHS,
    FetchOutcome,
    FollowerRules,
    RestartAt,
    fetch_outcome,
    resolve_out_of_range,
)
from fetch.messages import FetchedPartition, FetchParams, FetchPartition, FetchRequest, LogBounds
from fetch.reader import read_session
from fetch.sessions import FetchSession
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import NO_LEADER


class ReplicationWorld:
    """See the module."""

    def __init__(
        self,
        replicas: int = 3,
        *,
        spare: int = 0,
        min_insync: int = 2,
        rules: FollowerRules = TRUNCATE_BY_EPOCHS,
    ) -> None:
        """`spare`: brokers that hold no replica yet, for reassignments."""
        self._rules = rules
        self.clock = SimClock()
        self.timer = WheelTimer(self.clock)
        self._broker_epochs = 0
        self._values = 0
        self.acked: dict[bytes, int] = {}  # value -> offset
        self._checks = ReplicationChecks()
        self.fetches: list[tuple[int, FetchRequest]] = []
        """Which broker was asked, and what: copies may come late."""
        self.isr_requests: list[tuple[int, AlterPartitionItem]] = []
        """By whom, and what; copies of these may come late, too."""
        ids = range(1, replicas + spare + 1)
        self.brokers = {i: SimBroker(i, self.clock, rules, min_insync) for i in ids}
        for broker in self.brokers.values():
            self._start(broker)
        epochs = {broker_id: broker.broker_epoch for broker_id, broker in self.brokers.items()}
        self.controller = SimController(ids[:replicas], epochs)
        self.publish_all()

    def _start(self, broker: SimBroker) -> None:
        self._broker_epochs += 1
        broker.start(self._broker_epochs)

    # --- the controller -----------------------------------------------------------------------

    def fence(self, broker_id: int) -> None:
        self.controller.fence(broker_id)

    def unfence(self, broker_id: int) -> None:
        self.controller.unfence(broker_id, self.brokers[broker_id].broker_epoch)

    # --- clients and replicas -----------------------------------------------------------------

    def produce(self, broker_id: int, acks: int = ALL_REPLICAS) -> ErrorCode:
        """A producer that believes `broker_id` leads."""
        partition = self.brokers[broker_id].partition
        if partition is None:
            return ErrorCode.NETWORK_EXCEPTION
        self._values += 1
        value = b"v%d" % self._values
        batch = bytearray(encode_batch([Record(value=value, timestamp=BATCH_MS)]))
        try:
            info = partition.append_as_leader(batch, acks=acks, now=self.clock.now, now_ms=BATCH_MS)
        except BrokerError as e:
            return e.code

        def acknowledge(outcomes: list[ErrorCode]) -> None:
            if outcomes == [ErrorCode.NONE] and acks == ALL_REPLICAS:
                self.acked[value] = info.first_offset

        appended = (partition, info.last_offset + 1, partition.leader_epoch)
        await_replication([appended], timer=self.timer, timeout=1e9, on_done=acknowledge)
        self.check()
        return ErrorCode.NONE

    def ask(self, follower_id: int) -> bool:
        """The follower fetches: the leader takes note and answers; the answer is on its way."""
        follower = self.brokers[follower_id]
        mine = follower.partition
        if mine is None or mine.leader is not None or mine.leader_id == NO_LEADER:
            return False
        leader = self.brokers[mine.leader_id]
        if leader.partition is None:
            return False
        fetch_partition = FetchPartition(
            TOPIC_ID,
            TP.topic,
            TP.partition,
            mine.log.log_end_offset,
            512,
            mine.leader_epoch,
            self._rules.last_fetched_epoch(mine.log.epochs.latest),
            mine.log.log_start_offset,
        )
        request = FetchRequest([fetch_partition], replica_id=follower_id, replica_epoch=follower.broker_epoch)
        self.fetches.append((mine.leader_id, request))
        follower.answer = (mine.leader_epoch, self._answer(leader, request))
        self.check()
        return True

    def _answer(self, leader: SimBroker, request: FetchRequest) -> FetchedPartition:
        params = FetchParams(request, request.min_bytes, request.max_bytes)
        session = FetchSession(0, request, self.clock.now)
        reading = read_session(session, params, leader, self.clock.now, ReplicationQuota())
        reading.commit(1, full=True)
        (answer,) = reading.answered
        session.close()
        if answer.slice is not None:
            answer.records = memoryview(bytes(answer.slice.read(SIMULATED)))
        return answer

    def ask_late(self, number: int) -> None:
        """A copy of an earlier fetch comes, on a connection that is gone: nobody gets its answer."""
        leader_id, request = self.fetches[number]
        leader = self.brokers[leader_id]
        if leader.partition is not None:
            self._answer(leader, request)
            self.check()

    def take(self, follower_id: int) -> bool:
        """The follower gets the answer that is on its way."""
        follower = self.brokers[follower_id]
        partition, arrived = follower.partition, follower.answer
        follower.answer = None
        if partition is None or arrived is None or arrived[0] != partition.leader_epoch:
            return False
        answer = arrived[1]
        outcome = fetch_outcome(answer)
        if outcome is FetchOutcome.APPEND:
            process_partition_data(partition, answer, BATCH_MS)
        elif outcome is FetchOutcome.DIVERGED:
            partition.truncate_to(truncation_offset_for(partition, answer), check_truncation)
        elif outcome is FetchOutcome.OUT_OF_RANGE:
            self._find_bounds(partition)
        self.check()
        return True

    def fetch(self, follower_id: int) -> bool:
        return self.ask(follower_id) and self.take(follower_id)

    def _find_bounds(self, partition: Partition) -> None:
        leader = self.brokers[partition.leader_id].partition
        if leader is None or leader.leader is None:
            return
        resolution = resolve_out_of_range(
            partition.log.log_end_offset, LogBounds(leader.log.log_start_offset, leader.log.log_end_offset)
        )
        if resolution is not None:
            restart = isinstance(resolution, RestartAt)
            partition.truncate_to(resolution.offset, check_truncation, restart=restart)

    def answer_isr(self, broker_id: int, *, lose_answer: bool = False) -> None:
        """The oldest AlterPartition of a broker reaches the controller, and its answer the broker."""
        broker = self.brokers[broker_id]
        if not broker.asked:
            return
        item = broker.asked.pop(0)
        partition = broker.partition
        if partition is None or not partition.awaits(item):
            return
        self.isr_requests.append((broker_id, item))
        answer = self.controller.alter_partition(broker_id, item)
        if lose_answer:
            answer = AlterPartitionResult(ErrorCode.UNKNOWN_SERVER_ERROR)
        if partition.handle_alter_partition_response(item, answer, self.clock.now) is IsrOutcome.ASK_AGAIN:
            broker.asked.append(item)
        self.check()

    def ask_isr_late(self, number: int) -> None:
        """A copy of an earlier AlterPartition comes; nobody gets its answer."""
        self.controller.alter_partition(*self.isr_requests[number])

    def publish(self, broker_id: int, upto: int | None = None) -> None:
        """Committed metadata reaches a broker."""
        number = len(self.controller.history) - 1 if upto is None else upto
        self.brokers[broker_id].learn(number, *self.controller.history[number])
        self.check()

    def publish_all(self) -> None:
        for broker_id in self.brokers:
            self.publish(broker_id)

    def crash(self, broker_id: int) -> None:
        """The process dies; what it wrote stays. The controller fences it in a step of its own."""
        self.brokers[broker_id].crash()

    def restart(self, broker_id: int) -> None:
        """The new incarnation has left the ISRs before it is unfenced."""
        self.fence(broker_id)
        self._start(self.brokers[broker_id])

    def checkpoint(self, broker_id: int) -> None:
        partition = self.brokers[broker_id].partition
        if partition is not None:
            self.brokers[broker_id].checkpointed_high_watermark = partition.high_watermark

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds

    def sweep(self, broker_id: int) -> None:
        partition = self.brokers[broker_id].partition
        if partition is not None:
            partition.maybe_shrink_isr(self.clock.now)
            self.check()

    def delete_records(self, broker_id: int) -> None:
        """A client drops all but the newest records below the high watermark."""
        partition = self.brokers[broker_id].partition
        if partition is not None and partition.leader is not None and partition.high_watermark > 1:
            partition.delete_records(partition.high_watermark - 1)
            self.check()

    def heal(self) -> None:
        """Everybody comes back, and all catch up."""
        for broker_id, broker in self.brokers.items():
            if broker.partition is None:
                self.restart(broker_id)
        for _ in range(200):
            for broker_id in self.brokers:
                if broker_id not in self.controller.active:
                    self.unfence(broker_id)
            self.publish_all()
            for broker_id in self.brokers:
                self.fetch(broker_id)
                self.answer_isr(broker_id)
            self.pass_time(0.1)
            if self._in_sync():
                return
        raise AssertionError("did not converge")

    def _in_sync(self) -> bool:
        now = self.controller.registration
        logs = [p for p in (self.brokers[b].partition for b in now.replicas) if p is not None]
        return (
            not now.reassigning
            and len(now.isr) == len(now.replicas)
            and len({p.log.log_end_offset for p in logs}) == 1
            and len({p.high_watermark for p in logs}) == 1
            and logs[0].high_watermark == logs[0].log.log_end_offset
        )

    # --- checks -------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises InvariantViolation."""
        self._checks.check(self.brokers, self.controller.registration.leader_epoch)

    def lost(self) -> list[bytes]:
        """Acknowledged records that the healed partition does not hold."""
        leader = self.brokers[self.controller.registration.leader].partition
        assert leader is not None
        held = values_of(leader)
        start = leader.log.log_start_offset
        return [v for v, offset in self.acked.items() if offset >= start and held.get(offset) != v]
