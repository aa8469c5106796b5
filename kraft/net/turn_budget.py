"""How much of one iteration of the event loop is spent on requests.

    request, request, request ... -> ServerConnection -> TurnBudget: the first at once, the others while
                                     the iteration has time for them, the rest in later iterations

A client may send thousands of small requests in one read. Each connection's first one is served when it
arrives, and most connections never have more (to make it wait for others' as a rule cost a third of the
throughput with acks=1: nothing is read for a connection that waits). Beyond that all connections share
`SHARE_S` of an iteration, and `SHARE` requests that continue in a task, and alternate for the rest. Where a
thousand clients ask at the same moment, their first requests alone would fill an iteration: after `LONG_S` of
them, or `SHARE` that continue in a task, the others wait too. Between two iterations the loop is free for
everything else.

Time in which the machine runs other processes is not counted, up to `LONGEST_S`: an iteration that ends for
it serves nobody sooner, and small ones make each request dearer: what one appends is replicated together.
Beyond that it may be the disk that makes us wait, and others have waited long enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

SHARE: Final = 64
"""Requests that continue in a task: all that start in one iteration continue together in the next."""
SHARE_S: Final = 0.005
LONG_S: Final = 0.01
"""Of first requests; twice that, and what they take to be received, is less than what counts as a stall."""
FEW: Final = 8
"""First requests that no iteration lets wait: one connection's large ones take milliseconds each."""
LONGEST_S: Final = 0.05
LEAST_S: Final = 0.0001
"""A share of which less is left is used up."""


class TurnBudget:
    """Of one server.

    It is open from the first time that it is looked at closely until the loop's next iteration. To know that
    costs a callback, which a request should not pay for, so first requests only open it every `LONG_S`.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stopwatch: Callable[[], float], cpu_time: Callable[[], float]
    ) -> None:
        """`stopwatch`: finer than the loop's own time. `cpu_time`: of the loop's thread; asked for only when
        time is up by the stopwatch, for it takes ten times as long."""
        self._loop = loop
        self._stopwatch = stopwatch
        self._cpu_time = cpu_time
        self._waiting: dict[Callable[[], None], None] = {}
        """In the order of arrival; each once."""
        self._is_open = False
        self._long_ends = 0.0
        self._begun = 0
        """First requests since it was opened."""
        self._left = SHARE
        self._ends = 0.0
        self._latest = 0.0
        self._cpu_before = 0.0
        self._share_s = SHARE_S
        self._is_long = False
        """First requests wait, until the next iteration."""

    def may_begin(self, now: float, resume: Callable[[], None]) -> bool:
        """Whether the first request that a connection has just received may be served now, by the stopwatch;
        else `resume` is called in a later iteration."""
        self._begun += 1
        if self._begun <= FEW or (now < self._long_ends and self._left > 0):
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
        """Whether this iteration has time for one more request; else `resume` is called in a later one."""
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
        self._cpu_before = self._cpu_time()
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """The next iteration has started."""
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
