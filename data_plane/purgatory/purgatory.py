"""Delayed operations: requests that wait for a partition to make progress.

A partition keeps two kinds of waiters:

* `ThresholdPurgatory`: waiters for an offset that advances (the high watermark, the low watermark) to reach
  theirs. They are sorted by the offset they need, so an advance completes a prefix and leaves the rest
  alone. A produce with acks=all, a DeleteRecords and the coordinators' appends wait like this.
* `Watchers`: notified of every change. A fetch session watches each of its partitions for as long as it
  lives, and decides itself whether a change is enough to answer (fetch/sessions.py). So 600 idle
  partitions cost a parked fetch nothing.

Deadlines are in the node's timing wheel (timing_wheel.py). Everything runs on the event loop. Callbacks are
plain functions, called at once, unless very many are due (completion_turns.py); an exception in one is
reported and affects neither the other waiters nor the caller that advanced the offset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from data_plane.purgatory.completion_turns import CompletionTurns
from data_plane.purgatory.timing_wheel import Deadline, WheelTimer
from metadata_quorum.foundation.errors import NO_ERROR, ErrorCode

_NOT_YET: Final = ErrorCode.REQUEST_TIMED_OUT


class OffsetWait:
    """One waiter for `offset`; `callback` is called once, with the outcome."""

    __slots__ = ("_purgatory", "callback", "offset")

    def __init__(
        self, offset: int, callback: Callable[[ErrorCode], None], purgatory: ThresholdPurgatory
    ) -> None:
        self.offset = offset
        self.callback = callback
        self._purgatory: ThresholdPurgatory | None = purgatory

    def cancel(self) -> None:
        """Stop waiting without a call of `callback`; no effect on a wait that is completed."""
        self.callback = _nothing
        purgatory = self._purgatory
        if purgatory is not None:
            self._purgatory = None
            purgatory.discard()


def _nothing(outcome: ErrorCode) -> None:
    pass


def _needed_offset(wait: OffsetWait) -> int:
    return wait.offset


class ThresholdPurgatory:
    """The waiters for one advancing offset of one partition."""

    __slots__ = ("_cancelled", "_on_fault", "_turns", "_waiters")

    def __init__(
        self, on_fault: Callable[[str, Exception], None], turns: CompletionTurns | None = None
    ) -> None:
        """`on_fault` gets what a waiter's callback raised. `turns`: without them all are called back at
        once."""
        self._on_fault = on_fault
        self._turns = turns
        self._waiters: list[OffsetWait] = []  # by offset
        self._cancelled = 0
        """How many of `_waiters` wait no more: thousands may be for one offset, and time out together."""

    def __len__(self) -> int:
        return len(self._waiters) - self._cancelled

    def add(self, offset: int, callback: Callable[[ErrorCode], None]) -> OffsetWait:
        """Call `callback` with the outcome of `reached(offset)`, or with the error of `fail_all`."""
        wait = OffsetWait(offset, callback, self)
        waiters = self._waiters
        if not waiters or waiters[-1].offset <= offset:  # nearly always: it is for the log's end
            waiters.append(wait)
        else:
            waiters.insert(bisect_right(waiters, offset, key=_needed_offset), wait)
        return wait

    def discard(self) -> None:
        """One of those that wait here was cancelled. They are removed when they are most of all."""
        self._cancelled += 1
        if 2 * self._cancelled > len(self._waiters):
            self._waiters = [each for each in self._waiters if each._purgatory is not None]
            self._cancelled = 0

    def reached(self, offset: int) -> int:
        """The offset has advanced to `offset`: complete all waits up to it, in order. Returns how many."""
        waiters = self._waiters
        if not waiters or waiters[0].offset > offset:
            return 0
        if waiters[-1].offset <= offset:
            completed, self._waiters = waiters, []
        else:
            count = bisect_right(waiters, offset, key=_needed_offset)
            completed = waiters[:count]
            del waiters[:count]
        return self._complete(completed, NO_ERROR)

    def lower(self, offset: int) -> None:
        """The log was truncated to `offset`: waits for more than that now wait for `offset`."""
        waiters = self._waiters
        for wait in waiters[bisect_right(waiters, offset, key=_needed_offset) :]:
            wait.offset = offset

    def fail_all(self, error: ErrorCode) -> None:
        """Complete all waits with `error`: leadership was lost, or the partition deleted."""
        completed, self._waiters = self._waiters, []
        self._complete(completed, error)

    def _complete(self, removed: list[OffsetWait], outcome: ErrorCode) -> int:
        """Call back waits that have been removed from `_waiters`, since a callback may add or cancel
        others. Returns how many; of very many, the others are called back soon."""
        completed = [wait for wait in removed if wait._purgatory is not None] if self._cancelled else removed
        self._cancelled -= len(removed) - len(completed)
        for wait in completed:
            wait._purgatory = None
        turns = self._turns
        if turns is not None:
            turns.left -= len(completed)
            if turns.left < 0:
                turns.put_off(partial(self._call_back, (wait,), outcome) for wait in completed)
                return len(completed)
        self._call_back(completed, outcome)
        return len(completed)

    def _call_back(self, waits: Sequence[OffsetWait], outcome: ErrorCode) -> None:
        for wait in waits:
            try:
                wait.callback(outcome)
            except Exception as error:  # noqa: BLE001
                self._on_fault("a reply that waited for replicas", error)


class DelayedOperation:
    """One request that waits for several partitions, with one deadline.

    `add` or `settle` every partition, then `start`. `on_done(outcomes)` gets an outcome per partition, in
    the same order: NONE, the partition's error, or REQUEST_TIMED_OUT.
    """

    __slots__ = ("_deadline", "_on_done", "_open", "_waits", "outcomes")

    def __init__(self, on_done: Callable[[list[ErrorCode]], None]) -> None:
        self._on_done = on_done
        self._open = 0
        """Partitions without an outcome."""
        self._waits: list[OffsetWait] = []
        self._deadline: Deadline | None = None
        self.outcomes: list[ErrorCode] = []

    def add(self, purgatory: ThresholdPurgatory, offset: int) -> None:
        """Wait for `offset` of the next partition."""
        index = len(self.outcomes)
        self.outcomes.append(_NOT_YET)
        self._open += 1
        # Nearly every request is for one partition: a bound method is made and called in half the time.
        callback = partial(self._completed, index) if index else self._completed_first
        self._waits.append(purgatory.add(offset, callback))

    def settle(self, outcome: ErrorCode) -> None:
        """The outcome of the next partition is known already."""
        self.outcomes.append(outcome)

    def start(self, timer: WheelTimer, timeout: float) -> None:
        """Call `on_done` when all outcomes are known, or after `timeout` seconds; now if none is open."""
        if self._open:
            self._deadline = timer.call_later(timeout, self._expired)
        else:
            self._end()

    def _completed_first(self, outcome: ErrorCode) -> None:
        self._completed(0, outcome)

    def _completed(self, index: int, outcome: ErrorCode) -> None:
        self._open -= 1
        self.outcomes[index] = outcome
        # No deadline means not started yet: `start` will find nothing open.
        if not self._open and self._deadline is not None:
            self._deadline.cancel()
            self._end()

    def _expired(self) -> None:
        for wait in self._waits:
            wait.cancel()
        self._open = 0
        self._deadline = None
        self._end()

    def _end(self) -> None:
        self._waits.clear()  # their callbacks refer to us: break the circle
        self._on_done(self.outcomes)


class Watcher(Protocol):
    """Notified of one partition's changes on behalf of a fetch session. Its methods only note the change;
    it acts later in the loop, so no watcher is added or removed while `Watchers` notifies them."""

    def log_grew(self) -> None:
        """The leader appended: there is more for followers."""

    def readable_range_changed(self) -> None:
        """The high watermark rose, or the log start offset moved."""

    def role_changed(self) -> None:
        """Leader or epoch changed, or the partition was deleted: reads will be refused."""


class Watchers:
    """The watchers of one partition, notified in the order in which they were added."""

    __slots__ = ("_watchers",)

    def __init__(self) -> None:
        self._watchers: dict[Watcher, None] = {}

    def __len__(self) -> int:
        return len(self._watchers)

    def add(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def remove(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def log_grew(self) -> None:
        for watcher in self._watchers:
            watcher.log_grew()

    def readable_range_changed(self) -> None:
        for watcher in self._watchers:
            watcher.readable_range_changed()

    def role_changed(self) -> None:
        for watcher in self._watchers:
            watcher.role_changed()
