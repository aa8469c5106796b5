"""Does the loop stand still? A thread beside it measures, in the loop thread's own CPU time.

    watch, every few ms: has the loop used CPU time?  --yes--> call_soon_threadsafe(mark)
    loop:  ends what it is at, does what was ready before --> mark: how much CPU time has that taken?

What lies between is what a request that comes in just now would have waited for. CPU time and not time by
the clock: a busy machine, or a node that is paused, is no fault of the code. It counts from when the mark is
in the loop's queue: each time that the watch itself waits for a CPU or for the interpreter's lock, the loop
does many turns, which are not one. While it takes too long, the watch looks where the loop's thread is, which
names the culprit.

A call that keeps the interpreter's lock keeps the watch from looking, too. So a timer notes how much CPU time
the loop has used: where the note is older than its period, one turn goes on since it was due. (That the watch
was kept away tells nothing: a loop whose turns are all shorter than the interpreter's switch interval lets go
of the lock between them, takes it again before anybody wakes, and is never asked for it.)
Time in which the loop's thread neither ran nor waited for a CPU is time in a blocking call (or for that lock,
or on pause): of that only the log tells.

Made by node/serve.py for a node that is up.
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
from dataclasses import asdict, dataclass, field
from typing import Final

log = logging.getLogger(__name__)

IDLE_S: Final = 0.001
"""Who used less since the last look is not asked."""
LOOKS_IN_LIMIT: Final = 2
"""So often the watch looks while the limit passes."""
BLOCKED_LIMITS: Final = 4
"""A blocking call is told of from so many limits on."""
MAX_STACKS: Final = 4
MAX_DEPTH: Final = 25
LOG_AGAIN_S: Final = 10.0
TIMER_S: Final = 0.002
"""By so much a loop's timers may be late of themselves."""
_NOT_YET: Final = float("inf")
"""The CPU time from which on a turn counts, while its mark is not in the loop's queue."""
RECORD_ENVIRONMENT: Final = "KRAFT_STALLS"
"""Names a file that gets a line of JSON for each stall: how tests hear of them."""


@dataclass(frozen=True, slots=True)
class Stall:
    """One time that the loop stood still; times in ms."""

    cpu_ms: float
    blocked_ms: float
    stacks: tuple[str, ...]
    """Where it was found meanwhile, the innermost call first."""


@dataclass(slots=True)
class LoopHealth:
    """What /status tells of the loop."""

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
        self._asked: _LoopSample | None = None
        self._noted_s = 0.0
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
            in_turn_s = self._in_turn_s()  # first: whoever looks further lets go of the interpreter's lock
            stacks = [_stack_of(self._loop_thread)] if in_turn_s > self._limit_s else []
            look = self._look()
            asked = self._asked
            if asked is not None:
                late_s = max(look.cpu_s - asked.cpu_s, (look.at_s - asked.at_s) / BLOCKED_LIMITS)
                if late_s > self._limit_s / 2 and len(asked.stacks) < MAX_STACKS:
                    asked.stacks.append(_stack_of(self._loop_thread))
            elif look.cpu_s - last.cpu_s > IDLE_S:
                self._ask(look.waited_s, in_turn_s if stacks else 0.0, stacks)
            last = look

    def _look(self) -> _LoopSample:
        waited_s = self._waited_s()  # first: for a moment it lets go of the lock
        return _LoopSample(time.clock_gettime(self._clock), time.perf_counter(), waited_s)

    def _in_turn_s(self) -> float:
        """For so long, at least, the turn goes on that goes on now."""
        due_s = self._noted_s + self._period_s + TIMER_S
        return time.clock_gettime(self._clock) - due_s

    def _ask(self, waited_s: float, known_s: float, stacks: list[str]) -> None:
        """`known_s`: so much a turn has taken up to now, even if it has just ended."""
        asked = self._asked = _LoopSample(_NOT_YET, time.perf_counter(), waited_s, stacks)
        try:
            self._loop.call_soon_threadsafe(self._mark)
        except RuntimeError:  # it is closed
            self._ended.set()
        asked.cpu_s = time.clock_gettime(self._clock) - max(known_s, self._in_turn_s(), 0.0)

    # --- in the loop's thread

    def _note(self) -> None:
        self._noted_s = time.thread_time()
        self._noting = self._loop.call_later(self._period_s, self._note)

    def _mark(self) -> None:
        asked, self._asked = self._asked, None
        if asked is None:
            return
        cpu_s = max(time.thread_time() - asked.cpu_s, 0.0)
        blocked_s = 0.0
        wall_s = time.perf_counter() - asked.at_s
        if wall_s - cpu_s > self._limit_s * BLOCKED_LIMITS:
            blocked_s = wall_s - cpu_s - (self._waited_s() - asked.waited_s)
        health = self.health
        health.longest_ms = max(health.longest_ms, round(cpu_s * 1000, 1))
        health.longest_blocked_ms = max(health.longest_blocked_ms, round(blocked_s * 1000, 1))
        if cpu_s > self._limit_s:
            health.stalls += 1
        elif blocked_s <= self._limit_s * BLOCKED_LIMITS:
            return
        self._on_stall(Stall(round(cpu_s * 1000, 1), round(blocked_s * 1000, 1), tuple(asked.stacks)))


@dataclass(slots=True)
class _LoopSample:
    """How far the loop's thread was: CPU time, time by the clock, time for which it waited for a CPU."""

    cpu_s: float
    at_s: float
    waited_s: float
    stacks: list[str] = field(default_factory=list)


def _waiting_time() -> Callable[[], float]:
    """For how long the calling thread has been ready to run without a CPU, to be asked from any thread: the
    second number of its schedstat, in ns. Without such a thing all waiting is taken for that."""
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
    """Where stalls are told: the log, now and then, and a file if the environment names one."""

    def __init__(
        self, node_id: int, limit_ms: float, now: Callable[[], float], record: str | None = None
    ) -> None:
        self._node_id = node_id
        self._limit_ms = limit_ms
        self._now = now
        self._record = record if record is not None else os.environ.get(RECORD_ENVIRONMENT)
        self._logged_at = float("-inf")
        self._unlogged = 0

    def __call__(self, stall: Stall) -> None:
        if self._record and stall.cpu_ms > self._limit_ms:
            line = json.dumps({"node": self._node_id, **asdict(stall)})
            with open(self._record, "a", encoding="utf-8") as file:  # short, and never on a user's node
                file.write(line + "\n")
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
