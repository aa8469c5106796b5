"""How many waits of a node end in one turn of the event loop.

One advance of a high watermark may be what tens of thousands of produces wait for, on hundreds of
connections: a follower stood still for a second. Each is answered in some 10 microseconds. So the first
`PER_TURN` are called back at once, and what comes then in the turns after, in the same order: nothing
overtakes it.

    ThresholdPurgatory -> left: while it lasts, at once
                       -> put_off -> (turn by turn) -> ThresholdPurgatory

While few end at a time, counting them is all that this costs: the count starts anew only once it is used up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

PER_TURN: Final = 500


class CompletionTurns:
    """Of all partitions of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.left = PER_TURN
        """How many may still be called back at once."""
        self._put_off: deque[Callable[[], None]] = deque()

    def put_off(self, calls: Iterable[Callable[[], None]]) -> None:
        """Call them in the next turns, behind all that were put off before."""
        self.left = 0
        if not self._put_off:
            self._loop.call_soon(self._next)
        self._put_off.extend(calls)

    def _next(self) -> None:
        put_off = self._put_off
        try:
            for _ in range(min(len(put_off), PER_TURN)):
                call = put_off[0]
                try:
                    call()
                finally:
                    put_off.popleft()  # not before: what it completes comes behind the others
        finally:
            if put_off:
                self._loop.call_soon(self._next)
            else:
                self.left = PER_TURN
