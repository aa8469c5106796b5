"""Which transactions are unfinished, and until when those that are open may be.

That is told by the coordinator's monotonic clock: were it the wall clock, one that is set would abort all
that are open, or let one that was begun while it was ahead hold readers until that time comes. The wall clock
says only how much of its timeout a transaction has left that another coordinator began: never more than all
of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from data_plane.coordinator.state_machine import Instant
from data_plane.coordinator.transactions.records import TransactionMetadata, TransactionState

ONGOING: Final = TransactionState.ONGOING
PREPARED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

_NEVER: Final = float("inf")


class UnfinishedTransactions:
    """Few, where many transactional ids are kept for a week."""

    def __init__(self) -> None:
        self._deadlines: dict[str, float] = {}
        """By transactional id, in seconds."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._deadlines)

    def __contains__(self, transactional_id: str) -> bool:
        return transactional_id in self._deadlines

    def changed(
        self,
        transactional_id: str,
        before: TransactionMetadata | None,
        after: TransactionMetadata | None,
        at: Instant,
    ) -> None:
        """`None`: its id is not known."""
        if after is not None and after.state is ONGOING:
            if before is None or (before.state, before.started_ms) != (ONGOING, after.started_ms):
                self._deadlines[transactional_id] = _deadline(after, at)
        elif after is not None and after.state in PREPARED:
            self._deadlines[transactional_id] = _NEVER
        else:
            self._deadlines.pop(transactional_id, None)

    def timed_out(self, at: Instant) -> Iterator[str]:
        """Those that are open for too long."""
        return (name for name in self._deadlines if self.is_timed_out(name, at))

    def is_timed_out(self, transactional_id: str, at: Instant) -> bool:
        return self._deadlines.get(transactional_id, _NEVER) < at.now


def _deadline(known: TransactionMetadata, at: Instant) -> float:
    left_ms = known.started_ms + known.timeout_ms - at.now_ms
    return at.now + min(max(left_ms, 0), known.timeout_ms) / 1000
