"""Deadlines by the hundred thousand: a hierarchical timing wheel, and the one loop timer that drives it.

A wheel has levels of 64 slots. A slot of level 0 spans one tick, a slot of level n+1 spans a whole
turn of level n. An entry goes to the lowest level whose current turn contains it; when the hand
reaches a slot of a higher level, its entries move down ("cascade"). An entry moves at most once per
level, so that adding, cancelling and expiring are O(1) however many entries wait.

Nearly all deadlines of a broker are cancelled before they expire (a produce waits 30 s at most and
is answered in a millisecond). Cancelling is one dict removal; the slot's bit stays set, which costs
at most one idle wake-up per slot.

`TimingWheel` is pure: the time comes in with every call. `WheelTimer` ties one to an event loop.
Used by the purgatory (purgatory.py) and by parked fetches (fetch/delayed_fetch.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

TICK_SECONDS: Final = 0.001
_SLOT_BITS: Final = 6
_SLOTS: Final = 1 << _SLOT_BITS
_SLOT_MASK: Final = _SLOTS - 1
_LEVELS: Final = 6
EXPIRED_PER_TURN: Final = 500
"""A client says when its request expires, so thousands may at the same time; each is answered then."""
# How far the hand can look ahead: all slots of the top level but its own, some two years. Later
# deadlines are cut to that.
_HORIZON_TICKS: Final = (_SLOTS - 1 << _SLOT_BITS * (_LEVELS - 1)) - 1


def _nothing() -> None:
    pass


class Deadline:
    """One entry of the wheel. `callback` runs once, unless cancelled before."""

    __slots__ = ("_slot", "callback", "cancelled", "tick")

    def __init__(self, tick: int, callback: Callable[[], None]) -> None:
        self.tick = tick
        self.callback = callback
        self.cancelled = False
        self._slot: dict[Deadline, None] | None = None

    def cancel(self) -> None:
        """Forget it; nothing happens where it has run or was cancelled already."""
        self.cancelled = True
        # Whoever waits holds its deadline, which would hold it in turn, with all the records of its
        # request, until a garbage collection finds the circle.
        self.callback = _nothing
        slot = self._slot
        if slot is not None:
            self._slot = None
            del slot[self]


class TimingWheel:
    """Deadlines in ticks of a millisecond since `start`, the time (in seconds) it was made."""

    __slots__ = ("_hand", "_last_slot", "_last_tick", "_last_when", "_levels", "_occupied", "_start")

    def __init__(self, start: float) -> None:
        self._start = start
        self._hand = 0  # every deadline at or before this tick has expired
        # Dicts stand for ordered sets: expiry within a tick is in the order of adding.
        self._levels: list[list[dict[Deadline, None]]] = [[{} for _ in range(_SLOTS)] for _ in range(_LEVELS)]
        self._occupied = [0] * _LEVELS  # per level, bit i: slot i may hold entries
        # Where the last deadline went, while the hand stands: those of one turn of the loop are mostly for
        # the same time.
        self._last_when = 0.0
        self._last_tick = 0
        self._last_slot: dict[Deadline, None] | None = None

    def __len__(self) -> int:
        return sum(len(slot) for level in self._levels for slot in level)

    def add(self, when: float, callback: Callable[[], None]) -> Deadline:
        """Expire at `when` (seconds) or up to a tick later, never before."""
        last = self._last_slot
        if last is not None and when == self._last_when:
            deadline = Deadline(self._last_tick, callback)
            deadline._slot = last
            last[deadline] = None
            return deadline
        ticks = (when - self._start) / TICK_SECONDS
        tick = int(ticks)
        if tick < ticks:
            tick += 1
        # At the hand or before it: the next tick, for the hand's own slot has been emptied.
        deadline = Deadline(min(max(tick, self._hand + 1), self._hand + _HORIZON_TICKS), callback)
        self._place(deadline)
        self._last_when, self._last_tick, self._last_slot = when, deadline.tick, deadline._slot
        return deadline

    def next_wakeup(self) -> float | None:
        """When `advance` must next be called (seconds); None when nothing waits."""
        found = self._next_slot()
        return None if found is None else self._start + found[2] * TICK_SECONDS

    def advance(self, now: float) -> list[Deadline]:
        """Move the hand to `now` and return what expired on the way, earliest first."""
        # Half a tick of grace: a loop timer armed for exactly this tick may be rounded down.
        target = int((now - self._start) / TICK_SECONDS + 0.5)
        self._last_slot = None
        expired: list[Deadline] = []
        while True:
            found = self._next_slot()
            if found is None or found[2] > target:
                break
            level, index, tick = found
            self._hand = max(self._hand, tick)
            self._occupied[level] &= ~(1 << index)
            slot = self._levels[level][index]
            self._levels[level][index] = {}
            for deadline in slot:
                if level == 0 or deadline.tick <= self._hand:
                    deadline._slot = None
                    expired.append(deadline)
                else:
                    self._place(deadline)
        self._hand = max(self._hand, target)
        return expired

    def _place(self, deadline: Deadline) -> None:
        # The highest bit in which hand and deadline differ names the level: below it the deadline
        # lies in the level's current turn.
        tick = deadline.tick
        level = (
            min(((self._hand ^ tick) | _SLOT_MASK).bit_length() - 1, _SLOT_BITS * _LEVELS - 1) // _SLOT_BITS
        )
        index = (tick >> (level * _SLOT_BITS)) & _SLOT_MASK
        slot = self._levels[level][index]
        slot[deadline] = None
        deadline._slot = slot
        self._occupied[level] |= 1 << index

    def _next_slot(self) -> tuple[int, int, int] | None:
        """The next slot that may hold entries: (level, index, tick at which it begins)."""
        for level, occupied in enumerate(self._occupied):
            if not occupied:
                continue
            shift = level * _SLOT_BITS
            hand = (self._hand >> shift) & _SLOT_MASK
            # Slots ahead of the hand in this turn come first, then those of the next turn (only the
            # top level wraps: everything else of a next turn sits one level higher).
            ahead = occupied >> hand
            turn = (self._hand >> (shift + _SLOT_BITS)) << (shift + _SLOT_BITS)
            if ahead:
                index = hand + (ahead & -ahead).bit_length() - 1
            else:
                index = (occupied & -occupied).bit_length() - 1
                turn += 1 << (shift + _SLOT_BITS)
            return level, index, turn + (index << shift)
        return None


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class TimerLoop(Protocol):
    """What of an event loop the timer needs."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> TimerHandle: ...

    def call_exception_handler(self, context: dict[str, Any], /) -> None: ...


class WheelTimer:
    """All deadlines of a node behind a single timer of its event loop."""

    def __init__(self, loop: TimerLoop) -> None:
        self._loop = loop
        self._wheel = TimingWheel(loop.time())
        self._armed_for = float("inf")
        self._handle: TimerHandle | None = None
        self._expired: deque[Deadline] = deque()
        """Their callbacks are due."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Deadline:
        """Run `callback` in the loop after `delay` seconds (a tick late at most; later where very many are
        due)."""
        when = self._loop.time() + delay
        deadline = self._wheel.add(when, callback)
        if when < self._armed_for:
            self._arm()
        return deadline

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._armed_for = float("inf")

    def _arm(self) -> None:
        wakeup = self._loop.time() if self._expired else self._wheel.next_wakeup()
        if self._handle is not None:
            if wakeup is not None and wakeup >= self._armed_for:
                return
            self._handle.cancel()
            self._handle = None
        self._armed_for = float("inf")
        if wakeup is not None:
            self._armed_for = wakeup
            self._handle = self._loop.call_at(wakeup, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self._armed_for = float("inf")
        self._expired.extend(self._wheel.advance(self._loop.time()))
        for _ in range(min(len(self._expired), EXPIRED_PER_TURN)):
            deadline = self._expired.popleft()
            if not deadline.cancelled:  # by one that expired together with it
                try:
                    deadline.callback()
                except Exception as error:  # noqa: BLE001 - the other deadlines, and the timer, go on
                    message = f"a deadline's callback failed: {deadline.callback!r}"
                    self._loop.call_exception_handler({"message": message, "exception": error})
        self._arm()
