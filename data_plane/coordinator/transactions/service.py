"""The transactions coordinator of a broker: what kraft/api/transactions.py calls.

A transactional id belongs to one partition of `__transaction_state`, chosen as groups' are; the broker
that leads it coordinates. EndTxn is answered once PREPARE_* is replicated: from then on the outcome
cannot change, and a task of this service, here or at the next coordinator, writes the markers and
then COMPLETE_*. The partition's leader epoch is the coordinator epoch, which fences the markers of a
coordinator that has been replaced.

    api/transactions -> TransactionService -> runtime.Shard of the partition -> TransactionTable
                                           -> MarkerChannel (kraft/peers/txn_markers.py) -> partition leaders
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from data_plane.coordinator.groups.service import partition_of_group
from data_plane.coordinator.machine import Instant, Producer, Ticket
from data_plane.coordinator.runtime import PartitionLog, Phase, Shard, ShardLimits
from data_plane.coordinator.transactions.records import Transaction, TransactionRecord, TransactionState
from data_plane.coordinator.transactions.state_machine import (
    TransactionDecision,
    TransactionLimits,
    TransactionTable,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.supervision import supervised

TRANSACTIONS_TOPIC: Final = "__transaction_state"

ReplyT = TypeVar("ReplyT")

_RETRY_S: Final = 0.1
_AFTER_FAULT_S: Final = 5.0
"""Between attempts to write down what is done, while the partition's ISR is too small for it."""


class Marker(NamedTuple):
    """What partition leaders are told of a transaction's end."""

    producer: Producer
    coordinator_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]


class MarkerChannel(Protocol):
    """The way to the partitions' leaders."""

    async def write(self, marker: Marker) -> None:
        """Return once every partition that still exists has the marker, replicated. Never, where a newer
        coordinator has written markers: then its partition is about to be lost here."""


@dataclass(frozen=True, slots=True)
class TransactionServiceConfig:
    transactions: TransactionLimits = field(default_factory=TransactionLimits)
    shards: ShardLimits = field(default_factory=ShardLimits)
    partitions: int = 50
    """transaction.state.log.num.partitions, until the topic itself is known"""
    timeout_check_interval: float = 10.0
    """transaction.abort.timed.out.transaction.cleanup.interval.ms (seconds)"""
    expiry_check_interval: float = 3600.0
    """transaction.remove.expired.transaction.cleanup.interval.ms (seconds)"""


@dataclass(slots=True)
class _Held:
    """One partition led here."""

    shard: Shard[TransactionRecord]
    table: TransactionTable
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """By transactional id: markers being written."""
    others: set[asyncio.Task[None]] = field(default_factory=set)


class TransactionService:
    """All the shards of `__transaction_state` that this broker leads."""

    def __init__(
        self,
        config: TransactionServiceConfig,
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
        self._held: dict[int, _Held] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._every("timeouts", config.timeout_check_interval, self._abort_timed_out)
        self._every("expiry", config.expiry_check_interval, self._expire)

    # --- leadership ----------------------------------------------------------------------------

    def partition_for(self, transactional_id: str) -> int:
        return partition_of_group(transactional_id, self.partitions)

    def become_leader(self, partition: int, leader_epoch: int) -> None:
        """Load the partition and serve its ids. An epoch that is not newer changes nothing."""
        held = self._held.get(partition)
        if held is not None:
            if held.shard.leader_epoch >= leader_epoch and held.shard.phase is not Phase.FAILED:
                return
            self.resign(partition)
        table = TransactionTable(self._config.transactions)
        shard = Shard[TransactionRecord](
            partition, leader_epoch, table, self._log, self._loop, self._now_ms, self._config.shards
        )
        held = self._held[partition] = _Held(shard, table)
        self._spawn(held, self._take_up(held))

    def resign(self, partition: int) -> None:
        """The partition is led elsewhere, or nowhere."""
        held = self._held.pop(partition, None)
        if held is None:
            return
        for task in (*held.tasks.values(), *held.others):
            task.cancel()
        held.shard.close()

    async def loaded(self) -> None:
        """Wait until no partition is loading."""
        for held in list(self._held.values()):
            await held.shard.loaded()

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for partition in list(self._held):
            self.resign(partition)

    # --- producers -----------------------------------------------------------------------------

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None
    ) -> Producer:
        """Who the caller is from now on. CONCURRENT_TRANSACTIONS while its last transaction ends."""
        held = self._holder(transactional_id)
        fresh_id = await self._fresh_id(held, transactional_id)
        try:
            return await self._ask(
                held,
                Producer,
                lambda ticket, at: held.table.init_producer_id(
                    transactional_id, timeout_ms, expected, fresh_id, ticket, at
                ),
            )
        finally:
            self._complete_soon(held, transactional_id)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> None:
        """On return they are part of the producer's transaction."""
        held = self._holder(transactional_id)
        await self._ask(
            held,
            bool,
            lambda ticket, at: held.table.add_partitions(
                transactional_id, producer, partitions, client_version, ticket, at
            ),
        )

    async def verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> tuple[TopicPartition, ...]:
        """Those that are not in the producer's open transaction."""
        held = self._holder(transactional_id)
        return await self._ask(
            held,
            tuple,
            lambda ticket, at: held.table.verify(transactional_id, producer, partitions, ticket, at),
        )

    async def end(
        self, transactional_id: str, producer: Producer, *, commit: bool, client_version: int
    ) -> Producer:
        """The outcome is certain on return. Who the caller is in its next transaction."""
        held = self._holder(transactional_id)
        fresh_id = await self._fresh_id(held, transactional_id)
        try:
            return await self._ask(
                held,
                Producer,
                lambda ticket, at: held.table.end(
                    transactional_id,
                    producer,
                    fresh_id,
                    commit=commit,
                    client_version=client_version,
                    ticket=ticket,
                    at=at,
                ),
            )
        finally:
            self._complete_soon(held, transactional_id)

    # --- looking -------------------------------------------------------------------------------

    async def describe(self, transactional_id: str) -> Transaction:
        held = self._holder(transactional_id)
        return await self._ask(
            held, Transaction, lambda ticket, at: held.table.describe(transactional_id, ticket, at)
        )

    async def list(self) -> list[tuple[str, Transaction]]:
        """Every transactional id that is coordinated here. Raises while a partition is being loaded."""
        listed: list[tuple[str, Transaction]] = []
        for held in list(self._held.values()):
            listed += await self._ask(held, tuple, held.table.list)
        return listed

    # --- inside --------------------------------------------------------------------------------

    def _holder(self, transactional_id: str) -> _Held:
        held = self._held.get(self.partition_for(transactional_id))
        if held is None:
            raise BrokerError(ErrorCode.NOT_COORDINATOR)
        held.shard.check_serving()
        return held

    async def _ask(
        self,
        held: _Held,
        reply_type: type[ReplyT],
        decide: Callable[[Ticket, Instant], TransactionDecision],
    ) -> ReplyT:
        reply = await held.shard.submit(decide)
        assert isinstance(reply, reply_type)
        return reply

    async def _fresh_id(self, held: _Held, transactional_id: str) -> int:
        if held.table.needs_producer_id(transactional_id):
            return await self._next_producer_id()
        return -1

    # --- markers -------------------------------------------------------------------------------

    async def _take_up(self, held: _Held) -> None:
        """After a load: what the coordinator before had begun to end."""
        await held.shard.loaded()
        if held.shard.phase is Phase.ACTIVE:
            for transactional_id in list(held.table.to_complete()):
                self._complete_soon(held, transactional_id)

    def _complete_soon(self, held: _Held, transactional_id: str) -> None:
        """Whatever became of the request: if its record is in the log, its markers are due."""
        if transactional_id in held.tasks or held.shard.phase is not Phase.ACTIVE:
            return
        if not held.table.is_prepared(transactional_id):
            return
        task = supervised(self._loop, self._complete(held, transactional_id), f"markers-{transactional_id}")
        held.tasks[transactional_id] = task
        task.add_done_callback(partial(self._completed, held, transactional_id))

    def _completed(self, held: _Held, transactional_id: str, task: asyncio.Task[None]) -> None:
        held.tasks.pop(transactional_id, None)
        if not task.cancelled() and task.exception() is not None:  # of a bug: not at once again
            self._loop.call_later(_AFTER_FAULT_S, self._complete_soon, held, transactional_id)
        else:
            self._complete_soon(held, transactional_id)  # prepared anew meanwhile

    async def _complete(self, held: _Held, transactional_id: str) -> None:
        table = held.table
        # The answer comes when PREPARE_* is replicated, not before: only then is the outcome certain.
        prepared = await self._insist(held, partial(table.prepared, transactional_id))
        if isinstance(prepared, Transaction):
            await self._write_markers(held, prepared)
            await self._insist(held, partial(table.complete, transactional_id, prepared))

    async def _insist(
        self, held: _Held, decide: Callable[[Ticket, Instant], TransactionDecision]
    ) -> object | None:
        """Ask until it is answered; None where the partition is lost."""
        while held.shard.phase is Phase.ACTIVE:
            try:
                return await held.shard.submit(decide)
            except BrokerError:
                await asyncio.sleep(_RETRY_S)
        return None

    async def _write_markers(self, held: _Held, prepared: Transaction) -> None:
        if prepared.partitions:
            await self._markers.write(
                Marker(
                    Producer(prepared.producer_id, prepared.producer_epoch),
                    held.shard.leader_epoch,
                    prepared.state is TransactionState.PREPARE_COMMIT,
                    prepared.partitions,
                )
            )

    # --- time ----------------------------------------------------------------------------------

    def _every(self, name: str, interval: float, work: Callable[[], None]) -> None:
        def run() -> None:
            self._timers[name] = self._loop.call_later(interval, run)
            work()

        self._timers[name] = self._loop.call_later(interval, run)

    def _abort_timed_out(self) -> None:
        at = Instant(self._loop.time(), self._now_ms())
        for held in self._active():
            for transactional_id in list(held.table.timed_out(at)):
                self._spawn(held, self._abort(held, transactional_id))

    async def _abort(self, held: _Held, transactional_id: str) -> None:
        try:
            await held.shard.submit(partial(held.table.abort_if_timed_out, transactional_id))
        except BrokerError:
            pass  # looked at again in the next turn
        finally:
            self._complete_soon(held, transactional_id)

    def _expire(self) -> None:
        """Some ids, of one shard, in a turn of the loop."""
        self._expire_some(deque(self._active()))

    def _expire_some(self, left: deque[_Held]) -> None:
        if not left:
            return
        held = left.popleft()
        if held.shard.phase is Phase.ACTIVE and held.shard.run(held.table.expire):
            left.append(held)
        self._loop.call_soon(self._expire_some, left)

    def _active(self) -> Iterable[_Held]:
        return [held for held in self._held.values() if held.shard.phase is Phase.ACTIVE]

    def _spawn(self, held: _Held, work: Coroutine[Any, Any, None]) -> None:
        task = supervised(self._loop, work, "transactions")
        held.others.add(task)
        task.add_done_callback(held.others.discard)
