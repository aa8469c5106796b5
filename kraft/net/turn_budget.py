"""How much of one turn (iteration) of the event loop may be spent on requests.

    request, request, request ... -> ServerConnection -> TurnBudget: the first at once, the others while
                                     the turn has time for them, the rest in later turns

A client may send thousands of small requests in one read. Each connection's first one is served when it
arrives, and most connections never have more. (Always making it wait for the others costs a third of the
throughput with acks=1, because nothing is read from a connection that waits.) Beyond that, all connections
share `SHARE_S` of a turn, and `SHARE` requests that continue in a task, and alternate. When a thousand
clients send at the same moment, their first requests alone would fill a turn: after `LONG_S` of them,
or `SHARE` that continue in a task, the others wait too. Between two turns the loop is free for
everything else.

Time in which the machine runs other processes does not count, up to `LONGEST_S`. Ending a turn because
of it would serve nobody sooner, and short turns make each request more expensive, because what one
turn appends is replicated together. Beyond that it may be the disk that holds us up, and others have
waited long enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

SHARE: Final = 64
"""Requests that continue in a task: all that start in one turn continue together in the next."""
SHARE_S: Final = 0.005
LONG_S: Final = 0.01
"""The share of first requests. Twice that, plus the time to receive them, is less than a stall."""
FEW: Final = 8
"""That many first requests do not wait in a turn, unless they have taken `LONG_S` already: one may take ten
milliseconds, where thousands of consumers are told of what it appends."""
LONGEST_S: Final = 0.05
LEAST_S: Final = 0.0001
"""A share counts as used up when less than this is left of it."""


class TurnBudget:
    """The budget of one server, shared by all of its connections.

    It is open from the first precise check until the loop's next turn. Learning of that turn costs
    a callback, which not every request should pay for, so first requests open it only every `LONG_S`.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stopwatch: Callable[[], float], cpu_time: Callable[[], float]
    ) -> None:
        """`stopwatch`: finer than the loop's own time. `cpu_time`: of the loop's thread; read only when time
        is up by the stopwatch, because reading it takes ten times as long."""
        self._loop = loop
        self._stopwatch = stopwatch
        self._cpu_time = cpu_time
        self._waiting: dict[Callable[[], None], None] = {}
        """To be resumed, in the order of arrival, each once."""
        self._is_open = False
        self._long_ends = 0.0
        self._begun = 0
        """First requests since it was opened."""
        self._few_end = 0.0
        """Until then the first `FEW` of these do not wait."""
        self._left = SHARE
        self._ends = 0.0
        self._latest = 0.0
        self._cpu_before = 0.0
        self._share_s = SHARE_S
        self._is_long = False
        """First requests wait, until the next turn."""

    def may_begin(self, now: float, resume: Callable[[], None]) -> bool:
        """Whether the first request that a connection has just received, at `now` by the stopwatch, may be
        served at once; otherwise `resume` is called in a later turn."""
        self._begun += 1
        if self._begun <= FEW:
            if self._begun == 1 and not self._is_open:
                self._few_end = now + LONG_S
            if now < self._few_end:
                return True
        elif now < self._long_ends and self._left > 0:
            return True
        if not self._is_open:
            self._open(SHARE_S)
            return True
        if not self._is_long:
            left_s = self._left_of(LONG_S, now)
            self._long_ends = now + left_s
            if self._left > 0 and left_s >= LEAST_S:
                return True
            self._is_long = True
        self._waiting[resume] = None
        return False

    def may_continue(self, resume: Callable[[], None]) -> bool:
        """Whether this turn has time for one more request; otherwise `resume` is called in a later
        one."""
        if not self._is_open:
            self._open(SHARE_S)
        elif self._is_over():
            self._waiting[resume] = None
            return False
        return True

    def started(self) -> None:
        """A request was started, and continues in a task."""
        self._left -= 1

    def _is_over(self) -> bool:
        if self._left <= 0:
            return True
        now = self._stopwatch()
        if now < self._ends:
            return False
        left_s = self._left_of(self._share_s, now)
        self._ends = now + left_s
        return left_s < LEAST_S

    def _left_of(self, share_s: float, now: float) -> float:
        return min(share_s - (self._cpu_time() - self._cpu_before), self._latest - now)

    def _open(self, share_s: float) -> None:
        self._is_open = True
        self._begun = 0
        self._left = SHARE
        self._share_s = share_s
        now = self._stopwatch()
        self._ends, self._long_ends, self._latest = now + share_s, now + LONG_S, now + LONGEST_S
        self._few_end = self._long_ends
        self._cpu_before = self._cpu_time()
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """The next turn has started."""
        was_long = self._is_long
        self._is_open = self._is_long = False
        if not self._waiting:
            return
        self._open(LONG_S if was_long else SHARE_S)
        for _ in range(len(self._waiting)):
            if self._is_over():
                return
            resume = next(iter(self._waiting))
            del self._waiting[resume]
            resume()
