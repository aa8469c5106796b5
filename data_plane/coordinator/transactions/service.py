"""The transactions coordinator of a broker: what kraft/api/transactions.py and add_partitions.py call.

A transactional id belongs to one partition of `__transaction_state`, chosen as groups' are; the broker
that leads it coordinates. EndTxn is answered once PREPARE_* is replicated: from then on the outcome
cannot change, and a task of this service, here or at the next coordinator, writes the markers and
then COMPLETE_*. The partition's leader epoch is the coordinator epoch, which fences the markers of a
coordinator that has been replaced.

    api/transactions -> TransactionCoordinator -> runtime.Shard of the partition -> TransactionStateManager
                                           -> MarkerChannel (kraft/peers/txn_markers.py) -> partition leaders
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from data_plane.coordinator.loading import Loads
from data_plane.coordinator.partition_log import PartitionLog
from data_plane.coordinator.runtime import (
    ANSWERED_PER_TURN,
    GRACE_S,
    STOOD_STILL_S,
    CoordinatorState,
    Shard,
    ShardLimits,
)
from data_plane.coordinator.state_machine import Instant, ProducerIdAndEpoch, Ticket
from data_plane.coordinator.topics import partition_for_key
from data_plane.coordinator.transactions.records import (
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from data_plane.coordinator.transactions.transaction_state_manager import (
    TransactionLimits,
    TransactionResult,
    TransactionStateManager,
)
from metadata_quorum.foundation.batch import NO_PRODUCER_ID
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.supervision import bounded, supervised
from metadata_quorum.foundation.turns import Turns, TurnShare, some_per_turn

_RETRY_S: Final = 0.1
"""Between attempts to write down what is done, while the partition's ISR is too small for it."""
_AFTER_FAULT_S: Final = 5.0  # before a transaction whose markers met a bug is tried again
ENDED_PER_TURN: Final = 50
"""Transactions that end together, of all partitions: their producers died together, or the last coordinator
did. Each takes some 100 microseconds."""

WRITTEN_PER_TURN: Final = 1000
"""Partitions, in all decisions of one turn of the loop. Each takes half a microsecond whenever it is written,
or two if it is the only one of its topic."""
FEW: Final = 20
"""Partitions of a transaction that take little beside the rest of its decision."""


@dataclass(slots=True)
class _Waiting:
    """Decisions about one transactional id that wait for their turns."""

    one_by_one: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0


class TransactionMarker(NamedTuple):
    """The end of a transaction, as partition leaders write it."""

    producer: ProducerIdAndEpoch
    coordinator_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int = 0
    """From 2 on its epoch is above that of the transaction that it ends."""


class MarkerChannel(Protocol):
    """The channel to the partitions' leaders."""

    async def write(self, marker: TransactionMarker) -> None:
        """Return once every partition that still exists has the marker, replicated. Never, where a newer
        coordinator has written markers: then this broker is about to lose the coordinator's partition."""


@dataclass(frozen=True, slots=True)
class TransactionCoordinatorConfig:
    transactions: TransactionLimits = field(default_factory=TransactionLimits)
    shards: ShardLimits = field(default_factory=ShardLimits)
    partitions: int = 50
    """transaction.state.log.num.partitions, until the topic itself is known"""
    timeout_check_interval: float = 10.0
    """transaction.abort.timed.out.transaction.cleanup.interval.ms (seconds)"""
    expiry_check_interval: float = 3600.0
    """transaction.remove.expired.transaction.cleanup.interval.ms (seconds)"""
    wait_for_end: float = 0.02
    """add.partitions.to.txn.retry.backoff.ms (seconds): a producer that begins its next transaction while the
    last one is ending waits this long before it is refused."""


@dataclass(slots=True)
class _LedPartition:
    """One partition led here."""

    shard: Shard[TransactionRecord]
    manager: TransactionStateManager
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """By transactional id: markers being written."""
    others: dict[asyncio.Task[None], None] = field(default_factory=dict)


class TransactionCoordinator:
    """All the shards of `__transaction_state` that this broker leads."""

    def __init__(
        self,
        config: TransactionCoordinatorConfig,
        log: PartitionLog,
        markers: MarkerChannel,
        next_producer_id: Callable[[], Awaitable[int]],
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._log = log
        self._markers = markers
        self._next_producer_id = next_producer_id
        self._loop = loop
        self._now_ms = now_ms
        self.partitions = config.partitions
        """How many partitions the topic has; the publisher sets it when it sees the topic."""
        self._led: dict[int, _LedPartition] = {}
        self._loads = Loads(loop, self.become_leader, config.shards.load_turn_bytes)
        self._answers = TurnShare(loop, ANSWERED_PER_TURN)
        self._ends = TurnShare(loop, ENDED_PER_TURN)
        """Of transactions that another coordinator has prepared, or is to complete."""
        self._turns = Turns(loop, WRITTEN_PER_TURN)
        """Of decisions about transactions of more than a few partitions."""
        self._waiting: dict[str, _Waiting] = {}
        """For their turns, by transactional id."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._every("timeouts", config.timeout_check_interval, self._abort_timed_out)
        self._every("expiry", config.expiry_check_interval, self._expire)

    @property
    def shards(self) -> list[Shard[TransactionRecord]]:
        """The shards of the partitions that are led here."""
        return [led.shard for led in self._led.values()]

    # --- leadership ----------------------------------------------------------------------------

    def partition_for(self, transactional_id: str) -> int:
        return partition_for_key(transactional_id, self.partitions)

    def become_leader(self, partition: int, leader_epoch: int) -> None:
        """Load the partition and serve its ids. An epoch that is not newer changes nothing."""
        led = self._led.get(partition)
        if led is not None:
            if led.shard.leader_epoch >= leader_epoch and led.shard.state is not CoordinatorState.FAILED:
                return
            self._let_go(partition)
        manager = TransactionStateManager(self._config.transactions)
        shard = Shard[TransactionRecord](
            partition,
            leader_epoch,
            manager,
            self._log,
            self._loop,
            self._now_ms,
            self._config.shards,
            self._loads,
            self._answers,
        )
        led = self._led[partition] = _LedPartition(shard, manager)
        self._spawn(led, self._resume_prepared(led))

    def resign(self, partition: int) -> None:
        """The partition is led elsewhere, or nowhere."""
        self._loads.resigned(partition)
        self._let_go(partition)

    def _let_go(self, partition: int) -> None:
        led = self._led.pop(partition, None)
        if led is None:
            return
        led.shard.close()
        self._call_off(deque((*led.tasks.values(), *led.others)))

    def _call_off(self, tasks: deque[asyncio.Task[None]]) -> None:
        while tasks and self._ends.take(partial(self._call_off, tasks)):
            tasks.popleft().cancel()

    async def loaded(self) -> None:
        """Wait until no partition is loading."""
        for led in list(self._led.values()):
            await led.shard.loaded()

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for partition in list(self._led):
            self.resign(partition)

    # --- producers -----------------------------------------------------------------------------

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> ProducerIdAndEpoch:
        """The caller's producer id and epoch from now on. Raises CONCURRENT_TRANSACTIONS while its last
        transaction is completing."""
        _check_named(transactional_id)
        # Before a producer id is taken: nobody could use it.
        if not 0 < timeout_ms <= self._config.transactions.max_timeout_ms:
            raise BrokerError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        led = self._led_for(transactional_id)
        led.manager.check_length(transactional_id)
        await self._turn_of(led, transactional_id)
        fresh_id = await self._fresh_id(needed=led.manager.needs_producer_id(transactional_id))
        try:
            return await led.shard.ask(
                ProducerIdAndEpoch,
                partial(led.manager.init_producer_id, transactional_id, timeout_ms, expected, fresh_id),
            )
        finally:
            self._complete_soon(led, transactional_id)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> None:
        """On return they are part of the producer's transaction. Raises CONCURRENT_TRANSACTIONS where its
        last one does not end soon: most have ended a few ms later, and a refused client pauses for 20."""
        _check_named(transactional_id)
        led = self._led_for(transactional_id)
        decide = partial(led.manager.add_partitions, transactional_id, producer, partitions, client_version)
        await self._turn_of(led, transactional_id, len(partitions))
        try:
            await led.shard.ask(bool, decide)
        except BrokerError as error:
            ending = led.tasks.get(transactional_id)
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS or ending is None:
                raise
            await asyncio.wait((ending,), timeout=self._config.wait_for_end)
            await self._turn_of(led, transactional_id, len(partitions))
            await led.shard.ask(bool, decide)

    async def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> tuple[TopicPartition, ...]:
        """Those that are not in the producer's open transaction."""
        _check_named(transactional_id)
        led = self._led_for(transactional_id)
        return await led.shard.ask(tuple, partial(led.manager.verify, transactional_id, producer, partitions))

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int
    ) -> ProducerIdAndEpoch:
        """The outcome is certain on return. The caller's id and epoch in its next transaction."""
        _check_named(transactional_id)
        led = self._led_for(transactional_id)
        await self._turn_of(led, transactional_id)
        uses_one = led.manager.needs_next_producer_id(transactional_id, producer, client_version)
        fresh_id = await self._fresh_id(needed=uses_one)
        try:
            decide = partial(
                led.manager.end,
                transactional_id,
                producer,
                fresh_id,
                commit=commit,
                client_version=client_version,
            )
            return await led.shard.ask(ProducerIdAndEpoch, decide)
        finally:
            self._complete_soon(led, transactional_id)

    # --- queries -------------------------------------------------------------------------------

    async def describe(self, transactional_id: str) -> TransactionMetadata:
        led = self._led_for(transactional_id)
        return await led.shard.ask(TransactionMetadata, partial(led.manager.describe, transactional_id))

    async def list(self) -> AsyncIterator[tuple[tuple[str, TransactionMetadata], ...]]:
        """Every transactional id that is coordinated here, by partition. Raises while one is being loaded."""
        for led in list(self._led.values()):
            yield await led.shard.ask_all(led.manager.list)

    def unfinished(self) -> Iterator[tuple[str, TransactionMetadata]]:
        """Unfinished transactions as they are now, replicated or not; for monitoring."""
        for led in self._active():
            yield from led.manager.unfinished()

    # --- shards --------------------------------------------------------------------------------

    def _led_for(self, transactional_id: str) -> _LedPartition:
        """The partition with this id.

        Raises:
            BrokerError: NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS: it does not serve yet.
        """
        led = self._led.get(self.partition_for(transactional_id))
        if led is None:
            raise BrokerError(ErrorCode.NOT_COORDINATOR)
        led.shard.check_serving()
        return led

    async def _turn_of(self, led: _LedPartition, transactional_id: str, more: int = 0) -> None:
        """Wait for it where this turn has no room: with each decision all partitions of the transaction are
        written, and dozens may be asked for at once. Decisions about one id are made in their order."""
        partitions = led.manager.partitions_of(transactional_id) + more
        waiting = self._waiting.get(transactional_id)
        if waiting is None:
            if partitions <= FEW or self._turns.has_room(partitions):
                return
            waiting = self._waiting[transactional_id] = _Waiting()
        waiting.count += 1
        try:
            async with waiting.one_by_one:
                await self._turns.next(partitions)
        finally:
            waiting.count -= 1
            if not waiting.count:
                del self._waiting[transactional_id]

    async def _fresh_id(self, *, needed: bool) -> int:
        """Where none is needed nothing is waited for: what has been looked at is so still."""
        return await self._next_producer_id() if needed else NO_PRODUCER_ID

    # --- markers -------------------------------------------------------------------------------

    async def _resume_prepared(self, led: _LedPartition) -> None:
        """After a load: complete what the previous coordinator had prepared."""
        await led.shard.loaded()
        if led.shard.state is CoordinatorState.ACTIVE:
            for transactional_id in list(led.manager.to_complete()):
                await self._ends.wait()
                self._complete_soon(led, transactional_id)

    def _complete_soon(self, led: _LedPartition, transactional_id: str) -> None:
        """Whatever the outcome of the request: if its record is in the log, its markers are due."""
        if transactional_id in led.tasks or led.shard.state is not CoordinatorState.ACTIVE:
            return
        if not led.manager.is_prepared(transactional_id):
            return
        task = supervised(self._loop, self._complete(led, transactional_id), f"markers-{transactional_id}")
        led.tasks[transactional_id] = task
        task.add_done_callback(partial(self._completed, led, transactional_id))

    def _completed(self, led: _LedPartition, transactional_id: str, task: asyncio.Task[None]) -> None:
        led.tasks.pop(transactional_id, None)
        if not task.cancelled() and task.exception() is not None:  # a bug: not at once again
            self._loop.call_later(_AFTER_FAULT_S, self._complete_soon, led, transactional_id)
        else:
            self._complete_soon(led, transactional_id)  # prepared again meanwhile

    async def _complete(self, led: _LedPartition, transactional_id: str) -> None:
        # The reply comes when PREPARE_* is replicated, not before: only then is the outcome certain.
        prepared = await self._retry_until_decided(led, partial(led.manager.prepared, transactional_id))
        if isinstance(prepared, TransactionMetadata):
            await self._write_markers(led, prepared)
            await self._retry_until_decided(led, partial(led.manager.complete, transactional_id, prepared))

    async def _retry_until_decided(
        self, led: _LedPartition, decide: Callable[[Ticket, Instant], TransactionResult]
    ) -> object | None:
        """Retry until there is a reply; None where the partition is no longer led here."""
        while led.shard.state is CoordinatorState.ACTIVE:
            try:
                return await led.shard.submit(decide)
            except BrokerError:
                await asyncio.sleep(_RETRY_S)
        return None

    async def _write_markers(self, led: _LedPartition, prepared: TransactionMetadata) -> None:
        if prepared.partitions:
            await self._markers.write(
                TransactionMarker(
                    ProducerIdAndEpoch(prepared.producer_id, prepared.producer_epoch),
                    led.shard.leader_epoch,
                    prepared.state is TransactionState.PREPARE_COMMIT,
                    prepared.partitions,
                    prepared.client_version,
                )
            )

    # --- time ----------------------------------------------------------------------------------

    def _every(self, name: str, interval: float, work: Callable[[], None]) -> None:
        def wait(pause: float, *, for_clients: bool = False) -> None:
            due = self._loop.time() + pause
            self._timers[name] = self._loop.call_at(due, run, due, for_clients)

        def run(due: float, has_waited: bool) -> None:
            if self._loop.time() - due > STOOD_STILL_S and not has_waited:
                wait(GRACE_S, for_clients=True)  # the end of a transaction may be among what is read first
                return
            wait(interval)
            work()

        wait(interval)

    def _abort_timed_out(self) -> None:
        at = Instant(self._loop.time(), self._now_ms())
        late = deque((led, name) for led in self._active() for name in led.manager.timed_out(at))
        some_per_turn(self._loop, late, ENDED_PER_TURN, self._begin_abort)

    def _begin_abort(self, late: tuple[_LedPartition, str]) -> None:
        self._spawn(late[0], self._abort(*late))

    async def _abort(self, led: _LedPartition, transactional_id: str) -> None:
        await self._turn_of(led, transactional_id)
        try:
            await led.shard.submit(partial(led.manager.abort_if_timed_out, transactional_id))
        except BrokerError:
            pass  # checked again at the next interval
        finally:
            self._complete_soon(led, transactional_id)

    def _expire(self) -> None:
        """Some ids, of one shard, per turn of the loop. One that has more is behind the others again."""
        left = deque(self._active())

        def expire(led: _LedPartition) -> None:
            if led.shard.state is not CoordinatorState.ACTIVE:
                return
            work = f"expiry in the coordinator's partition {led.shard.partition}"
            if bounded(self._loop, work, led.shard.run, led.manager.expire):
                left.append(led)

        some_per_turn(self._loop, left, 1, expire)

    def _active(self) -> Iterable[_LedPartition]:
        return [led for led in self._led.values() if led.shard.state is CoordinatorState.ACTIVE]

    def _spawn(self, led: _LedPartition, work: Coroutine[Any, Any, None]) -> None:
        task = supervised(self._loop, work, "transactions")
        led.others[task] = None
        task.add_done_callback(led.others.pop)


def _check_named(transactional_id: str) -> None:
    """As Kafka, whichever broker is asked: not even its coordinator is looked for. Raises BrokerError."""
    if not transactional_id:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
