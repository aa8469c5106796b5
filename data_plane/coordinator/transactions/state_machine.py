"""One partition of `__transaction_state`: who may write under which producer id and epoch, and what
became of each transaction. Pure; kept by coordinator/runtime.py.

    EMPTY --add partitions--> ONGOING --end--> PREPARE_COMMIT --markers--> COMPLETE_COMMIT --add--> ONGOING
                                 |  `-------> PREPARE_ABORT  --markers--> COMPLETE_ABORT  --add--> ONGOING
                                 `--timeout, or InitProducerId of a new incarnation: PREPARE_ABORT, epoch + 1

    transaction.version  what ends a transaction                       who is fenced
    ---------------------------------------------------------------------------------------------
    0, 1                 the epoch stays                               by InitProducerId, timeout
    2 (KIP-890)          the epoch is bumped in PREPARE_*, so that a    every batch of the last
                         transaction's late batches are told apart      transaction

A decision takes effect as it is appended, and is answered when it is replicated: so a request sees
what was decided before it, and no answer shows what a new coordinator might not know. What must be
done besides (markers) is asked for by service.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from data_plane.coordinator.machine import Decision, Instant, Replies, Ticket
from data_plane.coordinator.transactions import records
from data_plane.coordinator.transactions.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
    TransactionRecord,
    TransactionState,
)
from metadata_quorum.errors import BrokerError, ErrorCode
from metadata_quorum.invariants import invariant
from metadata_quorum.model import TopicPartition

LAST_EPOCH: Final = 2**15 - 2
"""A producer id is given up after it; the one above is left for the fence of its last transaction."""
EPOCH_PER_TRANSACTION: Final = 2
"""The transaction.version from which on every transaction has an epoch of its own."""

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETE: Final = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

TransactionDecision = Decision[TransactionRecord]


class Producer(NamedTuple):
    """Who writes."""

    producer_id: int
    epoch: int


class Begun(NamedTuple):
    """InitProducerId's reply: who the caller is now."""

    producer: Producer


class Ended(NamedTuple):
    """EndTxn's reply: who the caller is in the next transaction; whether markers are to be written."""

    producer: Producer
    prepared: bool


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Times in ms."""

    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    id_expiration_ms: int = 604_800_000  # transactional.id.expiration.ms
    max_records_per_sweep: int = 1000


class TransactionTable:
    """A `Machine`: see the module. Requests raise BrokerError, or decide."""

    def __init__(self, limits: TransactionLimits) -> None:
        self._limits = limits
        self._transactions: dict[str, Transaction] = {}
        # Epochs before the last bump: to know a repeated InitProducerId by (KIP-360). In memory, as in Kafka.
        self._former_epochs: dict[str, int] = {}

    # --- InitProducerId ------------------------------------------------------------------------

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether `init_producer_id` or `end` will use a fresh id."""
        known = self._transactions.get(transactional_id)
        return known is None or known.producer_epoch >= LAST_EPOCH

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None,
        fresh_id: int,
        client_version: int,
        ticket: Ticket,
        at: Instant,
    ) -> TransactionDecision:
        """A producer begins, or begins again. CONCURRENT_TRANSACTIONS: its last transaction has yet to
        end; ask again. `Begun`."""
        if not 0 < timeout_ms <= self._limits.max_timeout_ms:
            raise BrokerError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        known = self._transactions.get(transactional_id)
        if known is None:
            if expected is not None:
                raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            begun = Transaction(fresh_id, 0, timeout_ms, updated_ms=at.now_ms, client_version=client_version)
            return _decided(transactional_id, begun, ticket)
        if expected is not None and not self._may_resume(transactional_id, known, expected):
            raise BrokerError(ErrorCode.PRODUCER_FENCED)
        if known.state in PREPARED:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is ONGOING:
            refusal = (ticket, BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS))
            return Decision([TransactionRecord(transactional_id, _fenced(known, at))], [refusal])
        if expected is not None and expected.epoch == self._former_epochs.get(transactional_id):
            return Decision(replies=[(ticket, Begun(_producer_of(known)))])  # the last answer was lost
        if known.producer_epoch >= LAST_EPOCH:
            producer = {
                "producer_id": fresh_id,
                "previous_producer_id": known.producer_id,
                "producer_epoch": 0,
            }
        else:
            producer = {"producer_epoch": known.producer_epoch + 1}
            self._former_epochs[transactional_id] = known.producer_epoch
        begun = dataclasses.replace(
            known,
            **producer,
            timeout_ms=timeout_ms,
            state=EMPTY,
            partitions=frozenset(),
            started_ms=-1,
            updated_ms=at.now_ms,
            client_version=client_version,
        )
        return _decided(transactional_id, begun, ticket)

    def _may_resume(self, transactional_id: str, known: Transaction, expected: Producer) -> bool:
        if expected.producer_id == known.producer_id:
            return expected.epoch in (known.producer_epoch, self._former_epochs.get(transactional_id))
        return expected.producer_id == known.previous_producer_id and expected.epoch >= LAST_EPOCH

    # --- AddPartitionsToTxn --------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        ticket: Ticket,
        at: Instant,
    ) -> TransactionDecision:
        """The producer is about to write there; the first one begins its transaction. `True`."""
        known = self._owned(transactional_id, producer)
        if known.state in PREPARED:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is ONGOING:
            if known.partitions.issuperset(partitions):
                return Decision(replies=[(ticket, True)])
            known = dataclasses.replace(known, partitions=known.partitions | frozenset(partitions))
        else:
            known = dataclasses.replace(
                known, state=ONGOING, partitions=frozenset(partitions), started_ms=at.now_ms
            )
        changed = dataclasses.replace(known, updated_ms=at.now_ms)
        return Decision([TransactionRecord(transactional_id, changed)], [(ticket, True)])

    def verify(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        ticket: Ticket,
        at: Instant,
    ) -> TransactionDecision:
        """Which of them are not part of the producer's open transaction (a leader asks before it appends
        the first batch)."""
        known = self._owned(transactional_id, producer)
        if known.state in PREPARED:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        there = known.partitions if known.state is ONGOING else frozenset()
        return Decision(replies=[(ticket, tuple(p for p in partitions if p not in there))])

    def _owned(self, transactional_id: str, producer: Producer) -> Transaction:
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        known = self._transactions.get(transactional_id)
        if known is None or known.producer_id != producer.producer_id:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.producer_epoch != producer.epoch:
            raise BrokerError(ErrorCode.PRODUCER_FENCED)
        return known

    # --- EndTxn --------------------------------------------------------------------------------

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        fresh_id: int,
        *,
        commit: bool,
        client_version: int,
        ticket: Ticket,
        at: Instant,
    ) -> TransactionDecision:
        """Commit or abort: durable with the reply, markers follow. `Ended`."""
        if client_version >= EPOCH_PER_TRANSACTION:
            return self._end_with_new_epoch(transactional_id, producer, fresh_id, commit, ticket, at)
        known = self._owned(transactional_id, producer)
        if known.state is ONGOING:
            return _decided(
                transactional_id, _prepared(known, commit, at), ticket, Ended(producer, prepared=True)
            )
        self._refuse_end_unless_repeated(known, commit)
        return Decision(replies=[(ticket, Ended(producer, prepared=False))])

    def _end_with_new_epoch(
        self,
        transactional_id: str,
        producer: Producer,
        fresh_id: int,
        commit: bool,
        ticket: Ticket,
        at: Instant,
    ) -> TransactionDecision:
        known = self._transactions.get(transactional_id)
        if known is None:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        rotated = (
            producer.producer_id == known.previous_producer_id
            and producer.epoch == LAST_EPOCH
            and known.producer_epoch == 0
        )
        if producer.producer_id != known.producer_id and not rotated:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        repeated = rotated or producer.epoch + 1 == known.producer_epoch
        current = producer == _producer_of(known)
        valid = {PREPARED[0]: repeated, PREPARED[1]: repeated, COMPLETE[0]: repeated or current,
                 COMPLETE[1]: repeated or current}.get(known.state, current)  # fmt: skip
        if not valid:
            raise BrokerError(ErrorCode.PRODUCER_FENCED)
        if repeated and known.state is not ONGOING:
            self._refuse_end_unless_repeated(known, commit)
            return Decision(replies=[(ticket, Ended(_producer_of(known), prepared=False))])
        if known.state is not ONGOING and commit:
            raise BrokerError(ErrorCode.INVALID_TXN_STATE)  # nothing was begun; an abort only bumps the epoch
        changed = _prepared(known, commit, at)
        if known.producer_epoch >= LAST_EPOCH:
            changed = dataclasses.replace(
                changed,
                producer_epoch=LAST_EPOCH + 1,
                next_producer_id=fresh_id,
                next_producer_epoch=0,
            )
            following = Producer(fresh_id, 0)
        else:
            changed = dataclasses.replace(changed, producer_epoch=known.producer_epoch + 1)
            following = _producer_of(changed)
        changed = dataclasses.replace(changed, client_version=EPOCH_PER_TRANSACTION)
        self._former_epochs[transactional_id] = known.producer_epoch
        return _decided(transactional_id, changed, ticket, Ended(following, prepared=True))

    @staticmethod
    def _refuse_end_unless_repeated(known: Transaction, commit: bool) -> None:
        """A repeated request is answered as the first one was; anything else is out of turn."""
        commits = known.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
        if known.state is EMPTY or commits is not commit:
            raise BrokerError(ErrorCode.INVALID_TXN_STATE)
        if known.state in PREPARED:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def abort_if_timed_out(self, transactional_id: str, ticket: Ticket, at: Instant) -> TransactionDecision:
        """Abort a transaction that is open for longer than its timeout, and fence its producer. The reply
        says whether it was."""
        known = self._transactions.get(transactional_id)
        if known is None or not _is_timed_out(known, at):
            return Decision(replies=[(ticket, False)])
        return Decision([TransactionRecord(transactional_id, _fenced(known, at))], [(ticket, True)])

    # --- markers -------------------------------------------------------------------------------

    def prepared(self, transactional_id: str, ticket: Ticket, at: Instant) -> TransactionDecision:
        """The transaction, if its markers are to be written; answered once that is replicated."""
        known = self._transactions.get(transactional_id)
        return Decision(replies=[(ticket, known if known is not None and known.state in PREPARED else None)])

    def complete(
        self, transactional_id: str, prepared: Transaction, ticket: Ticket, at: Instant
    ) -> TransactionDecision:
        """Every partition has the marker of what `prepared` told."""
        known = self._transactions.get(transactional_id)
        if known != prepared:
            return Decision(replies=[(ticket, False)])
        committed = known.state is TransactionState.PREPARE_COMMIT
        changed = dataclasses.replace(
            known,
            state=TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_ms=at.now_ms,
        )
        if known.next_producer_id != NO_PRODUCER_ID:
            changed = dataclasses.replace(
                changed,
                previous_producer_id=known.producer_id,
                producer_id=known.next_producer_id,
                producer_epoch=known.next_producer_epoch,
                next_producer_id=NO_PRODUCER_ID,
                next_producer_epoch=NO_PRODUCER_EPOCH,
            )
        return Decision([TransactionRecord(transactional_id, changed)], [(ticket, True)])

    # --- looking -------------------------------------------------------------------------------

    def describe(self, transactional_id: str, ticket: Ticket, at: Instant) -> TransactionDecision:
        """The `Transaction`. Raises TRANSACTIONAL_ID_NOT_FOUND."""
        known = self._transactions.get(transactional_id)
        if known is None:
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return Decision(replies=[(ticket, known)])

    def list(self, ticket: Ticket, at: Instant) -> TransactionDecision:
        """All of them: a tuple of (transactional id, `Transaction`)."""
        return Decision(replies=[(ticket, tuple(self._transactions.items()))])

    def is_prepared(self, transactional_id: str) -> bool:
        known = self._transactions.get(transactional_id)
        return known is not None and known.state in PREPARED

    def to_complete(self) -> Iterator[str]:
        """Whose markers are still to be written."""
        return (name for name, known in self._transactions.items() if known.state in PREPARED)

    def timed_out(self, at: Instant) -> Iterator[str]:
        """Whose transaction is open for too long."""
        return (name for name, known in self._transactions.items() if _is_timed_out(known, at))

    def expire(self, at: Instant) -> TransactionDecision:
        """Forget ids that have been idle for transactional.id.expiration.ms, some at a time."""
        oldest = at.now_ms - self._limits.id_expiration_ms
        idle = [
            TransactionRecord(name, None)
            for name, known in self._transactions.items()
            if (known.state is EMPTY or known.state in COMPLETE) and known.updated_ms <= oldest
        ]
        return Decision(idle[: self._limits.max_records_per_sweep])

    # --- Machine -------------------------------------------------------------------------------

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return records.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        return records.decode(key, value)

    def replay(self, record: TransactionRecord, at: Instant) -> Replies:
        name, value = record
        if value is None:
            self._transactions.pop(name, None)
            self._former_epochs.pop(name, None)
            return []
        known = self._transactions.get(name)
        if known is not None and known.producer_id == value.producer_id:
            invariant(value.producer_epoch >= known.producer_epoch, "T-epoch", (name, known, value))
        self._transactions[name] = value
        return []

    def refused(self, refused: Sequence[TransactionRecord], error: ErrorCode, at: Instant) -> Replies:
        return []  # no request waits but for its own records

    def loaded(self, at: Instant) -> None:
        pass

    def next_deadline(self) -> float:
        return float("inf")  # service.py looks at timeouts in turns

    def tick(self, at: Instant) -> TransactionDecision:
        return Decision()


def _producer_of(known: Transaction) -> Producer:
    if known.next_producer_id != NO_PRODUCER_ID:
        return Producer(known.next_producer_id, known.next_producer_epoch)
    return Producer(known.producer_id, known.producer_epoch)


def _decided(
    transactional_id: str, changed: Transaction, ticket: Ticket, reply: object = None
) -> TransactionDecision:
    answer = Begun(_producer_of(changed)) if reply is None else reply
    return Decision([TransactionRecord(transactional_id, changed)], [(ticket, answer)])


def _prepared(known: Transaction, commit: bool, at: Instant) -> Transaction:
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    return dataclasses.replace(known, state=state, updated_ms=at.now_ms)


def _fenced(known: Transaction, at: Instant) -> Transaction:
    """Abort it under an epoch that its producer does not have."""
    return dataclasses.replace(_prepared(known, False, at), producer_epoch=known.producer_epoch + 1)


def _is_timed_out(known: Transaction, at: Instant) -> bool:
    return known.state is ONGOING and known.started_ms + known.timeout_ms < at.now_ms
