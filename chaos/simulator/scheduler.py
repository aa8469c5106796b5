"""Virtual time: callbacks of all processes, one after the other, in an order that a seed alone decides.

    call_soon -> ready, first in first out -----.
    call_at   -> a heap by time and number ------+-> run: sets the clock, then calls
                                                 '-> `digest`: what was called, when, in which process

A callback takes next to no time, and waiting takes none of ours: when nothing is ready, the clock jumps to
the next timer. What belongs to a process that is stopped or waits for its disk is put
aside until it continues; what belongs to a dead one is dropped.
"""

from __future__ import annotations

import asyncio
import heapq
from abc import abstractmethod
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from struct import Struct
from typing import Any, Final
from zlib import crc32

from chaos.sim.disk import Killed

_pack_event: Final = Struct("<dI").pack
_set_running_loop: Final = events._set_running_loop
_push, _pop = heapq.heappush, heapq.heappop
CALL_S: Final = 1e-6
"""What a callback takes: code that asks for the time again and again sees it pass."""
BUSY_EVENTS: Final = 100_000
"""In one second: something goes round in circles."""


class Livelock(Exception):
    """Callbacks call callbacks, and nothing comes of it."""


class Process(asyncio.AbstractEventLoop):
    """A process as time, the network and its threads see it (process_loop.py)."""

    host: str
    """Where it runs."""
    number: int
    """From 1, in the order in which they were started."""
    alive: bool
    held: int
    """By how many it is: a signal, its disk."""
    context: Context
    """Of what is called in it from outside."""

    @property
    @abstractmethod
    def busy_s(self) -> float:
        """How long it waits for its disk yet; what it says meanwhile leaves afterwards."""

    @abstractmethod
    def put_aside(self, call: ScheduledCall) -> None:
        """It is held: what is due is called when it goes on."""

    @abstractmethod
    def post(self, callback: Callable[..., object], *args: object) -> None:
        """Call it in this process; from outside of it."""

    @abstractmethod
    def call_after(self, seconds: float, callback: Callable[..., object], *args: object) -> None:
        """As `post`, when so much time of the simulation has passed."""


class ScheduledCall:
    """As `asyncio.Handle` and `asyncio.TimerHandle` are used."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "process", "time")

    def __init__(
        self,
        process: Process | None,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None = None,
        time: float = 0.0,
    ) -> None:
        self.process = process
        self.callback = callback
        self.args = args
        self.context = context if context is not None else copy_context()
        self.is_cancelled = False
        self.time = time

    def cancel(self) -> None:
        self.is_cancelled = True
        self.args = ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        """By the clock of its own process."""
        return self.time


class Scheduler:
    """Runs all processes of a simulation in this thread."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the simulation began."""
        self.ready: deque[ScheduledCall] = deque()
        self.events = 0
        self.digest = 0
        """Two runs that did the same have the same."""
        self.running: Process | None = None
        """Whose code runs now; None: the simulated world's own."""
        self.trace: Callable[[str], None] | None = None
        """Told of every call, to find where two runs part."""
        self.after_event: Callable[[], None] | None = None
        """Called once, when the present call has returned: what only looks is no event of its own."""
        self._context = copy_context()
        """Of what belongs to no process."""
        self._timers: list[tuple[float, int, ScheduledCall]] = []
        self._timers_made = 0
        self._alarm_set_at = 0.0
        self._alarm_at = BUSY_EVENTS

    def at(self, time: float, callback: Callable[..., object], *args: object) -> ScheduledCall:
        """Call what belongs to no process at a time of the simulation."""
        call = ScheduledCall(None, callback, args, self._context, time)
        self._timers_made += 1
        _push(self._timers, (time, self._timers_made, call))
        return call

    def add_timer(self, time: float, call: ScheduledCall) -> None:
        self._timers_made += 1
        _push(self._timers, (time, self._timers_made, call))

    @property
    def next_due(self) -> float:
        """Nothing happens before, but what is called now."""
        return self._timers[0][0] if self._timers else self.now

    def note(self, data: bytes) -> None:
        """Make it part of the digest."""
        self.digest = crc32(data, self.digest)

    def run(self, until: float, stop: Callable[[], bool] | None = None) -> None:
        """Until that time, or until `stop`, which is asked after every callback."""
        ready, timers, call = self.ready, self._timers, self._call
        try:
            while True:
                if not ready and not self._advance(until):
                    return
                for _ in range(len(ready)):
                    call(ready.popleft())
                    if stop is not None and stop():
                        return
                if timers and timers[0][0] <= self.now:
                    self._take_due()
                if self.events > self._alarm_at:
                    self._reset_alarm()
        finally:
            self._enter(None)

    def _advance(self, until: float) -> bool:
        """To the next timer; False where none is due before `until`."""
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            _pop(timers)
        if not timers or timers[0][0] > until:
            self.now = max(self.now, until)
            return False
        due, _, call = _pop(timers)
        self.ready.append(call)
        if due > self.now:
            self.now = due
        if timers and timers[0][0] <= self.now:
            self._take_due()
        return True

    def _take_due(self) -> None:
        timers, now = self._timers, self.now
        while timers and timers[0][0] <= now:
            call = _pop(timers)[2]
            if not call.is_cancelled:
                self.ready.append(call)

    def _reset_alarm(self) -> None:
        """So many callbacks have passed since it was set. Raises `Livelock` where that took no second."""
        if self.now < self._alarm_set_at + 1.0:
            raise Livelock(f"{BUSY_EVENTS} callbacks within a second, at {self.now:.3f} s")
        self._alarm_set_at, self._alarm_at = self.now, self.events + BUSY_EVENTS

    def _call(self, call: ScheduledCall) -> None:
        process = call.process
        if call.is_cancelled:
            return
        if process is None:
            number = 0
        elif process.held:
            process.put_aside(call)
            return
        elif not process.alive:
            return
        else:
            number = process.number
        self.events += 1
        self.now = now = self.now + CALL_S
        self.digest = crc32(_pack_event(now, number), self.digest)
        if self.trace is not None:
            self.trace(f"{now:.9f} {process} {_name(call)} {self.digest:08x}")
        if process is not self.running:
            self.running = process
            _set_running_loop(process)
        try:
            call.context.run(call.callback, *call.args)
        except Killed:
            pass
        except Exception as error:
            if process is None:
                raise
            process.call_exception_handler({"message": "a callback has failed", "exception": error})
        after_event = self.after_event
        if after_event is not None:
            self.after_event = None
            after_event()

    def _enter(self, process: Process | None) -> None:
        """What runs now is its code."""
        self.running = process
        _set_running_loop(process)

    def within(self, process: Process, callback: Callable[[], object]) -> None:
        """Part of the present call is that process's own: as a call of it, which is alive and not held."""
        before = self.running
        if process is not before:
            self._enter(process)
        try:
            process.context.run(callback)
        except Killed:
            pass
        except Exception as error:  # noqa: BLE001 - as a loop takes what a callback raises
            process.call_exception_handler({"message": "a callback has failed", "exception": error})
        finally:
            if process is not before:
                self._enter(before)


def _name(call: ScheduledCall) -> str:
    """For traces."""
    owner = getattr(call.callback, "__self__", None)
    named = getattr(owner.get_coro(), "__qualname__", "") if isinstance(owner, asyncio.Task) else ""
    return f"{getattr(call.callback, '__qualname__', type(call.callback).__name__)} {named}"
