"""What is done in the next turn of the event loop: once, however often it is asked for until then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class NextTurn:
    """Of one piece of work, which asks anew where it has left something for the turn after."""

    __slots__ = ("_loop", "_work", "is_asked")

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
        self._loop = loop
        self._work = work
        self.is_asked = False
        """Whether the work comes in the next turn."""

    def ask(self) -> None:
        if not self.is_asked:
            self.is_asked = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self.is_asked = False
        self._work()
