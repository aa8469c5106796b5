"""Detects stalls of the event loop: a thread beside it measures, in the loop thread's own CPU time.

    watch, every few ms: has the loop used CPU time?  --yes--> call_soon_threadsafe(mark)
    loop:  ends its callback, runs those that are ready --> mark: how much CPU time did that take?

The time between is what a request that arrives now would wait. It is CPU time, not time by the clock: a busy
machine, or a node that is paused, is no fault of the code. It counts from when the mark is in the loop's
queue: while the watch itself waits for a CPU or for the interpreter's lock, the loop runs many turns,
which must not count as one. While a turn takes too long, the watch takes the stack of the loop's
thread, which names the culprit.

A call that keeps the interpreter's lock keeps the watch from looking, too. So a timer notes how much CPU time
the loop has used: where the note is older than its period, one turn has been running since it was due.
(That the watch could not run proves nothing: a loop whose turns are all shorter than the interpreter's
switch interval releases the lock between them and takes it again before another thread wakes.)
Time in which the loop's thread neither ran nor waited for a CPU is time in a blocking call (or for that lock,
or paused): this is only logged.

node/serve.py makes one for a node that is up.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Final

from kraft.monitoring.yardstick import yardstick_s

log = logging.getLogger(__name__)

IDLE_S: Final = 0.001
"""A loop that used less CPU time since the last sample is idle."""
LOOKS_IN_LIMIT: Final = 2
"""Samples of the watch within one limit."""
BLOCKED_LIMITS: Final = 4
"""A blocking call is reported when it takes this many limits."""
MAX_STACKS: Final = 4
MAX_DEPTH: Final = 25
LOG_AGAIN_S: Final = 10.0
TIMER_S: Final = 0.002
"""How late a loop's timers may be without a stall."""
_NOT_YET: Final = float("inf")
"""The start of a turn, in CPU time, while its mark is not in the loop's queue."""
RECORD_ENVIRONMENT: Final = "KRAFT_STALLS"
"""Names a file that gets a line of JSON for each stall, with how slow the machine is just then: tests read
it."""
YARDSTICK_TRIES: Final = 3
"""Together less than a stall, on any machine that the tests are for."""


@dataclass(frozen=True, slots=True)
class Stall:
    """One stall of the loop; times in ms."""

    cpu_ms: float
    blocked_ms: float
    stacks: tuple[str, ...]
    """The stacks of the loop's thread during the stall, the innermost call first."""


@dataclass(slots=True)
class LoopHealth:
    """The loop in /status."""

    stalls: int = 0
    longest_ms: float = 0.0
    """CPU time in one turn."""
    longest_blocked_ms: float = 0.0


class StallWatch:
    """See the module. Made and started in the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limit_ms: float,
        on_stall: Callable[[Stall], None],
        health: LoopHealth | None = None,
    ) -> None:
        self._loop = loop
        self._limit_s = limit_ms / 1000
        self._period_s = self._limit_s / LOOKS_IN_LIMIT
        self._on_stall = on_stall
        self.health = health if health is not None else LoopHealth()
        self._loop_thread = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._loop_thread)
        self._waited_s = _waiting_time()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stall-watch", daemon=True)
        self._pending: _LoopSample | None = None
        self._noted_s = 0.0
        self._marked_s = 0.0
        """The loop's CPU time at its last mark: what it used before is counted."""
        self._noting: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._note()
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        if self._noting is not None:
            self._noting.cancel()

    # --- in the watch's thread

    def _watch(self) -> None:
        last = self._look()
        while not self._ended.wait(self._period_s):
            in_turn_s = self._in_turn_s()  # first: the other calls release the interpreter's lock
            stacks = [_stack_of(self._loop_thread)] if in_turn_s > self._limit_s else []
            look = self._look()
            pending = self._pending
            if pending is not None:
                late_s = max(look.cpu_s - pending.cpu_s, (look.at_s - pending.at_s) / BLOCKED_LIMITS)
                if late_s > self._limit_s / 2 and len(pending.stacks) < MAX_STACKS:
                    pending.stacks.append(_stack_of(self._loop_thread))
            elif look.cpu_s - last.cpu_s > IDLE_S:
                self._request_mark(look.waited_s, in_turn_s if stacks else 0.0, stacks)
            last = look

    def _look(self) -> _LoopSample:
        waited_s = self._waited_s()  # first: it releases the lock
        return _LoopSample(time.clock_gettime(self._clock), time.perf_counter(), waited_s)

    def _in_turn_s(self) -> float:
        """A lower bound of the CPU time that the current turn has used."""
        due_s = self._noted_s + self._period_s + TIMER_S
        return time.clock_gettime(self._clock) - due_s

    def _request_mark(self, waited_s: float, known_s: float, stacks: list[str]) -> None:
        """`known_s`: CPU time that a turn has used up to now, even if it has just ended."""
        pending = self._pending = _LoopSample(_NOT_YET, time.perf_counter(), waited_s, stacks)
        try:
            self._loop.call_soon_threadsafe(self._mark)
        except RuntimeError:  # it is closed
            self._ended.set()
        started_s = time.clock_gettime(self._clock) - max(known_s, self._in_turn_s(), 0.0)
        pending.cpu_s = max(started_s, self._marked_s)

    # --- in the loop's thread

    def _note(self) -> None:
        self._noted_s = time.thread_time()
        self._noting = self._loop.call_later(self._period_s, self._note)

    def _mark(self) -> None:
        self._marked_s = now_s = time.thread_time()  # before the watch may ask for the next mark
        pending, self._pending = self._pending, None
        if pending is None:
            return
        cpu_s = max(now_s - pending.cpu_s, 0.0)
        blocked_s = 0.0
        wall_s = time.perf_counter() - pending.at_s
        if wall_s - cpu_s > self._limit_s * BLOCKED_LIMITS:
            blocked_s = wall_s - cpu_s - (self._waited_s() - pending.waited_s)
        health = self.health
        health.longest_ms = max(health.longest_ms, round(cpu_s * 1000, 1))
        health.longest_blocked_ms = max(health.longest_blocked_ms, round(blocked_s * 1000, 1))
        if cpu_s > self._limit_s:
            health.stalls += 1
        elif blocked_s <= self._limit_s * BLOCKED_LIMITS:
            return
        self._on_stall(Stall(round(cpu_s * 1000, 1), round(blocked_s * 1000, 1), tuple(pending.stacks)))


@dataclass(slots=True)
class _LoopSample:
    """How far the loop's thread was: CPU time, time by the clock, time for which it waited for a CPU."""

    cpu_s: float
    at_s: float
    waited_s: float
    stacks: list[str] = field(default_factory=list)


def _waiting_time() -> Callable[[], float]:
    """For how long the calling thread has been ready to run without a CPU, callable from any thread: the
    second number of its schedstat, in ns. On systems without it all waiting counts as that."""
    try:
        fd = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
    except OSError:
        return time.perf_counter
    return lambda: int(os.pread(fd, 64, 0).split()[1]) / 1e9


def _stack_of(thread: int) -> str:
    frame = sys._current_frames().get(thread)
    calls: list[str] = []
    while frame is not None and len(calls) < MAX_DEPTH:
        code = frame.f_code
        path = "/".join(code.co_filename.split("/")[-3:])
        calls.append(f"{path}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(calls)


class StallLog:
    """Reports stalls: to the log every `LOG_AGAIN_S` at most, and to a file if the environment names one."""

    def __init__(
        self,
        node_id: int,
        limit_ms: float,
        now: Callable[[], float],
        record: str | None = None,
        yardstick: Callable[[], float] = lambda: yardstick_s(YARDSTICK_TRIES),
    ) -> None:
        self._node_id = node_id
        self._limit_ms = limit_ms
        self._now = now
        self._record = record if record is not None else os.environ.get(RECORD_ENVIRONMENT)
        self._yardstick = yardstick
        self._logged_at = float("-inf")
        self._unlogged = 0

    def __call__(self, stall: Stall) -> None:
        if self._record and stall.cpu_ms > self._limit_ms:
            yardstick_ms = round(self._yardstick() * 1000, 2)
            line = json.dumps({"node": self._node_id, "yardstick_ms": yardstick_ms, **asdict(stall)})
            with suppress(OSError), open(self._record, "a", encoding="utf-8") as file:
                file.write(line + "\n")  # short, never on a user's node, and the disk may be full
        now = self._now()
        if now - self._logged_at < LOG_AGAIN_S:
            self._unlogged += 1
            return
        self._logged_at = now
        log.warning(
            "the loop stood still: %g ms of CPU, %g ms in blocking calls (%d more since the last line)\n%s",
            stall.cpu_ms,
            stall.blocked_ms,
            self._unlogged,
            "\n".join(f"  at {stack}" for stack in stall.stacks) or "  where is not known",
        )
        self._unlogged = 0
