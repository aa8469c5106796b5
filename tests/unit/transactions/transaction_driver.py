"""A TransactionStateManager as the runtime keeps it, without a log: what is decided is replayed at once.

Every record passes through its bytes, so that a new coordinator's manager (`failover`) is what the log says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from data_plane.coordinator.state_machine import CoordinatorResult, Instant, ProducerIdAndEpoch
from data_plane.coordinator.transactions.records import TransactionMetadata, TransactionRecord, decode, encode
from data_plane.coordinator.transactions.transaction_state_manager import (
    TransactionLimits,
    TransactionStateManager,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition

EPOCH_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000


class TransactionDriver:
    def __init__(self, limits: TransactionLimits | None = None) -> None:
        self.limits = limits or TransactionLimits()
        self.manager = TransactionStateManager(self.limits)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = EPOCH_MS
        self.ahead_ms = 0
        """Of the wall clock: how far it was set forward."""
        self.next_producer_id = 1000

    @property
    def at(self) -> Instant:
        return Instant(self.now_ms / 1000, self.now_ms + self.ahead_ms)

    def init(
        self, name: str, expected: ProducerIdAndEpoch | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> ProducerIdAndEpoch | ErrorCode:
        fresh_id = -1
        if self.manager.needs_producer_id(name):
            self.next_producer_id += 1
            fresh_id = self.next_producer_id
        return self._producer(
            lambda: self.manager.init_producer_id(name, timeout_ms, expected, fresh_id, 0, self.at)
        )

    def add(
        self,
        name: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        version: int = 0,
    ) -> ErrorCode:
        return self._code(
            lambda: self.manager.add_partitions(name, producer, partitions, version, 0, self.at)
        )

    def end(
        self, name: str, producer: ProducerIdAndEpoch, *, commit: bool, version: int = 0
    ) -> ProducerIdAndEpoch | ErrorCode:
        fresh_id = -1
        if self.manager.needs_next_producer_id(name, producer, version):
            self.next_producer_id += 1
            fresh_id = self.next_producer_id
        return self._producer(
            lambda: self.manager.end(
                name, producer, fresh_id, commit=commit, client_version=version, ticket=0, at=self.at
            )
        )

    def complete(self, name: str) -> TransactionMetadata:
        """The markers have been written; what they said."""
        [(_, prepared)] = self.manager.prepared(name, 0, self.at).replies
        assert isinstance(prepared, TransactionMetadata)
        self.carry_out(self.manager.complete(name, prepared, 0, self.at))
        return prepared

    def state(self, name: str) -> TransactionMetadata:
        [(_, known)] = self.manager.describe(name, 0, self.at).replies
        assert isinstance(known, TransactionMetadata)
        return known

    def failover(self) -> None:
        self.manager = TransactionStateManager(self.limits)
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            self.manager.replay(record, self.at)

    def carry_out(self, decision: CoordinatorResult[TransactionRecord]) -> object:
        for record in decision.records:
            self.log.append(encode(record))
            self.manager.replay(record, self.at)
        return decision.replies[0][1] if decision.replies else None

    def _producer(
        self, decide: Callable[[], CoordinatorResult[TransactionRecord]]
    ) -> ProducerIdAndEpoch | ErrorCode:
        reply = self.ask(decide)
        assert isinstance(reply, ProducerIdAndEpoch | ErrorCode)
        return reply

    def _code(self, decide: Callable[[], CoordinatorResult[TransactionRecord]]) -> ErrorCode:
        reply = self.ask(decide)
        return reply if isinstance(reply, ErrorCode) else ErrorCode.NONE

    def ask(self, decide: Callable[[], CoordinatorResult[TransactionRecord]]) -> object:
        try:
            reply = self.carry_out(decide())
        except BrokerError as refusal:
            return refusal.code
        return reply.code if isinstance(reply, BrokerError) else reply


def at_epoch(driver: TransactionDriver, name: str, epoch: int) -> ProducerIdAndEpoch:
    """An idle producer of that epoch, as the log tells of it."""
    record = TransactionRecord(name, TransactionMetadata(7, epoch, TIMEOUT_MS, updated_ms=EPOCH_MS))
    driver.log.append(encode(record))
    driver.failover()
    return ProducerIdAndEpoch(7, epoch)
