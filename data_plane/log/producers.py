"""The state of a log's producers: sequence numbers, epochs, open transactions.

For each idempotent producer the last five batches are kept, so that a repeated one is answered with
the offset it got the first time. Sequence numbers count a producer's records per partition and wrap
from 2^31 - 1 to 0. Everything here follows from the batches alone: replaying the log from a
snapshot, appending as a leader and appending as a follower end in the same state.

Path of the data: log -> `check` before an append (leader only) -> `update` after it.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final, NamedTuple

from sortedcontainers import SortedDict

from data_plane.log.aborted import AbortedTransaction
from metadata_quorum.foundation.batch import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    NO_SEQUENCE,
    BatchHeader,
    Record,
    control_type,
    coordinator_epoch,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import NO_EPOCH

KEPT_BATCHES: Final = 5
MAX_SEQUENCE: Final = 2**31 - 1
DEFAULT_EXPIRATION_MS: Final = 86_400_000  # producer.id.expiration.ms


class BatchMetadata(NamedTuple):
    """One accepted batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerStateEntry:
    """One producer id on this log."""

    __slots__ = (
        "batches", "coordinator_epoch", "current_txn_first_offset", "encoded", "epoch", "last_timestamp",
    )  # fmt: skip

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[BatchMetadata] = deque(maxlen=KEPT_BATCHES)  # of the current epoch only
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.current_txn_first_offset: int | None = None
        self.encoded: bytes | None = None  # as in the last snapshot; None where it has changed since

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """The kept batch that `header` repeats."""
        if header.producer_epoch != self.epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerStateEntry):
            return NotImplemented
        return self._fields() == other._fields()

    def _fields(self) -> tuple[object, ...]:
        batches, transaction = self.batches, self.current_txn_first_offset
        return self.epoch, batches, self.coordinator_epoch, self.last_timestamp, transaction

    __hash__ = None  # type: ignore[assignment]  # mutable


class OpenTransaction(NamedTuple):
    """A transaction without a marker on this log."""

    producer_id: int
    epoch: int
    first_offset: int
    last_timestamp: int


class VerificationStateEntry(NamedTuple):
    """A transaction that is being verified with the coordinator, until a batch of it is appended."""

    epoch: int
    lowest_sequence: int
    """Of the batches being verified. One that could not be admitted is sent again, and must come first."""
    from_zero: bool
    """Every transaction has an epoch of its own (transaction.version 2), and so its sequences begin at 0."""
    asked_at_ms: int


_NONE: Final[SortedDict[int, int]] = SortedDict()
"""Where there are no transactions, as in most logs: a sorted dict of one's own takes two kilobytes."""


class ProducerStateManager:
    """See the module. `next_offset` is the offset up to which the state has taken in the log."""

    def __init__(self) -> None:
        self.states: dict[int, ProducerStateEntry] = {}
        self.next_offset = 0
        self._ongoing = _NONE  # first offset -> producer id
        self.unreplicated = _NONE
        """Ended, but their marker is not replicated yet, or nobody has told: first offset -> the marker's."""
        self._verification_states: dict[
            int, VerificationStateEntry
        ] = {}  # by producer id; known to the leader only
        self._looked_at = 0  # the end of the log at the last call of `expire`

    # --- appending

    def start_verification(self, header: BatchHeader, *, from_zero: bool, now_ms: int) -> None:
        """The coordinator is asked about a transaction that `header` would open here. Whatever it says, the
        first sequence is known until an append, a marker or expiry."""
        lowest = header.base_sequence
        known = self._verification_states.get(header.producer_id)
        if known is not None and known.epoch == header.producer_epoch:
            lowest = min(lowest, known.lowest_sequence)
        self._verification_states[header.producer_id] = VerificationStateEntry(
            header.producer_epoch, lowest, from_zero, now_ms
        )

    def check(self, header: BatchHeader) -> BatchMetadata | None:
        """Judge a client's idempotent batch before it is appended.

        Returns the batch that it repeats, if it does. Raises INVALID_PRODUCER_EPOCH,
        OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE. A producer not known here (expired, or its records
        deleted) may begin with any sequence, unless it begins a transaction (`start_verification`).
        """
        state = self.states.get(header.producer_id)
        if state is None or state.epoch == NO_EPOCH:
            self._check_verification(header, unknown=True)
            return None
        if header.producer_epoch == state.epoch:
            duplicate = state.duplicate_of(header)
            if duplicate is not None:
                return duplicate
            self._check_verification(header, unknown=not state.batches)
            self._check_sequence(header, state.last_sequence)
        elif header.producer_epoch < state.epoch:
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {header.producer_id} is {header.producer_epoch}, "
                f"which is smaller than the last seen epoch {state.epoch}",
            )
        elif header.base_sequence != 0:
            raise BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for new epoch of producer {header.producer_id}: "
                f"{header.producer_epoch} (request epoch), {header.base_sequence} (seq. number), "
                f"{state.epoch} (current producer epoch)",
            )
        if state.current_txn_first_offset is not None and not header.is_transactional:
            # In a newer epoch, too: its transaction's marker would come from an older one, and never end it.
            raise BrokerError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {header.producer_id} has an open transaction; this batch is outside of it",
            )
        return None

    def check_coordinated(self, header: BatchHeader, marker: Record | None) -> None:
        """Judge what a coordinator writes in a producer's name: its marker, or offsets in its transaction.
        Raises INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED."""
        state = self.states.get(header.producer_id)
        if state is None:
            return
        if header.producer_epoch < state.epoch:
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {header.producer_id} is {header.producer_epoch}, "
                f"which is smaller than the last seen epoch {state.epoch}",
            )
        if marker is not None and coordinator_epoch(marker) < state.coordinator_epoch:
            raise BrokerError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch of producer {header.producer_id} is {coordinator_epoch(marker)}, "
                f"which is smaller than the last seen epoch {state.coordinator_epoch}",
            )

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of that producer's epoch has a record here and has not ended."""
        state = self.states.get(producer_id)
        return state is not None and state.current_txn_first_offset is not None and state.epoch == epoch

    def _check_verification(self, header: BatchHeader, *, unknown: bool) -> None:
        beginning = self._verification_states.get(header.producer_id)
        if beginning is None or beginning.epoch != header.producer_epoch:
            return
        first = 0 if beginning.from_zero and unknown else beginning.lowest_sequence
        if header.base_sequence > first:
            raise BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id}: "
                f"{header.base_sequence} (incoming seq. number), its transaction begins at {first}",
            )

    def _check_sequence(self, header: BatchHeader, last_sequence: int) -> None:
        expected = (last_sequence + 1) & MAX_SEQUENCE
        if header.base_sequence != expected:
            raise BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id}: "
                f"{header.base_sequence} (incoming seq. number), "
                f"{last_sequence} (current end sequence number)",
            )

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Take in an appended data batch of a producer with an id."""
        state = self.states.get(header.producer_id)
        if state is None:
            state = self.states[header.producer_id] = ProducerStateEntry(header.producer_epoch)
        elif header.producer_epoch != state.epoch:
            if header.producer_epoch < state.epoch:
                return  # a zombie's batch that an old leader let in; the newer epoch stays
            state.epoch = header.producer_epoch
            state.batches.clear()
        state.encoded = None
        delta = header.last_offset_delta
        last_offset = base_offset + delta
        state.last_timestamp = header.max_timestamp
        state.batches.append(BatchMetadata(header.last_sequence, last_offset, delta, header.max_timestamp))
        if header.is_transactional and state.current_txn_first_offset is None:
            state.current_txn_first_offset = base_offset
            self._ongoing = _with(self._ongoing, base_offset, header.producer_id)
            self._verification_states.pop(header.producer_id, None)

    def update_control(self, header: BatchHeader, marker: Record) -> AbortedTransaction | None:
        """Take in a control batch; returns the transaction that its marker aborted, if one was open."""
        kind = control_type(marker)
        if kind not in (CONTROL_ABORT, CONTROL_COMMIT):
            return None
        state = self.states.get(header.producer_id)
        if state is None:
            state = self.states[header.producer_id] = ProducerStateEntry(header.producer_epoch)
        elif header.producer_epoch > state.epoch:
            state.epoch = header.producer_epoch
            state.batches.clear()
        self._verification_states.pop(header.producer_id, None)
        state.encoded = None
        state.coordinator_epoch = coordinator_epoch(marker)
        state.last_timestamp = marker.timestamp
        first_offset, state.current_txn_first_offset = state.current_txn_first_offset, None
        if first_offset is None:
            return None
        self._ongoing.pop(first_offset, None)
        self.unreplicated = _with(self.unreplicated, first_offset, header.last_offset)
        if kind == CONTROL_COMMIT:
            return None
        stable = self._ongoing.peekitem(0)[0] if self._ongoing else header.next_offset
        return AbortedTransaction(header.producer_id, first_offset, header.last_offset, stable)

    # --- transactions

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the first transaction begins that is open, or whose end is not replicated yet."""
        if not self._ongoing and not self.unreplicated:
            return None  # as nearly always, and every fetch asks for each of its partitions
        self.replicated_to(high_watermark)
        firsts = [d.peekitem(0)[0] for d in (self._ongoing, self.unreplicated) if d]
        return min(firsts) if firsts else None

    def replicated_to(self, high_watermark: int) -> None:
        """Forget the ended transactions whose markers are replicated."""
        while self.unreplicated and self.unreplicated.peekitem(0)[1] < high_watermark:
            self.unreplicated.popitem(0)

    def open_transactions(self, most: int) -> list[OpenTransaction]:
        """The oldest ones."""
        found = []
        for first_offset, producer_id in islice(self._ongoing.items(), most):
            state = self.states[producer_id]
            found.append(OpenTransaction(producer_id, state.epoch, first_offset, state.last_timestamp))
        return found

    # --- keeping it small

    def expire(self, now_ms: int, expiration_ms: int = DEFAULT_EXPIRATION_MS) -> int:
        """Forget producers that were silent for so long and have no open transaction; returns how many. Who
        has written since the last call was not, whatever the time of its records, or a clock that is set,
        says: what it sends again would be written twice."""
        written_since, self._looked_at = self._looked_at, self.next_offset
        silent = [
            producer_id
            for producer_id, state in self.states.items()
            if state.current_txn_first_offset is None
            and now_ms - state.last_timestamp >= expiration_ms
            and state.last_offset < written_since
        ]
        for producer_id in silent:
            del self.states[producer_id]
        for producer_id, beginning in list(self._verification_states.items()):
            if now_ms - beginning.asked_at_ms >= expiration_ms:
                del self._verification_states[producer_id]
        return len(silent)

    def reset(self, next_offset: int, states: dict[int, ProducerStateEntry] | None = None) -> None:
        """Restart from a snapshot's states, or empty."""
        self.states = states or {}
        self.next_offset = next_offset
        self._looked_at = min(self._looked_at, next_offset)
        self.unreplicated = self._ongoing = _NONE
        self._verification_states.clear()
        for producer_id, state in self.states.items():
            if state.current_txn_first_offset is not None:
                self._ongoing = _with(self._ongoing, state.current_txn_first_offset, producer_id)


def _with(entries: SortedDict[int, int], key: int, value: int) -> SortedDict[int, int]:
    """`entries` with one more, in a dict of its own from the first one on."""
    if entries is _NONE:
        return SortedDict({key: value})
    entries[key] = value
    return entries
