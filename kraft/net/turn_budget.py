"""How much of one iteration of the event loop is spent on requests that came in one read.

    request, request, request ... -> ServerConnection -> TurnBudget: the first at once, the others while
                                     the iteration has time for them, the rest in later iterations

A client may send thousands of small requests in one read. Each connection's first one is served when it
arrives, and most connections never have more (to make it wait as well, behind others' first ones, cost a
third of the throughput with acks=1: nothing is read for a connection that waits). Beyond that all connections
share `SHARE_S` of an iteration, and `SHARE` requests that continue in a task, and alternate for the rest.
Between two iterations the loop is free for everything else.

Time in which the machine runs other processes is not counted: an iteration that ends because of it serves
nobody sooner, and small ones make each request dearer: what one of them appends is replicated together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

SHARE: Final = 64
"""Requests that continue in a task: all that start in one iteration continue together in the next."""
SHARE_S: Final = 0.005
LEAST_S: Final = 0.0001
"""A share of which less is left is used up."""


class TurnBudget:
    """Of one server."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stopwatch: Callable[[], float], cpu_time: Callable[[], float]
    ) -> None:
        """`stopwatch`: not the loop's own time, which is constant within an iteration. `cpu_time`: of the
        loop's thread; asked for only when time is up by the stopwatch, for it takes ten times as long."""
        self._loop = loop
        self._stopwatch = stopwatch
        self._cpu_time = cpu_time
        self._waiting: dict[Callable[[], None], None] = {}
        """In the order of arrival; each once."""
        self._is_open = False
        self._left = 0
        self._ends = 0.0
        self._cpu_before = 0.0

    def may_continue(self, resume: Callable[[], None]) -> bool:
        """Whether this iteration has time for one more request; else `resume` is called in a later one."""
        if not self._is_open:
            self._open()
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
        left_s = SHARE_S - (self._cpu_time() - self._cpu_before)
        self._ends = now + left_s
        return left_s < LEAST_S

    def _open(self) -> None:
        self._is_open = True
        self._left = SHARE
        self._ends = self._stopwatch() + SHARE_S
        self._cpu_before = self._cpu_time()
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """The next iteration has started."""
        self._is_open = False
        if not self._waiting:
            return
        self._open()
        for _ in range(len(self._waiting)):
            if self._is_over():
                return
            resume = next(iter(self._waiting))
            del self._waiting[resume]
            resume()
