"""How much of one turn of the loop goes to requests that came in a row.

    request, request, request ... -> ServerConnection -> Turns: the first at once, the others while the turn
                                     has time for them, and what is left in a later turn

A client may send thousands of small requests in one read. Each connection's first one is served when it
comes, which is all that most ever have; beyond that all connections share a turn's `SHARE_S`, and `SHARE` of
the requests that are not done with it, and take turns for the rest. Between two of them the loop is everybody
else's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

SHARE: Final = 64
"""Requests that go on in a task: what many of them only begin, all go on with in the turn after."""
SHARE_S: Final = 0.005


class TurnBudget:
    """Of one server."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stopwatch: Callable[[], float] = time.perf_counter
    ) -> None:
        """The loop's own time does not go on within a turn."""
        self._loop = loop
        self._stopwatch = stopwatch
        self._waiting: dict[Callable[[], None], None] = {}
        """In the order in which they came; each once."""
        self._is_open = False
        self._left = 0
        self._ends = 0.0

    def may_continue(self, resume: Callable[[], None]) -> bool:
        """Whether this turn has time for one more request; else `resume` is called in a later one."""
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
        return self._left <= 0 or self._stopwatch() >= self._ends

    def _open(self) -> None:
        self._is_open = True
        self._left = SHARE
        self._ends = self._stopwatch() + SHARE_S
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """A new turn has begun."""
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
