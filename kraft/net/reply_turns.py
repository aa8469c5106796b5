"""On how many connections replies are sent in one turn of the event loop.

    a reply that was waited for -> ServerConnection -> add -> (the next turn, or one after it) -> it is sent

All replies of a connection that are there by then leave with one write, which takes some 10 to 20
microseconds. Thousands of connections may have waited for the same thing: a follower, a coordinator.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from metadata_quorum.foundation.next_turn import NextTurn

PER_TURN: Final = 500


class ReplyTurns:
    """Of all connections of one server."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._next_turn = NextTurn(loop, self._send_some)

    def add(self, send: Callable[[], None]) -> None:
        """`send` is called soon."""
        self._waiting.append(send)
        self._next_turn.ask()

    def _send_some(self) -> None:
        waiting = self._waiting
        try:
            for _ in range(min(len(waiting), PER_TURN)):
                waiting.popleft()()
        finally:
            if waiting:
                self._next_turn.ask()
