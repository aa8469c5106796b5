"""Leader epochs of one log: which epoch's leader wrote from which offset on.

Kept in memory as a short sorted list, in the file `leader-epoch-checkpoint` across restarts. The
file may be behind after a crash: every epoch since the recovery point is in the batches and is
found again by recovery, so the file is written with a flush, at a truncation and at the close.

Invariant: epochs and start offsets strictly increase, and agree with the batches, but for an
empty epoch that a new leader opened at the end of the log.

Path of the data: log -> here when a batch brings a new epoch; a follower's or leader's question
"where did epoch e end?" is answered here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochCache:
    """See the module. `dirty`: the file is behind."""

    __slots__ = ("_epochs", "_starts", "dirty", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED_EPOCH
        for epoch, start in entries:
            self.assign(epoch, start)
        self.dirty = False

    @property
    def entries(self) -> Sequence[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Let `epoch` begin at `start_offset`; False where it exists already or is no epoch.

        Entries that contradict it (a later epoch, or one that began at or behind it and so holds
        nothing) go.
        """
        if epoch < 0 or epoch == self.latest:
            return False
        while self._epochs and (self._epochs[-1] > epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        if not self._epochs or self._epochs[-1] != epoch:
            self._epochs.append(epoch)
            self._starts.append(start_offset)
        self._changed()
        return True

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`; UNDEFINED_EPOCH before the first entry."""
        i = bisect_right(self._starts, offset)
        return self._epochs[i - 1] if i else UNDEFINED_EPOCH

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The greatest epoch <= `epoch` and the offset where it ends.

        (-1, -1) where nothing can be said: no entries, or an epoch from the future. An epoch older
        than all entries ends where the first of them begins.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        i = bisect_right(self._epochs, epoch)
        if i == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if i == 0:
            return epoch, self._starts[0]
        return self._epochs[i - 1], self._starts[i]

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends at `end_offset` now: entries that begin there or behind are removed."""
        if self._starts and self._starts[-1] >= end_offset:
            keep = bisect_left(self._starts, end_offset)
            del self._epochs[keep:], self._starts[keep:]
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins at `start_offset` now, and so does its epoch there; older ones are removed."""
        i = bisect_right(self._starts, start_offset) - 1
        if i < 0 or (i == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:i], self._starts[:i]
        self._starts[0] = start_offset
        self._changed()

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._changed()

    def _changed(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        self.dirty = True
