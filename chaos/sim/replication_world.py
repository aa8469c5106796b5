"""Replication of one partition, one step at a time: a leader, its followers, a controller, in memory.

Everything below is the product's own code (Partition, Log on a simulated disk, the leader's reader,
the follower's steps); the world only decides who moves next. It checks the invariants of partitions after
every step, and that no acknowledged record is ever lost.

`rules=TRUNCATE_TO_HIGH_WATERMARK` replays how replication was before leader epochs. The schedules are
in replication_schedules.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

from chaos.sim.disk import SimDisk
from data_plane.log.config import LogConfig
from data_plane.log.consistency import InconsistentLogError
from data_plane.log.cut import CutWork
from data_plane.log.effects import Deletion
from data_plane.log.log import UnifiedLog
from data_plane.purgatory.timing_wheel import TimerHandle, WheelTimer
from data_plane.quotas.replication import ReplicationQuota
from data_plane.replication.delayed_produce import await_replication
from data_plane.replication.leader_state import AlterPartitionItem, AlterPartitionResult, IsrOutcome
from data_plane.replication.partition import ALL_REPLICAS, Partition
from fetch.fetcher import FetchOutcome, process_partition_data, where_to_cut
from fetch.follower import TRUNCATE_BY_EPOCHS, FollowerRules, RestartAt, TruncateTo, resolve_out_of_range
from fetch.messages import FetchedPartition, FetchPartition, FetchRequest, LogBounds
from fetch.reader import read_session
from fetch.sessions import FetchSession
from metadata_quorum.decisions.replicas import completed, reverted, toward
from metadata_quorum.foundation.batch import Record, decode_batch, encode_batch, iter_headers
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.invariants import invariant
from metadata_quorum.foundation.model import NO_EPOCH, NO_LEADER, PartitionRegistration, TopicPartition

TP: Final = TopicPartition("simulated", 0)
TOPIC_ID: Final = UUID(int=77)
SIMULATED: Final = MayBlock("time stands still")
LAG_TIME_MAX: Final = 10.0
_BATCH_MS: Final = 1_700_000_000_000


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
    """One broker's replica, and its host. Its disk outlives its process."""

    def __init__(self, world: ReplicationWorld, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.broker_epoch = 0
        self.disk = SimDisk()
        self.partition: Partition | None = None
        self.known = -1  # how many registrations of the controller's history it has seen
        self.checkpointed_high_watermark = 0
        self.wiped_in = NO_EPOCH  # the leader epoch in which its replica was last taken away
        self.asked: list[AlterPartitionItem] = []
        self.answer: tuple[int, FetchedPartition] | None = None  # on its way here, and under which epoch
        self._eligible: dict[int, int] = {}

    # What a partition needs of its broker.

    @property
    def eligible(self) -> Mapping[int, int]:
        return self._eligible

    def has_online_dir(self, broker_id: int, directory: UUID) -> bool:
        return True

    @property
    def lag_time_max(self) -> float:
        return LAG_TIME_MAX

    def submit_alter_partition(self, partition: Partition, item: AlterPartitionItem) -> None:
        self.asked.append(item)

    def fault(self, work: str, error: Exception) -> None:
        raise error

    def flush(self, partition: Partition) -> None:
        """Nothing here loses its page cache."""

    def carry_out(
        self, partition: Partition, work: CutWork, cut: Callable[[bool], bool], done: Callable[[bool], None]
    ) -> None:
        """Nothing here loses its page cache."""
        work.run(SIMULATED)
        done(cut(work.ready))

    def delete_files(self, partition: Partition, deletions: Sequence[Deletion]) -> None:
        for deletion in deletions:
            deletion.run(SIMULATED)

    def storage_failed(self, partition: Partition, error: OSError | InconsistentLogError) -> None:
        raise error

    # Where the reader finds it.

    def get(self, topic: str, partition: int) -> Partition:
        return self.get_by_id(TOPIC_ID, partition)

    def get_by_id(self, topic_id: UUID, partition: int) -> Partition:
        if self.partition is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.partition

    # Life.

    def start(self) -> None:
        self.broker_epoch = self.world.next_broker_epoch()
        self.disk.kill()
        self._open()
        self.known = -1
        self.asked.clear()
        self.answer = None

    def _open(self) -> None:
        config = replace(LogConfig(), min_insync_replicas=self.world.min_insync, segment_bytes=2048)
        log = UnifiedLog.open(
            self.disk,
            f"/broker{self.broker_id}/{TP}",
            config,
            recovery_point=0,
            log_start_offset=0,
            clean=False,
            now_ms=_BATCH_MS,
            topic_id=TOPIC_ID,
            may_block=SIMULATED,
        )
        self.partition = Partition(TP, TOPIC_ID, log, self, self.checkpointed_high_watermark)

    def _let_go(self, partition: Partition, leader_epoch: int) -> None:
        """The replica has moved away: its files go, and another may be made here one day."""
        partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.wiped_in = leader_epoch
        self.disk = SimDisk()
        self.checkpointed_high_watermark = 0
        self.asked.clear()
        self.answer = None
        self._open()

    def learn(self, upto: int) -> None:
        """Take the committed metadata up to the history's entry `upto`."""
        partition = self.partition
        if partition is None or upto <= self.known:
            return
        self.known = upto
        registration, active = self.world.history[upto]
        self._eligible.clear()  # the partition holds on to the mapping itself
        self._eligible.update(active)
        if self.broker_id not in registration.replicas:
            self._let_go(partition, registration.leader_epoch)
            return
        if registration.leader == self.broker_id:
            partition.become_leader(registration, self.world.clock.now)
        elif partition.become_follower(registration):
            self.answer = None  # its old leader's connection is closed
            cut = self.world.rules.initial_truncation_offset(partition.high_watermark)
            if cut is not None and registration.leader != NO_LEADER:
                partition.truncate_to(cut, _cut)
        partition.maybe_expand_isr(self.world.clock.now)


def _cut(done: bool) -> None:
    assert done, "here nothing comes between"


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
        self.rules = rules
        self.min_insync = min_insync
        self.clock = SimClock()
        self.timer = WheelTimer(self.clock)
        self._broker_epochs = 0
        self._values = 0
        self.acked: dict[bytes, int] = {}  # value -> offset
        self.committed: list[bytes] = []  # values below any high watermark ever exposed, by offset
        self._high_watermarks: dict[int, int] = {}  # by leader epoch
        self.brokers = {i: SimBroker(self, i) for i in range(1, replicas + spare + 1)}
        self.active: dict[int, int] = {}  # the controller's view: unfenced brokers and their epochs
        ids = tuple(self.brokers)[:replicas]
        self.registration = PartitionRegistration(ids, ids, ids[0], 0, 0)
        self.history: list[tuple[PartitionRegistration, dict[int, int]]] = []
        for broker in self.brokers.values():
            broker.start()
            self.active[broker.broker_id] = broker.broker_epoch
        self._commit(self.registration)
        self.publish_all()

    def next_broker_epoch(self) -> int:
        self._broker_epochs += 1
        return self._broker_epochs

    # --- the controller -----------------------------------------------------------------------

    def _commit(self, registration: PartitionRegistration) -> None:
        invariant(
            registration.leader == NO_LEADER or registration.leader in registration.isr, "P3", registration
        )
        self.registration = registration
        self.history.append((registration, dict(self.active)))

    def fence(self, broker_id: int) -> None:
        """The broker leaves the ISR; where it led, the first ISR member in assignment order takes over."""
        if self.active.pop(broker_id, None) is None:
            return
        before = self.registration
        isr = tuple(b for b in before.isr if b != broker_id) or before.isr  # the last member stays
        self._elect(isr)

    def unfence(self, broker_id: int) -> None:
        self.active[broker_id] = self.brokers[broker_id].broker_epoch
        self._elect(self.registration.isr)

    def reassign(self, target: Sequence[int]) -> None:
        """The partition is to move to these brokers."""
        placed = toward(self.registration, target, lambda broker_id: TOPIC_ID)
        self._elect(self.registration.isr, placed)

    def call_off(self) -> None:
        """Back to the replicas of before, if one of them is in sync and alive."""
        placed = reverted(self.registration)
        isr = tuple(b for b in self.registration.isr if b in placed.replicas)
        if any(b in self.active for b in isr):
            self._elect(isr, placed)

    def _elect(self, isr: tuple[int, ...], placed: PartitionRegistration | None = None) -> None:
        before = self.registration
        placed, isr = completed(before if placed is None else placed, isr)
        leader = before.leader
        if leader not in self.active or leader not in isr:
            leader = next((b for b in placed.replicas if b in isr and b in self.active), NO_LEADER)
        anew = leader != before.leader or not set(before.replicas) <= set(placed.replicas)
        self._commit(
            replace(
                placed,
                isr=isr,
                leader=leader,
                leader_epoch=before.leader_epoch + anew,
                partition_epoch=before.partition_epoch + 1,
            )
        )

    def alter_partition(self, broker_id: int, item: AlterPartitionItem) -> AlterPartitionResult:
        """The controller's answer to an AlterPartition, as far as one partition can show it."""
        now = self.registration
        change = item.change
        if change.leader_epoch > now.leader_epoch or change.partition_epoch > now.partition_epoch:
            return AlterPartitionResult(ErrorCode.NOT_CONTROLLER)
        if change.leader_epoch < now.leader_epoch:
            return AlterPartitionResult(ErrorCode.FENCED_LEADER_EPOCH)
        if broker_id != now.leader:
            return AlterPartitionResult(ErrorCode.INVALID_REQUEST)
        if change.partition_epoch < now.partition_epoch:
            return AlterPartitionResult(ErrorCode.INVALID_UPDATE_VERSION)
        if any(self.active.get(member) != epoch for member, epoch in item.isr_with_epochs):
            return AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA)
        self._elect(tuple(b for b in now.replicas if b in change.isr))
        after = self.registration
        if after.leader != broker_id:
            return AlterPartitionResult(ErrorCode.NEW_LEADER_ELECTED)
        return AlterPartitionResult(
            ErrorCode.NONE, after.leader, after.leader_epoch, after.isr, after.partition_epoch
        )

    # --- steps --------------------------------------------------------------------------------

    def produce(self, broker_id: int, acks: int = ALL_REPLICAS) -> ErrorCode:
        """A producer that believes `broker_id` leads."""
        partition = self.brokers[broker_id].partition
        if partition is None:
            return ErrorCode.NETWORK_EXCEPTION
        self._values += 1
        value = b"v%d" % self._values
        batch = bytearray(encode_batch([Record(value=value, timestamp=_BATCH_MS)]))
        try:
            info = partition.append_as_leader(batch, acks=acks, now=self.clock.now, now_ms=_BATCH_MS)
        except BrokerError as e:
            return e.code

        def acknowledge(outcomes: list[ErrorCode]) -> None:
            if outcomes == [ErrorCode.NONE] and acks == ALL_REPLICAS:
                self.acked[value] = info.first_offset

        await_replication(
            [(partition, info.last_offset + 1)], timer=self.timer, timeout=1e9, on_done=acknowledge
        )
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
        wanted = FetchPartition(
            TOPIC_ID,
            TP.topic,
            TP.partition,
            mine.log.log_end_offset,
            512,
            mine.leader_epoch,
            self.rules.last_fetched_epoch(mine.log.epochs.latest),
            mine.log.log_start_offset,
        )
        request = FetchRequest([wanted], replica_id=follower_id, replica_epoch=follower.broker_epoch)
        session = FetchSession(0, request, self.clock.now)
        ((_, answer),) = read_session(session, request, leader, self.clock.now, ReplicationQuota()).found
        session.close()
        if answer.slice is not None:
            answer.records = memoryview(bytes(answer.slice.read(SIMULATED)))
        follower.answer = (mine.leader_epoch, answer)
        self.check()
        return True

    def take(self, follower_id: int) -> bool:
        """The follower gets the answer that is on its way."""
        follower = self.brokers[follower_id]
        partition, arrived = follower.partition, follower.answer
        follower.answer = None
        if partition is None or arrived is None or arrived[0] != partition.leader_epoch:
            return False
        taken = process_partition_data(partition, arrived[1], _BATCH_MS)
        if taken is FetchOutcome.DIVERGED:
            partition.truncate_to(where_to_cut(partition, arrived[1]), _cut)
        elif taken is FetchOutcome.OUT_OF_RANGE:
            self._find_bounds(partition)
        self.check()
        return True

    def fetch(self, follower_id: int) -> bool:
        return self.ask(follower_id) and self.take(follower_id)

    def _find_bounds(self, partition: Partition) -> None:
        leader = self.brokers[partition.leader_id].partition
        if leader is None or leader.leader is None:
            return
        found = resolve_out_of_range(
            partition.log.log_end_offset, LogBounds(leader.log.log_start_offset, leader.log.log_end_offset)
        )
        if isinstance(found, TruncateTo):
            partition.truncate_to(found.offset, _cut)
        elif isinstance(found, RestartAt):
            partition.restart_at(found.offset)

    def answer_isr(self, broker_id: int, *, lose_answer: bool = False) -> None:
        """The oldest AlterPartition of a broker reaches the controller, and its answer the broker."""
        broker = self.brokers[broker_id]
        if not broker.asked:
            return
        item = broker.asked.pop(0)
        partition = broker.partition
        if partition is None or not partition.awaits(item):
            return
        answer = self.alter_partition(broker_id, item)
        if lose_answer:
            answer = AlterPartitionResult(ErrorCode.UNKNOWN_SERVER_ERROR)
        if partition.handle_alter_partition_response(item, answer, self.clock.now) is IsrOutcome.ASK_AGAIN:
            broker.asked.append(item)
        self.check()

    def publish(self, broker_id: int, upto: int | None = None) -> None:
        """Committed metadata reaches a broker."""
        self.brokers[broker_id].learn(len(self.history) - 1 if upto is None else upto)
        self.check()

    def publish_all(self) -> None:
        for broker_id in self.brokers:
            self.publish(broker_id)

    def crash(self, broker_id: int) -> None:
        """The process dies; what it wrote stays. The controller fences it in a step of its own."""
        broker = self.brokers[broker_id]
        broker.disk.kill()
        broker.partition = None
        broker.answer = None

    def restart(self, broker_id: int) -> None:
        """The new incarnation has left the ISRs before it is unfenced."""
        self.fence(broker_id)
        self.brokers[broker_id].start()

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
                if broker_id not in self.active:
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
        now = self.registration
        logs = [p for p in (self.brokers[b].partition for b in now.replicas) if p is not None]
        return (
            not now.reassigning
            and len(now.isr) == len(now.replicas)
            and len({p.log.log_end_offset for p in logs}) == 1
            and len({p.high_watermark for p in logs}) == 1
            and logs[0].high_watermark == logs[0].log.log_end_offset
        )

    # --- checks -------------------------------------------------------------------------------

    def values(self, partition: Partition) -> dict[int, bytes]:
        """What a replica holds, by offset."""
        found: dict[int, bytes] = {}
        log = partition.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(offset, 1 << 20, at_least_one_batch=True).read(SIMULATED)
            for position, _ in iter_headers(data):
                for record in decode_batch(data, position):
                    found[record.offset] = record.value or b""
                    offset = record.offset + 1
        return found

    def check(self) -> None:
        """P5 to P8, for every replica whose process is alive."""
        alive = [b.partition for b in self.brokers.values() if b.partition is not None]
        for partition in alive:
            partition.check_invariants()
            self._check_epochs(partition)
            if partition.leader is not None:
                self._check_leader(partition)
        self._check_identical(alive)

    def _check_leader(self, leader: Partition) -> None:
        state = leader.leader
        assert state is not None
        hw = leader.high_watermark
        for member in state.maximal_isr:
            replica = self.brokers[member].partition
            # One that has let go did so in a later epoch: this leader has not heard that it is none any more.
            if replica is not None and self.brokers[member].wiped_in <= state.leader_epoch:
                invariant(replica.log.log_end_offset >= hw, "P5", (member, replica, hw))
        # The high watermark is what consumers may have seen from this epoch on.
        if hw >= state.epoch_start_offset:
            before = self._high_watermarks.get(state.leader_epoch, 0)
            invariant(hw >= before, "P6", (leader, before))
            self._high_watermarks[state.leader_epoch] = hw
        held = self.values(leader)
        for offset in range(leader.log.log_start_offset, min(hw, len(self.committed))):
            invariant(held.get(offset) == self.committed[offset], "acked-in-log", (leader, offset))
        for offset in range(len(self.committed), hw):
            self.committed.append(held[offset])
        if state.leader_epoch == self.registration.leader_epoch:
            invariant(leader.log.log_end_offset >= len(self.committed), "P6", (leader, len(self.committed)))

    @staticmethod
    def _check_epochs(partition: Partition) -> None:
        entries = partition.log.epochs.entries
        pairs = list(pairwise(entries))
        invariant(all(a[0] < b[0] and a[1] < b[1] for a, b in pairs), "P8", (partition, entries))

    def _check_identical(self, alive: list[Partition]) -> None:
        replicas = sorted(alive, key=lambda p: -p.high_watermark)
        held = self.values(replicas[0]) if replicas else {}
        for other in replicas[1:]:
            low = max(replicas[0].log.log_start_offset, other.log.log_start_offset)
            here = self.values(other)
            same = all(held.get(o) == here.get(o) for o in range(low, other.high_watermark))
            invariant(same, "P7", (low, replicas[0], other))

    def lost(self) -> list[bytes]:
        """Acknowledged records that the healed partition does not hold."""
        leader = self.brokers[self.registration.leader].partition
        assert leader is not None
        held = self.values(leader)
        start = leader.log.log_start_offset
        return [v for v, offset in self.acked.items() if offset >= start and held.get(offset) != v]
