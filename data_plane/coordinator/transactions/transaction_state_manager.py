"""One partition of `__transaction_state`: which producer id and epoch may write, and the state of each
transaction. Pure; kept by coordinator/runtime.py.

    EMPTY --add partitions--> ONGOING --end--> PREPARE_COMMIT --markers--> COMPLETE_COMMIT --add--> ONGOING
                                 |  `-------> PREPARE_ABORT  --markers--> COMPLETE_ABORT  --add--> ONGOING
                                 `--timeout, or InitProducerId of a new incarnation: PREPARE_ABORT, epoch + 1

    transaction.version  at the end of a transaction                   what is fenced
    ---------------------------------------------------------------------------------------------
    0, 1                 the epoch stays                               by InitProducerId, timeout
    2 (KIP-890)          the epoch is bumped in PREPARE_*, so that a    every batch of the last
                         transaction's late batches are recognized      transaction

A decision takes effect as it is appended, and is answered when it is replicated: so a request sees
what was decided before it, and no reply shows what a new coordinator might not have. service.py does
what else must be done (markers).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from data_plane.coordinator.state_machine import (
    ALL,
    CoordinatorResult,
    Instant,
    ProducerIdAndEpoch,
    Replies,
    Ticket,
    weight_of,
)
from data_plane.coordinator.transactions import records
from data_plane.coordinator.transactions.records import (
    NO_PRODUCER_EPOCH,
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from data_plane.coordinator.transactions.unfinished import ONGOING, PREPARED, UnfinishedTransactions
from metadata_quorum.foundation.batch import NO_PRODUCER_ID
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition

LAST_EPOCH: Final = 2**15 - 2
"""The last epoch of a producer id; the one above is reserved to fence its last transaction."""
EPOCH_PER_TRANSACTION: Final = 2
"""The transaction.version from which on every transaction has an epoch of its own."""

EMPTY = TransactionState.EMPTY
COMPLETE: Final = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

MOST_PARTITIONS: Final = 60_000
"""Of one transaction, in which each topic counts as much as three partitions: all are written anew with each
that is added."""
_OF_A_TOPIC: Final = 3
MOST_CHARACTERS: Final = 1_000
"""Of a transactional id: each is kept for a week, and there may be any number. A message would take 32 KB."""

TransactionResult = CoordinatorResult[TransactionRecord]


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Times in ms."""

    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    id_expiration_ms: int = 604_800_000  # transactional.id.expiration.ms
    max_records_per_sweep: int = 1000


class TransactionStateManager:
    """Implements CoordinatorStateMachine. Requests raise BrokerError, or decide."""

    def __init__(self, limits: TransactionLimits) -> None:
        self._limits = limits
        self._transactions: dict[str, TransactionMetadata] = {}
        """Those that have been idle for longest first: the order of their last records."""
        self._unfinished = UnfinishedTransactions()

    # --- InitProducerId ------------------------------------------------------------------------

    def check_length(self, transactional_id: str) -> None:
        """Of an id that is new. Raises BrokerError."""
        if len(transactional_id) > MOST_CHARACTERS and transactional_id not in self._transactions:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"a transactional id of {len(transactional_id)} characters"
            )

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether `init_producer_id` will use a fresh id."""
        known = self._transactions.get(transactional_id)
        return known is None or known.producer_epoch >= LAST_EPOCH

    def needs_next_producer_id(
        self, transactional_id: str, producer: ProducerIdAndEpoch, client_version: int
    ) -> bool:
        """Whether `end` may use a fresh id: the producer has used up its epochs."""
        known = self._transactions.get(transactional_id)
        return (
            client_version >= EPOCH_PER_TRANSACTION
            and known is not None
            and known.producer_id == producer.producer_id
            and known.producer_epoch >= LAST_EPOCH
        )

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        fresh_id: int,
        ticket: Ticket,
        at: Instant,
    ) -> TransactionResult:
        """A producer starts, or (`expected`, KIP-360) continues after an error. CONCURRENT_TRANSACTIONS: its
        last transaction is not complete yet; retry. The reply is the `ProducerIdAndEpoch`.
        Raises BrokerError."""
        known = self._transactions.get(transactional_id)
        if known is None:  # also where it existed before and has expired
            initialized = TransactionMetadata(fresh_id, 0, timeout_ms, updated_ms=at.now_ms)
            return _decided(transactional_id, initialized, ticket)
        if expected is not None and not _may_go_on(known, expected):
            raise BrokerError(ErrorCode.PRODUCER_FENCED)
        if known.state in PREPARED:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        former_epoch = NO_PRODUCER_EPOCH if expected is None else expected.epoch
        if known.state is ONGOING:
            fenced = dataclasses.replace(_fenced(known, at), former_epoch=former_epoch)
            refusal = (ticket, BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS))
            return CoordinatorResult([TransactionRecord(transactional_id, fenced)], [refusal])
        if expected is not None and _is_repeated(known, expected):
            return CoordinatorResult(replies=[(ticket, _producer_of(known))])  # the last response was lost
        rotates = known.producer_epoch >= LAST_EPOCH
        initialized = dataclasses.replace(
            known,
            producer_id=fresh_id if rotates else known.producer_id,
            previous_producer_id=known.producer_id if rotates else known.previous_producer_id,
            producer_epoch=0 if rotates else known.producer_epoch + 1,
            former_epoch=former_epoch,
            timeout_ms=timeout_ms,
            state=EMPTY,
            partitions=frozenset(),
            started_ms=-1,
            updated_ms=at.now_ms,
        )
        return _decided(transactional_id, initialized, ticket)

    # --- AddPartitionsToTxn --------------------------------------------------------------------

    def partitions_of(self, transactional_id: str) -> int:
        """How many its transaction has."""
        known = self._transactions.get(transactional_id)
        return 0 if known is None else len(known.partitions)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
        ticket: Ticket,
        at: Instant,
    ) -> TransactionResult:
        """The producer is about to write there; this starts a transaction where none is open. Reply: True.
        Raises BrokerError."""
        known = self._owned(transactional_id, producer)
        if known.state in PREPARED:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is ONGOING:
            if known.partitions.issuperset(partitions):
                return CoordinatorResult(replies=[(ticket, True)])
            known = dataclasses.replace(known, partitions=known.partitions | frozenset(partitions))
        else:
            known = dataclasses.replace(
                known,
                state=ONGOING,
                partitions=frozenset(partitions),
                started_ms=at.now_ms,
                former_epoch=NO_PRODUCER_EPOCH,  # its producer knows the bump
            )
        _check_size(known.partitions)
        changed = dataclasses.replace(known, updated_ms=at.now_ms, client_version=client_version)
        return CoordinatorResult([TransactionRecord(transactional_id, changed)], [(ticket, True)])

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        ticket: Ticket,
        at: Instant,
    ) -> TransactionResult:
        """Which of them are not part of the producer's open transaction (a leader verifies this before it
        appends the first batch). Raises BrokerError."""
        known = self._owned(transactional_id, producer)
        if known.state in PREPARED:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        there = known.partitions if known.state is ONGOING else frozenset()
        return CoordinatorResult(replies=[(ticket, tuple(p for p in partitions if p not in there))])

    def _owned(self, transactional_id: str, producer: ProducerIdAndEpoch) -> TransactionMetadata:
        """The transaction of that producer. Raises BrokerError if it is not the latest one. No producer is
        given the epoch that only fences: a transaction begun by guessing it could not be ended."""
        known = self._transactions.get(transactional_id)
        if known is not None and _is_next(known, producer):
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known is None or known.producer_id != producer.producer_id:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.producer_epoch != producer.epoch or producer.epoch > LAST_EPOCH:
            raise BrokerError(ErrorCode.PRODUCER_FENCED)
        return known

    # --- EndTxn --------------------------------------------------------------------------------

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        fresh_id: int,
        ticket: Ticket,
        at: Instant,
        *,
        commit: bool,
        client_version: int,
    ) -> TransactionResult:
        """Commit or abort: durable with the reply, markers follow. The reply is the caller's id and epoch in
        its next transaction, a `ProducerIdAndEpoch`. `fresh_id`: see `needs_next_producer_id`."""
        if client_version >= EPOCH_PER_TRANSACTION:
            return self._end_with_new_epoch(transactional_id, producer, fresh_id, commit, ticket, at)
        known = self._owned(transactional_id, producer)
        if known.state is not ONGOING:
            _refuse_unless_same_end(known, commit)
            return CoordinatorResult(replies=[(ticket, producer)])
        # Its marker has the transaction's own epoch, however that was begun.
        ended = dataclasses.replace(_prepared(known, commit, at), client_version=client_version)
        return _decided(transactional_id, ended, ticket)

    def _end_with_new_epoch(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        fresh_id: int,
        commit: bool,
        ticket: Ticket,
        at: Instant,
    ) -> TransactionResult:
        known = self._transactions.get(transactional_id)
        if known is None:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if _has_ended(known, producer):
            _refuse_unless_same_end(known, commit)
            if known.producer_epoch > LAST_EPOCH:  # the timeout's, which nobody has
                return _decided(transactional_id, _with_fresh_id(known, fresh_id, at), ticket)
            return CoordinatorResult(replies=[(ticket, _producer_of(known))])
        known = self._owned(transactional_id, producer)
        if known.state in PREPARED:  # the end of the producer's next transaction, which has no records yet
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is not ONGOING:
            if commit:
                raise BrokerError(ErrorCode.INVALID_TXN_STATE)
            # No transaction is open here, but batches may be on their way: the abort bumps the epoch.
            known = dataclasses.replace(known, started_ms=at.now_ms)
        changed = dataclasses.replace(
            _prepared(known, commit, at),
            producer_epoch=known.producer_epoch + 1,
            former_epoch=known.producer_epoch,
            client_version=EPOCH_PER_TRANSACTION,
        )
        if known.producer_epoch >= LAST_EPOCH:
            changed = dataclasses.replace(changed, next_producer_id=fresh_id, next_producer_epoch=0)
        return _decided(transactional_id, changed, ticket)

    def abort_if_timed_out(self, transactional_id: str, ticket: Ticket, at: Instant) -> TransactionResult:
        """Abort a transaction that is open for longer than its timeout, and fence its producer, which may
        continue as after an error (KIP-588). The reply is whether it was."""
        known = self._transactions.get(transactional_id)
        if known is None or not self._unfinished.is_timed_out(transactional_id, at):
            return CoordinatorResult(replies=[(ticket, False)])
        aborted = dataclasses.replace(_fenced(known, at), former_epoch=known.producer_epoch)
        return CoordinatorResult([TransactionRecord(transactional_id, aborted)], [(ticket, True)])

    # --- markers -------------------------------------------------------------------------------

    def prepared(self, transactional_id: str, ticket: Ticket, at: Instant) -> TransactionResult:
        """The transaction, if its markers are to be written; answered once that is replicated."""
        known = self._transactions.get(transactional_id)
        return CoordinatorResult(
            replies=[(ticket, known if known is not None and known.state in PREPARED else None)]
        )

    def complete(
        self, transactional_id: str, prepared: TransactionMetadata, ticket: Ticket, at: Instant
    ) -> TransactionResult:
        """Every partition has the marker of the transaction that `prepared` returned."""
        known = self._transactions.get(transactional_id)
        if known != prepared:
            return CoordinatorResult(replies=[(ticket, False)])
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
        return CoordinatorResult([TransactionRecord(transactional_id, changed)], [(ticket, True)])

    # --- queries -------------------------------------------------------------------------------

    def describe(self, transactional_id: str, ticket: Ticket, at: Instant) -> TransactionResult:
        """The `TransactionMetadata`. Raises TRANSACTIONAL_ID_NOT_FOUND."""
        known = self._transactions.get(transactional_id)
        if known is None:
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return CoordinatorResult(replies=[(ticket, known)])

    def list(self, ticket: Ticket, at: Instant) -> TransactionResult:
        """All of them: a tuple of (transactional id, `TransactionMetadata`)."""
        return CoordinatorResult(replies=[(ticket, tuple(self._transactions.items()))])

    def is_prepared(self, transactional_id: str) -> bool:
        known = self._transactions.get(transactional_id)
        return known is not None and known.state in PREPARED

    def to_complete(self) -> Iterator[str]:
        """Transactional ids whose markers are still to be written."""
        return (name for name in self._unfinished if self._transactions[name].state in PREPARED)

    def unfinished(self) -> Iterator[tuple[str, TransactionMetadata]]:
        """Transactions that are open, or whose markers are still to be written."""
        return ((name, self._transactions[name]) for name in self._unfinished)

    def timed_out(self, at: Instant) -> Iterator[str]:
        """Transactional ids whose transaction is open for too long."""
        return self._unfinished.timed_out(at)

    def expire(self, at: Instant) -> TransactionResult:
        """Remove ids that have been idle for transactional.id.expiration.ms, some at a time."""
        oldest, now_ms = at.now_ms - self._limits.id_expiration_ms, at.now_ms
        # One from a time when the clock was far ahead is in the way of none.
        idle = takewhile(lambda each: not oldest < each[1].updated_ms <= now_ms, self._transactions.items())
        expired = (
            name for name, known in idle if known.updated_ms <= oldest and name not in self._unfinished
        )
        records, room = list[TransactionRecord](), self._limits.max_records_per_sweep
        while room > 0 and (name := next(expired, None)) is not None:
            records.append(TransactionRecord(name, None))
            room -= weight_of(name)
        return CoordinatorResult(records, atomic=False)

    # --- CoordinatorStateMachine ---------------------------------------------------------------

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return records.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        return records.decode(key, value)

    def replay(self, record: TransactionRecord, at: Instant) -> Replies:
        """Raises ValueError for a record that takes back a producer epoch."""
        name, value = record
        if value is None:
            self._transactions.pop(name, None)
            self._unfinished.changed(name, None, None, at)
            return []
        known = self._transactions.get(name)
        if (
            known is not None
            and known.producer_id == value.producer_id
            and known.producer_epoch > value.producer_epoch
        ):
            raise ValueError(f"{name} falls back from {known} to {value}")
        self._transactions.pop(name, None)
        self._transactions[name] = value  # behind all others
        self._unfinished.changed(name, known, value, at)
        return []

    def hold(self, record: TransactionRecord, producer_id: int) -> None:
        pass  # records of this topic are never part of a transaction

    def end_transaction(self, producer_id: int, *, commit: bool, most: int = ALL) -> bool:
        return False

    def refused(self, refused: Sequence[TransactionRecord], error: ErrorCode, at: Instant) -> Replies:
        return []  # no request waits for other records than its own

    def loaded(self, at: Instant) -> Iterator[int]:
        return iter(())

    def next_deadline(self) -> float:
        return float("inf")  # service.py checks timeouts at an interval

    def tick(self, at: Instant) -> TransactionResult:
        return CoordinatorResult()


def _producer_of(known: TransactionMetadata) -> ProducerIdAndEpoch:
    """The id and epoch that its producer has from now on."""
    if known.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdAndEpoch(known.next_producer_id, known.next_producer_epoch)
    return ProducerIdAndEpoch(known.producer_id, known.producer_epoch)


def _is_next(known: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """Whether it was given this id for its next transaction, and the last one is completing still."""
    next_producer = known.next_producer_id, known.next_producer_epoch
    return known.next_producer_id != NO_PRODUCER_ID and producer == next_producer


def _may_go_on(known: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether `expected` is what the last accepted producer has, as far as it can know."""
    return expected == _producer_of(known) or _is_former(known, expected)


def _is_former(known: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    if expected.epoch != known.former_epoch:
        return False
    former_id = known.producer_id if known.producer_epoch else known.previous_producer_id
    return expected.producer_id == former_id


def _is_repeated(known: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether the bump was made already. The epoch of a marker is not given out here: a late copy of that
    marker could end a transaction of the same epoch."""
    has_marker = known.state is not EMPTY and known.producer_epoch > 0  # 0: the marker has the former id
    return _is_former(known, expected) and not has_marker


def _has_ended(known: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """Whether that producer's transaction was the last one that ended, with the epoch bumped (KIP-890)."""
    if known.client_version < EPOCH_PER_TRANSACTION or known.state not in (*PREPARED, *COMPLETE):
        return False
    if producer.producer_id == known.producer_id:
        return producer.epoch + 1 == known.producer_epoch
    rotated = producer.producer_id == known.previous_producer_id and producer.epoch == LAST_EPOCH
    return rotated and known.producer_epoch == 0


def _refuse_unless_same_end(known: TransactionMetadata, commit: bool) -> None:
    """A repeated request gets the first one's response; anything else is not valid in this state."""
    commits = known.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
    if known.state is EMPTY or commits is not commit:
        raise BrokerError(ErrorCode.INVALID_TXN_STATE)
    if known.state in PREPARED:
        raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)


def _check_size(partitions: frozenset[TopicPartition]) -> None:
    """Raises BrokerError."""
    size = len(partitions)
    if size * (1 + _OF_A_TOPIC) > MOST_PARTITIONS:
        size += _OF_A_TOPIC * len({tp.topic for tp in partitions})
        if size > MOST_PARTITIONS:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, "so many partitions are too much for one transaction"
            )


def _decided(transactional_id: str, changed: TransactionMetadata, ticket: Ticket) -> TransactionResult:
    return CoordinatorResult(
        [TransactionRecord(transactional_id, changed)], [(ticket, _producer_of(changed))]
    )


def _prepared(known: TransactionMetadata, commit: bool, at: Instant) -> TransactionMetadata:
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    return dataclasses.replace(known, state=state, updated_ms=at.now_ms)


def _with_fresh_id(known: TransactionMetadata, fresh_id: int, at: Instant) -> TransactionMetadata:
    return dataclasses.replace(
        known,
        producer_id=fresh_id,
        previous_producer_id=known.producer_id,
        producer_epoch=0,
        updated_ms=at.now_ms,
    )


def _fenced(known: TransactionMetadata, at: Instant) -> TransactionMetadata:
    """Abort it under an epoch that its producer does not have."""
    return dataclasses.replace(
        _prepared(known, False, at),
        producer_epoch=min(known.producer_epoch, LAST_EPOCH) + 1,
        former_epoch=NO_PRODUCER_EPOCH,
    )
