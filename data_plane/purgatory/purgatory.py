"""Where requests wait for a partition to move on.

Two ways of waiting, both kept by the partition that is waited for:

* `ThresholdPurgatory`: for a number that rises (the high watermark, the low watermark) to reach an offset.
  Waits are sorted by that offset, so growth completes a prefix and touches nobody else. A produce
  with acks=all, a DeleteRecords and the coordinators' appends wait like this.
* `Watchers`: for anything to happen at all. A fetch session stands at each of its partitions for as
  long as it lives and is told "changed"; whether that is enough to answer is its own affair
  (fetch/sessions.py). So 600 idle partitions cost a parked fetch nothing.

Deadlines sit in the node's timing wheel (timing_wheel.py). Everything runs inside the event loop;
callbacks are plain functions, called at once; one that fails of a bug takes no other with it, nor whoever
made the number rise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from sortedcontainers import SortedKeyList

from data_plane.purgatory.timing_wheel import Deadline, WheelTimer
from metadata_quorum.foundation.errors import ErrorCode

_NOT_YET: Final = ErrorCode.REQUEST_TIMED_OUT


class OffsetWait:
    """One party waiting until a number reaches `offset`; told once, with the outcome."""

    __slots__ = ("_waits", "callback", "offset")

    def __init__(self, offset: int, callback: Callable[[ErrorCode], None], waits: ThresholdPurgatory) -> None:
        self.offset = offset
        self.callback = callback
        self._waits: ThresholdPurgatory | None = waits

    def cancel(self) -> None:
        """Stop waiting without being told; nothing happens where it was told already."""
        waits = self._waits
        if waits is not None:
            self._waits = None
            waits._sorted.discard(self)  # it may be among those just being told


def _needed_offset(wait: OffsetWait) -> int:
    return wait.offset


class ThresholdPurgatory:
    """Those who wait for one rising number of one partition."""

    __slots__ = ("_on_fault", "_sorted")

    def __init__(self, on_fault: Callable[[str, Exception], None]) -> None:
        """`on_fault` is told of what could not be told to a party."""
        self._on_fault = on_fault
        self._sorted: SortedKeyList[OffsetWait] = SortedKeyList(key=_needed_offset)

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, offset: int, callback: Callable[[ErrorCode], None]) -> OffsetWait:
        """Call `callback(NONE)` when the number reaches `offset`, or with the error of `fail_all`."""
        wait = OffsetWait(offset, callback, self)
        self._sorted.add(wait)
        return wait

    def reached(self, offset: int, outcome: ErrorCode = ErrorCode.NONE) -> int:
        """The number is now `offset`: complete, in order, all who needed no more. Returns how many."""
        waits = self._sorted
        if not waits or waits[0].offset > offset:
            return 0
        count: int = waits.bisect_key_right(offset)
        self._complete(list(waits[:count]), outcome)
        return count

    def lower(self, offset: int) -> None:
        """The number will not get beyond `offset` for now: whoever needs more waits for `offset` instead."""
        beyond = list(self._sorted.irange_key(min_key=offset, inclusive=(False, True)))
        for wait in beyond:
            self._sorted.remove(wait)
            wait.offset = offset
            self._sorted.add(wait)

    def fail_all(self, error: ErrorCode) -> None:
        """The number will never get there (leadership lost, partition gone)."""
        if self._sorted:
            self._complete(list(self._sorted), error)

    def _complete(self, told: list[OffsetWait], outcome: ErrorCode) -> None:
        # Taken out before anyone is told: a callback may add or cancel waits of this partition.
        if len(told) == len(self._sorted):
            self._sorted.clear()
        else:
            del self._sorted[: len(told)]
        for wait in told:
            if wait._waits is not None:
                wait._waits = None
                try:
                    wait.callback(outcome)
                except Exception as error:  # noqa: BLE001
                    self._on_fault("a reply that waited for replicas", error)


class DelayedOperation:
    """Waits of several partitions that one request needs, with one deadline.

    `on_done(outcomes)` gets an outcome per key: NONE, the partition's error, or REQUEST_TIMED_OUT.
    Make it, `add` every partition, then `start`.
    """

    __slots__ = ("_deadline", "_on_done", "_open", "outcomes")

    def __init__(self, on_done: Callable[[list[ErrorCode]], None]) -> None:
        self._on_done = on_done
        self._open: dict[int, OffsetWait] = {}
        self._deadline: Deadline | None = None
        self.outcomes: list[ErrorCode] = []

    def add(self, waits: ThresholdPurgatory, offset: int) -> None:
        """Wait for `offset` too; its outcome takes the next place in the list."""
        place = len(self.outcomes)
        self.outcomes.append(_NOT_YET)
        self._open[place] = waits.add(offset, lambda outcome: self._completed(place, outcome))

    def settle(self, outcome: ErrorCode) -> None:
        """A partition whose outcome is known already; it takes the next place in the list."""
        self.outcomes.append(outcome)

    def start(self, timer: WheelTimer, timeout: float) -> None:
        if self._open:
            self._deadline = timer.call_later(timeout, self._expired)
        else:
            self._on_done(self.outcomes)

    def _completed(self, place: int, outcome: ErrorCode) -> None:
        del self._open[place]
        self.outcomes[place] = outcome
        # Without a deadline it has not been started: `start` will see that nothing is open.
        if not self._open and self._deadline is not None:
            self._deadline.cancel()
            self._on_done(self.outcomes)

    def _expired(self) -> None:
        for wait in self._open.values():
            wait.cancel()
        self._open.clear()
        self._deadline = None  # which holds us
        self._on_done(self.outcomes)


class Watcher(Protocol):
    """Stands at one partition on behalf of a fetch (session). It only takes note and acts later in
    the loop, so that no watcher comes or goes while all are being told."""

    def log_grew(self) -> None:
        """The leader appended: there is more for followers."""

    def readable_range_changed(self) -> None:
        """The high watermark rose, or the log start offset moved."""

    def role_changed(self) -> None:
        """Leader or epoch changed, or the partition is gone: readers will be refused."""


class Watchers:
    """The watchers of one partition, in the order in which they came."""

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
