"""What a coordinator's state machine looks like to the runtime that keeps it.

A coordinator (of groups, of transactions) is one pure machine per partition of an internal
topic. It decides inputs and yields a `CoordinatorResult`: records, and replies that hold once those records
are replicated. Its durable state changes in `replay` only, at load and live alike.

    request -> service -> runtime.Shard -> state machine (decision) -> log -> its replay -> replies
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from metadata_quorum.foundation.errors import ErrorCode

RecordT = TypeVar("RecordT")

ALL: Final = 2**31 - 1
"""However many there are."""

RECORD_OVERHEAD_BYTES: Final = 32
"""What lengths, deltas and attributes of a record take in a batch, at most."""

BYTES_AS_ONE: Final = 128
"""So many bytes take as long as a record."""


def weight_of(name: str) -> int:
    """How many records one counts as whose key has the name: that of a group, or a transactional id, may have
    32 KB."""
    return 1 + len(name) // BYTES_AS_ONE


Ticket = int
"""Names a request that waits for its answer; machines only pass it through."""

Replies = list[tuple[Ticket, object]]


class ProducerIdAndEpoch(NamedTuple):
    """A producer, as the records of its transaction name it."""

    producer_id: int
    epoch: int


class Instant(NamedTuple):
    """The time, read once per input: `now` for timeouts, `now_ms` for what is stored."""

    now: float
    """Seconds, monotonic."""
    now_ms: int
    """Wall clock, since the epoch."""


@dataclass(slots=True)
class CoordinatorResult(Generic[RecordT]):
    """What an input leads to: records to append, and the replies that depend on them
    (and on everything appended before)."""

    records: list[RecordT] = field(default_factory=list)
    replies: Replies = field(default_factory=list)
    producer: ProducerIdAndEpoch | None = None
    """The records are part of this producer's transaction: they count when it commits."""
    atomic: bool = True
    """All of the records or none. False: each holds for itself, in as many batches as they need."""


class CoordinatorStateMachine(Protocol[RecordT]):
    """The state of one partition of the internal topic."""

    def encode(self, record: RecordT) -> tuple[bytes, bytes | None]:
        """Key and value as they lie in the log."""

    def decode(self, key: bytes, value: bytes | None) -> RecordT | None:
        """None for a record of a kind that is not this machine's."""

    def replay(self, record: RecordT, at: Instant) -> Replies:
        """Apply a record of the log. Live, the replies are those that waited for it. Raises ValueError for
        what no coordinator writes; then nothing has changed."""

    def hold(self, record: RecordT, producer_id: int) -> None:
        """Take a record of a transaction that is open still."""

    def end_transaction(self, producer_id: int, *, commit: bool, most: int = ALL) -> bool:
        """The marker is in the log: what was held counts from here on, or is forgotten. Returns whether there
        was more than `most`, which another call ends."""

    def refused(self, records: Sequence[RecordT], error: ErrorCode, at: Instant) -> Replies:
        """A decision's records could not be appended. The decision's own replies are turned into
        errors by the runtime; these are the ones that the machine still kept."""

    def loaded(self, at: Instant) -> Iterator[int]:
        """Everything in the log has been replayed: timeouts start. After each step, of how many parties."""

    def next_deadline(self) -> float:
        """When `tick` is due (seconds, monotonic); infinity if never. May be early, never late."""

    def tick(self, at: Instant) -> CoordinatorResult[RecordT]:
        """Let time pass."""
