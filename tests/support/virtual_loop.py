"""An asyncio loop whose time passes only when nothing else is to be done: tests never really wait."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _NoSelector(selectors.DefaultSelector):
    """Instead of waiting, advances the virtual clock."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing is scheduled: the test waits for ever")
        if timeout > 0:
            self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Real coroutines and timers, virtual seconds, no sockets."""

    def __init__(self) -> None:
        self._virtual = _NoSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def stand_still(self, seconds: float) -> None:
        """Time passes, and no timer fires meanwhile."""
        self._virtual.now += seconds


def run_virtually(test: Coroutine[Any, Any, None]) -> None:
    """Run one coroutine on a virtual loop to its end."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(test)
    finally:
        loop.close()
