"""One replica of a partition: its log, and its part in replication (Kafka's Partition).

A replica leads (`leader` is its LeaderState), follows, or has no leader. Whatever happens to it is one
synchronous call: an append, a follower's fetch, a change of role. Its consequences come in the same call: the
high watermark rises, delayed produces complete, fetch sessions are woken, an ISR change is submitted. What it
cannot do itself it asks of its context (partition_context.py).

    Produce            api/produce -> append_as_leader -> log; watchers wake the followers' fetches
    a follower's Fetch fetch/reader -> follower_fetched -> high watermark -> purgatories, watchers
    its own Fetch      fetch/fetcher -> append_as_follower, truncate_to
    metadata           delta_applier.py -> become_leader, become_follower
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn
from uuid import UUID

from data_plane.log.append import AppendInfo
from data_plane.log.config import LogConfig
from data_plane.log.consistency import InconsistentLogError
from data_plane.log.log import UnifiedLog
from data_plane.log.segment import LogSlice
from data_plane.log.validation import AppendOrigin, ValidatedRecords
from data_plane.log_manager.local_replica import FutureReplica
from data_plane.log_manager.truncation import Truncation
from data_plane.purgatory.purgatory import ThresholdPurgatory, Watchers
from data_plane.replication.leader_state import (
    AlterPartitionItem,
    AlterPartitionResult,
    FetchClock,
    IsrOutcome,
    LeaderState,
    PendingIsrChange,
)
from data_plane.replication.partition_context import PartitionContext
from metadata_quorum.foundation.batch import CorruptBatchError
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import NO_EPOCH, NO_LEADER, PartitionRegistration, TopicPartition

ALL_REPLICAS: Final = -1  # acks=all
NEVER_FLUSH: Final = LogConfig().flush_messages


class Partition:
    """One replica of a partition on this broker."""

    __slots__ = (
        "_context", "_flush_purgatory", "high_watermark", "high_watermark_purgatory", "leader",
        "leader_epoch", "leader_id", "log", "low_watermark_purgatory", "move", "offline", "on_stopped",
        "partition_epoch", "removed", "stats", "topic_id", "tp", "watchers",
    )  # fmt: skip

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: UUID,
        log: UnifiedLog,
        context: PartitionContext,
        high_watermark: int = 0,
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.log = log
        self._context = context
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.leader: LeaderState | None = None
        self.leader_id = NO_LEADER
        self.leader_epoch = self.partition_epoch = NO_EPOCH
        fault, turns = context.failures.fault, context.completion_turns
        # Produces with acks=all and coordinators wait for the high watermark, DeleteRecords for the low one,
        # and with flush.messages=1 a coordinator's append for the recovery point.
        self.high_watermark_purgatory = ThresholdPurgatory(fault, turns)
        self.low_watermark_purgatory = ThresholdPurgatory(fault, turns)
        self._flush_purgatory = ThresholdPurgatory(fault, turns)
        self.watchers = Watchers()  # fetch sessions
        self.move: FutureReplica | None = None  # a copy in another log directory
        self.on_stopped: Callable[[Partition], None] | None = None
        """Set by whose work ends with it: the fetcher of a follower, the coordinator of a leader."""
        self.offline = self.removed = False
        self.stats = context.topic_stats.join(tp.topic)

    def __repr__(self) -> str:
        role = "leader" if self.leader is not None else f"follower of {self.leader_id}"
        return f"<Partition {self.tp} {role} epoch {self.leader_epoch} hw {self.high_watermark}>"

    @property
    def is_leader(self) -> bool:
        return self.leader is not None

    # --- role ---------------------------------------------------------------------------------

    def become_leader(self, registration: PartitionRegistration, now: float) -> bool:
        """Lead in the registration's leader epoch, or take over its newer state. True if the epoch is new.
        Raises BrokerError if the replica is offline or removed."""
        self._check_usable()
        if registration.leader_epoch < self.leader_epoch:
            return False
        self._context.unsettled[self] = None
        leader = self.leader
        if leader is not None and registration.leader_epoch == self.leader_epoch:
            if leader.take_metadata(registration, now):
                self.partition_epoch = registration.partition_epoch
                self._isr_committed(leader, now)
            return False
        epoch_start = self.log.log_end_offset
        # Assigned before the first append, so that followers can learn where the epoch begins.
        self.log.assign_epoch(registration.leader_epoch)
        self.leader = LeaderState(
            self._context.broker_id,
            registration,
            epoch_start_offset=epoch_start,
            eligible=self._context.brokers.epochs,
            online=self._context.brokers.has_online_dir,
            min_insync=self.log.config.min_insync_replicas,
            lag_time_max=self._context.lag_time_max,
            now=now,
        )
        self._took_role(registration)
        self._isr_committed(self.leader, now)
        self._flush_if_due()
        return True

    def become_follower(self, registration: PartitionRegistration) -> bool:
        """Follow the registration's leader, if it has one. True if the leader or its epoch is new."""
        if registration.leader_epoch < self.leader_epoch:
            return False
        followed = (self.leader_epoch, self.leader_id)
        is_new = self.is_leader or (registration.leader_epoch, registration.leader) != followed
        self.leader = None
        if is_new:
            self._took_role(registration)
            self._fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.partition_epoch = registration.partition_epoch
        return is_new

    def stop(self, error: ErrorCode) -> None:
        """Stop serving: the replica is deleted, reassigned, or its disk has failed. Waiting requests get
        `error`. Its fetcher drops it: a fetch would tell the leader that it holds what it fetched before. Its
        coordinator resigns: it would go on from what another one does not know."""
        self.leader = None
        self.leader_id = NO_LEADER
        self._fail_waiting(error)
        self.watchers.role_changed()
        if self.on_stopped is not None:
            self.on_stopped(self)

    def _fail_waiting(self, error: ErrorCode) -> None:
        for purgatory in (self.high_watermark_purgatory, self.low_watermark_purgatory, self._flush_purgatory):
            purgatory.fail_all(error)

    def _took_role(self, registration: PartitionRegistration) -> None:
        self.log.discard_truncation()  # the new leader may have what was to be truncated
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.watchers.role_changed()

    def configure(self, config: LogConfig) -> None:
        """The topic's configuration changed."""
        self.log.config = config
        if self.leader is not None:
            self.leader.configure(config.min_insync_replicas)
            self._flush_if_due()

    # --- leader: append -----------------------------------------------------------------------

    def append_as_leader(
        self,
        records: bytearray | memoryview | ValidatedRecords,
        *,
        acks: int,
        now: float,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Append what a producer sent; offsets and leader epoch are written into `records`. `now` is the
        loop's time in seconds, `now_ms` the wall clock's in milliseconds.

        Raises BrokerError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, and what the
        log refuses.
        """
        leader = self.leader
        if leader is None:
            self.refuse_as_not_leader()
        if acks == ALL_REPLICAS and leader.under_min_isr:
            raise BrokerError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.tp}: ISR {list(leader.isr)} < {leader.min_isr}"
            )
        log = self.log
        end_before = log.log_end_offset
        try:
            info = log.append_as_leader(
                records, leader_epoch=leader.leader_epoch, now_ms=now_ms, origin=origin
            )
        except (OSError, InconsistentLogError) as e:
            self.storage_failed(e)
        if log.log_end_offset != end_before:  # a duplicate appends nothing
            leader.appended(end_before, now)
            self._context.unsettled[self] = None
            if info.rolled or log.config.flush_messages != NEVER_FLUSH:
                self._flush_if_due(rolled=info.rolled)
            if len(leader.isr) == 1:
                self._advance_high_watermark(leader, now)
            self.watchers.log_grew()
        return info

    @property
    def flushes_each_append(self) -> bool:
        """flush.messages=1: records count once they are fsynced."""
        return self.log.config.flush_messages == 1

    def flushed(self, now: float) -> None:
        """The log is durable up to its recovery point."""
        self._context.uncheckpointed[self] = None
        if self.leader is not None:
            self._advance_high_watermark(self.leader, now)
        self._flush_purgatory.reached(self.log.recovery_point)

    def when_flushed(self, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once everything now in the log is durable, or with an error."""
        if self.offline or self.removed:  # no flush will come, and those who waited were failed before
            callback(ErrorCode.KAFKA_STORAGE_ERROR if self.offline else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        self._flush_purgatory.add(self.log.log_end_offset, callback)
        self._context.log_work.flush(self)

    @property
    def is_flush_due(self) -> bool:
        return bool(self._flush_purgatory) or self.log.unflushed_records >= self.log.config.flush_messages

    def _flush_if_due(self, *, rolled: bool = False) -> None:
        """Also what an earlier process wrote, or what was written under another configuration."""
        if rolled or self.is_flush_due:
            self._context.log_work.flush(self)

    # --- leader: followers --------------------------------------------------------------------

    def follower_fetched(
        self,
        follower_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        clock: FetchClock,
        now: float,
    ) -> None:
        """Record a follower's progress; fetch/reader.py has checked its offset. `now` in seconds.
        Raises BrokerError: NOT_LEADER_OR_FOLLOWER, UNKNOWN_LEADER_EPOCH."""
        leader = self.leader
        if leader is None:
            self.refuse_as_not_leader()
        follower = leader.fetching_follower(follower_id, broker_epoch)
        log_end = self.log.log_end_offset
        follower.fetched(fetch_offset, log_start_offset, log_end, now)
        if fetch_offset != log_end:
            self._context.unsettled[self] = None
        follower.broker_epoch = broker_epoch
        follower.clock = clock
        if not follower.in_maximal_isr:
            self._ask_for(leader.expand(follower, self.high_watermark))
        self._advance_high_watermark(leader, now)
        if self.low_watermark_purgatory:
            self.low_watermark_purgatory.reached(self.low_watermark())

    @property
    def is_settled(self) -> bool:
        """See `LeaderState.is_settled`; True of a replica that does not lead."""
        return self.leader is None or self.leader.is_settled(self.log.log_end_offset)

    def maybe_shrink_isr(self, now: float) -> None:
        """Every half of replica.lag.time.max.ms: propose to drop laggards, and to add those that can join."""
        leader = self.leader
        if leader is not None:
            self._ask_for(leader.shrink(self.log.log_end_offset, now))
            # A follower that was about to join and has fallen behind stops holding the high watermark back.
            self.maybe_expand_isr(now)

    def maybe_expand_isr(self, now: float) -> None:
        """The set of brokers that may be in an ISR has changed."""
        leader = self.leader
        if leader is not None:
            self._ask_for(leader.expand_any(self.high_watermark, now))
            self._advance_high_watermark(leader, now)

    def handle_alter_partition_response(
        self, item: AlterPartitionItem, answer: AlterPartitionResult, now: float
    ) -> IsrOutcome:
        """Take the controller's answer to `item`."""
        leader = self.leader
        if leader is None:
            return IsrOutcome.IGNORED
        outcome = leader.handle_response(item.change, answer)
        if outcome is IsrOutcome.COMMITTED:
            self.partition_epoch = leader.partition_epoch
            self._isr_committed(leader, now)
        return outcome

    def awaits(self, item: AlterPartitionItem) -> bool:
        """Whether `item` is still the change in flight."""
        return self.leader is not None and self.leader.change is item.change

    def _isr_committed(self, leader: LeaderState, now: float) -> None:
        if leader.under_min_isr:
            # Below min.insync.replicas the high watermark does not rise: these produces could only time out.
            self.high_watermark_purgatory.fail_all(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self._advance_high_watermark(leader, now)
        self._ask_for(leader.expand_any(self.high_watermark, now))

    def _ask_for(self, change: PendingIsrChange | None) -> None:
        leader = self.leader
        if change is not None and leader is not None:
            members = leader.isr_with_epochs(change)
            item = AlterPartitionItem(self.topic_id, self.tp.topic, self.tp.partition, change, members)
            self._context.isr_requests.submit(self, item)

    def _advance_high_watermark(self, leader: LeaderState, now: float) -> None:
        log = self.log
        end = log.log_end_offset
        own = log.recovery_point if log.config.flush_messages == 1 else end
        offset = leader.high_watermark(self.high_watermark, end, now, own)
        if offset > self.high_watermark:
            self._raise_high_watermark(offset)

    def _raise_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        if self.log.producers.unreplicated:  # tidied here too: maybe nobody asks for the last stable offset
            self.log.producers.replicated_to(offset)
        self._context.uncheckpointed[self] = None
        self.high_watermark_purgatory.reached(offset)
        self.watchers.readable_range_changed()

    # --- follower -----------------------------------------------------------------------------

    def append_as_follower(
        self, records: memoryview | None, leader_hw: int, leader_start: int, now_ms: int
    ) -> int:
        """Append the leader's run of batches and take its high watermark. Returns the log's end offset.
        Raises BrokerError where the log refuses them, or the replica is offline or removed."""
        self._check_usable()
        log = self.log
        if records:
            try:
                info = log.append_as_follower(records, leader_epoch=self.leader_epoch, now_ms=now_ms)
            except (OSError, InconsistentLogError) as e:
                self.storage_failed(e)
            if info is not None and (info.rolled or log.config.flush_messages != NEVER_FLUSH):
                self._flush_if_due(rolled=info.rolled)
        end = log.log_end_offset
        offset = leader_hw if leader_hw < end else end
        if offset > self.high_watermark:
            self._raise_high_watermark(offset)
        if leader_start > log.log_start_offset:
            self._advance_log_start(min(leader_start, self.high_watermark))
        return end

    def truncate_to(self, offset: int, done: Callable[[bool], None], *, restart: bool = False) -> None:
        """Truncate to `offset`, beyond which the leader has something else; or, with `restart`, drop all: the
        leader's log begins there, beyond the end of ours. `done` is called with whether it is, once that is
        durable; until then the log refuses appends (log_manager/truncation.py)."""
        log = self.log
        if self.offline or self.removed:
            done(False)
            return
        try:
            work = log.prepare_truncation(offset, restart=restart)
        except InconsistentLogError as e:
            self._context.failures.storage_failed(self, e)
            done(False)
            return
        if work is None:
            # Nothing is beyond `offset`, except perhaps an epoch that began here and has no records.
            log.epochs.truncate_from_end(log.log_end_offset)
            done(True)
            return
        self._context.log_work.truncate(Truncation(self, work, done))

    def after_truncation(self) -> None:
        """The log was truncated, or a prepared truncation was discarded. Those who wait for a flush now wait
        for no more than what is left; and flushes that ended in between did not count, so flush again."""
        self._context.uncheckpointed[self] = None
        self.watchers.readable_range_changed()
        if self._flush_purgatory:
            self._flush_purgatory.lower(self.log.log_end_offset)
            self._context.log_work.flush(self)

    # --- reading ------------------------------------------------------------------------------

    def check_epoch(self, current_leader_epoch: int, *, leader_only: bool) -> None:
        """Raises BrokerError if the client's leader epoch is not ours (-1: not checked), or if we do not lead
        and the client must read from the leader."""
        self._check_usable()
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH, f"{self.tp} is in {self.leader_epoch}")
            raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self.tp} is in {self.leader_epoch}")
        if leader_only and self.leader is None:
            self.refuse_as_not_leader()

    def read_limit(self, *, for_follower: bool, committed_only: bool) -> int:
        """The offset where reads end: for a follower the log's end, for a consumer the high watermark, or
        with `committed_only` the last stable offset."""
        if for_follower:
            return self.log.log_end_offset
        return self.last_stable_offset if committed_only else self.high_watermark

    def read(self, offset: int, max_bytes: int, end: int, *, at_least_one_batch: bool) -> LogSlice | None:
        """Batches from `offset` on that end before offset `end`; None where none fits into `max_bytes`.
        Raises BrokerError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE."""
        try:
            piece = self.log.read(offset, max_bytes, upper_offset=end, at_least_one_batch=at_least_one_batch)
        except OSError as e:
            self.storage_failed(e)
        except CorruptBatchError as e:
            self.refuse_as_corrupt(e)
        return piece if piece.length > 0 else None

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed ends: before the first transaction that is still open."""
        high_watermark = self.high_watermark
        first_open = self.log.first_unstable_offset(high_watermark)
        return high_watermark if first_open is None else min(first_open, high_watermark)

    # --- the log's beginning ------------------------------------------------------------------

    def delete_records(self, before_offset: int) -> int:
        """Delete all records before `before_offset` (-1: the high watermark). Returns that offset; every
        replica has deleted them once the low watermark reaches it. Raises BrokerError."""
        if self.leader is None:
            self.refuse_as_not_leader()
        offset = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= offset <= self.high_watermark:
            self.refuse_offset(offset)
        self._advance_log_start(offset)
        return offset

    def low_watermark(self) -> int:
        """The least log start offset over this replica and its live followers."""
        followers = () if self.leader is None else self.leader.followers.values()
        alive = self._context.brokers.epochs
        starts = [each.log_start_offset for each in followers if each.broker_id in alive]
        return min([self.log.log_start_offset, *starts])

    def _advance_log_start(self, offset: int) -> None:
        if offset <= self.log.log_start_offset:
            return
        try:
            self.log.advance_log_start(offset)
        except InconsistentLogError as e:
            self.storage_failed(e)
        self.log_start_moved()

    def log_start_moved(self) -> None:
        """The log start offset is higher: retention, DeleteRecords, or the leader's has moved."""
        self._context.uncheckpointed[self] = None
        self.watchers.readable_range_changed()
        if self.low_watermark_purgatory:
            self.low_watermark_purgatory.reached(self.low_watermark())

    # --- refusals -----------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self.offline:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.tp}: its log directory is offline")
        if self.removed:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(self.tp))

    def refuse_as_not_leader(self) -> NoReturn:
        """Raises NOT_LEADER_OR_FOLLOWER, or the reason why the replica cannot be used at all."""
        self._check_usable()
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.tp} is led by {self.leader_id}")

    def refuse_offset(self, offset: int) -> NoReturn:
        """Raises OFFSET_OUT_OF_RANGE."""
        bounds = f"[{self.log.log_start_offset}, {self.log.log_end_offset}]"
        raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.tp}: {offset} is outside {bounds}")

    def refuse_as_corrupt(self, error: CorruptBatchError) -> NoReturn:
        """Raises CORRUPT_MESSAGE. The replica stays online: its other batches may be intact."""
        self.fault(f"reading {self.tp}", error)
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{self.tp}: {error}") from error

    def fault(self, work: str, error: Exception) -> None:
        """Report a bug that ends `work` and nothing else."""
        self._context.failures.fault(work, error)

    def storage_failed(self, error: OSError | InconsistentLogError, log_path: str = "") -> NoReturn:
        """Takes the log directory offline (`log_path`: as in ReplicaFailures). Raises KAFKA_STORAGE_ERROR."""
        self._context.failures.storage_failed(self, error, log_path)
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.tp}: {error}") from error
