"""Keeps one coordinator's state machine over one partition of an internal topic.

The partition's leader is the coordinator. Becoming leader, it reads the partition from its start
to its end and replays every record (COORDINATOR_LOAD_IN_PROGRESS meanwhile), then serves. A
decision's records are appended as any producer's, with acks=all; its replies are parked until the
high watermark has passed everything appended so far, so that no reply ever shows what a new
coordinator might not have. Losing leadership ends the shard: waiting requests get NOT_COORDINATOR.

    service -> Shard.submit -> state machine -> PartitionLog.append -> replay -> (HW passes) -> reply

Records may be part of a producer's transaction (offsets that are committed with it). The machine holds them
until the transaction's marker, which is written here too, so that log and machine see one order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import count
from typing import Any, Final, Generic, NamedTuple, TypeVar

from data_plane.coordinator.append_errors import AS_COORDINATOR
from data_plane.coordinator.loading import Loads
from data_plane.coordinator.partition_log import PartitionLog
from data_plane.coordinator.replay import LogReplay
from data_plane.coordinator.state_machine import (
    RECORD_OVERHEAD_BYTES,
    CoordinatorResult,
    CoordinatorStateMachine,
    Instant,
    ProducerIdAndEpoch,
    Replies,
    Ticket,
)
from metadata_quorum.foundation.batch import (
    BATCH_OVERHEAD,
    NO_PRODUCER_ID,
    Record,
    encode_batch,
    encode_end_txn_marker,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.supervision import report_fault, supervised
from metadata_quorum.foundation.turns import TurnShare

RecordT = TypeVar("RecordT")
ReplyT = TypeVar("ReplyT")

logger = logging.getLogger(__name__)

TICK_RETRY_S: Final = 1.0
"""After a fault in the machine's own work: it is still due, but not at once again."""
STOOD_STILL_S: Final = 0.5
"""A timer that is later than this: the process stood still, and has not read what was sent to it since."""
GRACE_S: Final = 1.0
"""After that, before anybody's silence counts: members' heartbeats are among what is read first."""
ANSWERED_PER_TURN: Final = 100
"""Replies that hold from the same moment on: each wakes a request, which takes some 70 microseconds."""
STARTED_PER_TURN: Final = 2000
"""Groups and members whose sessions begin when all is loaded."""


class CoordinatorState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """Times in seconds, sizes in bytes."""

    commit_timeout: float = 5.0
    """offsets.commit.timeout.ms: how long a reply waits for replication."""
    load_slice_bytes: int = 5 * 1024 * 1024
    """offsets.load.buffer.size: what is read at a time while loading."""
    load_turn_bytes: int = 64 * 1024
    """How much is replayed per turn of the loop, of all partitions (some milliseconds' worth)."""


class _DeferredReply(NamedTuple):
    until: int
    """Offset that the high watermark must reach."""
    deadline: float
    ticket: Ticket
    reply: object


class Shard(Generic[RecordT]):
    """One partition's state machine, from becoming leader to losing it."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        state_machine: CoordinatorStateMachine[RecordT],
        log: PartitionLog,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        limits: ShardLimits,
        loads: Loads,
        answers: TurnShare,
    ) -> None:
        """`answers`: how many requests are answered in a turn of the loop, of all partitions of the topic."""
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = CoordinatorState.LOADING
        self._state_machine = state_machine
        self._log = log
        self._loop = loop
        self._now_ms = now_ms
        self._limits = limits
        self._loads = loads
        self._answers = answers
        self._tickets = count()
        self._waiting: dict[Ticket, asyncio.Future[object]] = {}
        self._deferred: deque[_DeferredReply] = deque()
        self._refused: deque[Ticket] = deque()
        """Its requests, when it serves no longer."""
        self._written = 0
        """Offset behind the last record that the machine's state rests on."""
        self._replicated = 0
        self._awaited = 0
        """The offset that the log tells of when it is replicated."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        """Kept here: of what is due at once, uvloop's handle does not say when."""
        self._not_before = 0.0
        """When the timer may ring next."""
        self.load_s = 0.0
        """What the last load took."""
        self._before_serving: deque[Callable[[], None]] = deque()
        self._loading = supervised(loop, self._load(), f"load-coordinator-{partition}")

    @property
    def written(self) -> int:
        """Offset behind the last record that its state rests on."""
        return self._written

    # --- serving -------------------------------------------------------------------------------

    async def submit(self, decide: Callable[[Ticket, Instant], CoordinatorResult[RecordT]]) -> object:
        """Let the machine decide one request and wait for its reply. Raises BrokerError."""
        self.check_serving()
        ticket = next(self._tickets)
        answer = self._waiting[ticket] = self._loop.create_future()
        try:
            at = self._instant()
            self._carry_out(decide(ticket, at), at)
            return await answer
        finally:
            self._waiting.pop(ticket, None)
            del answer  # an error's traceback has this frame, and the future has the error

    async def ask(
        self, reply_type: type[ReplyT], decide: Callable[[Ticket, Instant], CoordinatorResult[RecordT]]
    ) -> ReplyT:
        """`submit`, where every reply is of one type. Raises BrokerError."""
        reply = await self.submit(decide)
        assert isinstance(reply, reply_type)
        return reply

    async def ask_all(
        self, decide: Callable[[Ticket, Instant], CoordinatorResult[RecordT]]
    ) -> tuple[Any, ...]:
        """For a part of a list that many partitions make: nothing where it has moved while others, or it,
        were asked, or cannot be loaded. Raises BrokerError while it is being loaded."""
        try:
            return await self.ask(tuple, decide)
        except BrokerError:
            if self.state in (CoordinatorState.CLOSED, CoordinatorState.FAILED):
                return ()
            raise

    def run(self, decide: Callable[[Instant], CoordinatorResult[RecordT]]) -> int:
        """Work of the coordinator's own, without a reply; returns how many records were appended."""
        at = self._instant()
        return self._carry_out(decide(at), at)

    async def end_transaction(
        self, producer: ProducerIdAndEpoch, coordinator_epoch: int, *, commit: bool
    ) -> None:
        """Write the marker and carry it out; returns when it is replicated. Raises BrokerError."""
        self.check_serving()
        marker = encode_end_txn_marker(
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timestamp=self._now_ms(),
        )
        self._write(marker)
        self._take(partial(self._state_machine.end_transaction, producer.producer_id, commit=commit))
        await self.submit(lambda ticket, at: CoordinatorResult(replies=[(ticket, None)]))

    def check_serving(self) -> None:
        """Raises BrokerError, COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR, while it does not serve."""
        if self.state is CoordinatorState.LOADING:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self.state is not CoordinatorState.ACTIVE:
            raise BrokerError(ErrorCode.NOT_COORDINATOR)

    def before_serving(self, callback: Callable[[], None]) -> None:
        """While it is being loaded: called once everything is replayed, before any request is decided."""
        self._before_serving.append(callback)

    async def loaded(self) -> None:
        """Wait until loading has ended, one way or the other."""
        await asyncio.gather(self._loading, return_exceptions=True)

    def close(self) -> None:
        """Leadership is lost, or the node stops."""
        self.state = CoordinatorState.CLOSED
        self._loading.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._deferred.clear()
        self._before_serving.clear()
        self._refused.extend(self._waiting)
        self._refuse_some()

    # --- inside --------------------------------------------------------------------------------

    def _refuse_some(self) -> None:
        while self._refused and self._answers.take(self._refuse_some):
            self._answer(self._refused.popleft(), BrokerError(ErrorCode.NOT_COORDINATOR))

    def _carry_out(self, decision: CoordinatorResult[RecordT], at: Instant) -> int:
        """Returns how many of the records were appended."""
        replies = decision.replies
        left: Sequence[RecordT] = decision.records
        while left:
            try:
                count = self._append(left, decision, at)
            except BrokerError as e:
                code = AS_COORDINATOR.get(e.code, e.code)
                logger.warning("%d records for partition %d: %s", len(left), self.partition, e)
                replies = [(ticket, BrokerError(code)) for ticket, _ in replies]
                replies += self._state_machine.refused(left, code, at)
                break
            replies += self._replay(left[:count], decision.producer, at)
            if self.state is CoordinatorState.FAILED:
                return 0
            left = left[count:]
        self._park(replies, at)
        self._arm_timer()
        return len(decision.records) - len(left)

    def _replay(
        self, records: Sequence[RecordT], producer: ProducerIdAndEpoch | None, at: Instant
    ) -> Replies:
        replies: Replies = []

        def take_all() -> None:
            for record in records:
                if producer is not None:
                    self._state_machine.hold(record, producer.producer_id)
                else:
                    replies.extend(self._state_machine.replay(record, at))

        self._take(take_all)
        return replies

    def _take(self, take: Callable[[], object]) -> None:
        """What is in the log is the truth: a machine that cannot take it serves no longer."""
        if self.state is CoordinatorState.FAILED:
            return  # it could not be written
        try:
            take()
        except Exception as e:  # noqa: BLE001
            self._fail(e)

    def _fail(self, error: Exception) -> None:
        what = f"the coordinator's partition {self.partition}, which is to be loaded anew,"
        report_fault(self._loop, what, error)
        self.close()
        self.state = CoordinatorState.FAILED
        self._loads.failed(self.partition, self.leader_epoch)

    def _write(self, batch: bytes) -> None:
        """Raises BrokerError: then it is not in the log. Otherwise nobody knows, and the shard fails."""
        try:
            self._written = self._log.append(self.partition, self.leader_epoch, bytearray(batch))
        except BrokerError:
            raise
        except Exception as e:  # noqa: BLE001
            self._fail(e)

    def _encoded(self, records: Sequence[RecordT], *, atomic: bool) -> list[tuple[bytes, bytes | None]]:
        """All of them, or as many as a batch has room for; one at least. No more than that is encoded: a
        thousand keys may have a name of 32 KB each. Raises BrokerError."""
        room = self._log.max_batch_bytes(self.partition)
        pairs: list[tuple[bytes, bytes | None]] = []
        size, overhead = 0, BATCH_OVERHEAD
        for record in records:
            try:
                key, value = self._state_machine.encode(record)
            except Exception as e:
                report_fault(self._loop, f"a record for the coordinator's partition {self.partition}", e)
                raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR) from e
            size += len(key) + len(value or b"")
            overhead += RECORD_OVERHEAD_BYTES
            if atomic and size > room:
                raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE)
            if not atomic and pairs and size + overhead > room:
                break
            pairs.append((key, value))
        return pairs

    def _append(self, records: Sequence[RecordT], decision: CoordinatorResult[RecordT], at: Instant) -> int:
        """Append one batch: all of them, or as many as it can take; returns how many."""
        pairs = self._encoded(records, atomic=decision.atomic)
        producer_id, epoch = decision.producer or (NO_PRODUCER_ID, -1)
        batch = encode_batch(
            [Record(-1, at.now_ms, key, value) for key, value in pairs],  # by name takes twice as long
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional=decision.producer is not None,
        )
        self._write(batch)
        return len(pairs)

    def _await_replication(self) -> None:
        """One wait per end of the log, however many replies rest on it: while the ISR is too small, clients
        may come again and again for hours, and nothing is replicated."""
        offset = self._written
        if offset > self._awaited:
            self._awaited = offset
            self._log.when_replicated(self.partition, offset, partial(self._on_waited, offset))

    def _on_waited(self, offset: int, replicated: bool) -> None:
        if replicated:
            self._on_replicated(offset)
        elif offset == self._awaited and self.state is CoordinatorState.ACTIVE:  # the ISR may grow again
            self._awaited = self._replicated
            if self._deferred:
                self._await_replication()

    def _on_replicated(self, offset: int) -> None:
        self._replicated = max(self._replicated, offset)
        self._answer_some()

    def _answer_some(self) -> None:
        """A thousand members may have joined: other requests have their turns in between."""
        while self._deferred and self._deferred[0].until <= self._replicated:
            if not self._answers.take(self._answer_some):
                break
            parked = self._deferred.popleft()
            self._answer(parked.ticket, parked.reply)

    def _park(self, replies: Replies, at: Instant) -> None:
        refusals = [reply for reply in replies if isinstance(reply[1], BrokerError)]
        for ticket, refusal in refusals:
            self._answer(ticket, refusal)
        if len(refusals) == len(replies):
            return
        offset, deadline = self._written, at.now + self._limits.commit_timeout
        for ticket, reply in replies:
            if not isinstance(reply, BrokerError):
                self._deferred.append(_DeferredReply(offset, deadline, ticket, reply))
        if offset <= self._replicated:
            self._on_replicated(offset)
        else:
            self._await_replication()

    def _answer(self, ticket: Ticket, reply: object) -> None:
        future = self._waiting.get(ticket)
        if future is None or future.done():
            return  # the requester is gone
        if isinstance(reply, BrokerError):
            future.set_exception(reply)
        else:
            future.set_result(reply)

    # --- time ----------------------------------------------------------------------------------

    def _instant(self) -> Instant:
        return Instant(self._loop.time(), self._now_ms())

    def _arm_timer(self) -> None:
        """One timer for all. It may ring early, when what it was set for has been put off."""
        due = self._state_machine.next_deadline()
        if self._deferred:
            due = min(due, self._deferred[0].deadline)
        due = max(due, self._not_before, self._loop.time())
        if due == float("inf") or self.state is not CoordinatorState.ACTIVE:
            return
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        at = self._instant()
        if at.now - self._timer_due > STOOD_STILL_S and self._timer_due > self._not_before:
            self._not_before = at.now + GRACE_S
            self._arm_timer()
            return
        while self._deferred and self._deferred[0].deadline <= at.now:
            if not self._answers.take(self._arm_timer):
                break  # the others with a later turn: they are due still
            parked = self._deferred.popleft()
            late = parked.until > self._replicated
            unknown = BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._answer(parked.ticket, unknown if late else parked.reply)
        if self._state_machine.next_deadline() <= at.now:
            try:
                self._carry_out(self._state_machine.tick(at), at)
            except Exception as e:  # noqa: BLE001 - what is overdue stays so: not at once again
                report_fault(self._loop, f"a timer of the coordinator's partition {self.partition}", e)
                self._not_before = at.now + TICK_RETRY_S
        self._arm_timer()

    # --- loading -------------------------------------------------------------------------------

    async def _load(self) -> None:
        began = self._loop.time()
        try:
            replay = LogReplay(
                self.partition, self._state_machine, self._log, self._loop,
                self._instant, self._loads, self._limits.load_slice_bytes,
            )  # fmt: skip
            self._written = await replay.run()
            left = STARTED_PER_TURN
            for started in self._state_machine.loaded(self._instant()):
                if (left := left - started) < 0:
                    await self._loads.turn(self._limits.load_turn_bytes)
                    left = STARTED_PER_TURN
            while self._before_serving:  # each refers to this shard: a cycle would keep it when it is closed
                self._before_serving.popleft()()
        except (BrokerError, ValueError, OSError) as e:
            if self.state is CoordinatorState.CLOSED:  # what could not be read was its own disk's end
                return
            self.state = CoordinatorState.FAILED
            logger.error("partition %d of the coordinator cannot be loaded: %s", self.partition, e)
            self._loads.failed(self.partition, self.leader_epoch)
            return
        except Exception as e:  # noqa: BLE001
            self._fail(e)
            return
        self.state = CoordinatorState.ACTIVE
        self.load_s = self._loop.time() - began
        self._arm_timer()
