"""Long requests share the event loop: in each turn of the loop one of them does one piece of its work.

    request -> slices.py -> LongRequest.pause() --> the loop's other callbacks, a piece of another one --> on

With `asyncio.sleep(0)` instead, a hundred clients with large requests would make every turn a hundred
pieces long. A half answered request takes memory, so only the `AT_ONCE` oldest take turns, as many as Kafka
has request handlers; the others have not started. Answers that are yet to be encoded count among them, since
they take more memory than afterwards. A request that waits for something else, such as the controller, blocks
none of the others.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

AT_ONCE: Final = 8

Turn = asyncio.Future[None]


class LongWork:
    """The long requests of one node (context.py)."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._places = count()
        self._in_turn: deque[Turn] = deque()
        self._behind: list[tuple[int, Turn]] = []
        """A heap: the oldest first."""
        self._is_called = False
        self._encoding = 0
        """Answers."""

    @contextmanager
    def encoding(self) -> Iterator[None]:
        """While an answer is encoded outside the loop."""
        self._encoding += 1
        try:
            yield
        finally:
            self._encoding -= 1
            self._call()

    def request(self) -> LongRequest:
        """A request that turns out to be long. Its place is behind all that are there."""
        return LongRequest(self, next(self._places))

    def join(self, place: int) -> Turn:
        """Wait behind all who came earlier: a newcomer takes no turn while an older request is half done."""
        turn: Turn = self._loop.create_future()
        heapq.heappush(self._behind, (place, turn))
        self._call()
        return turn

    @property
    def _has_room(self) -> bool:
        return len(self._in_turn) + self._encoding < AT_ONCE

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Who is let go on runs in the next turn, and has come back by the time that this is called again."""
        self._is_called = False
        while self._behind and self._has_room:
            self._in_turn.append(heapq.heappop(self._behind)[1])
        while self._in_turn:
            turn = self._in_turn.popleft()
            if not turn.done():  # else its client is gone
                turn.set_result(None)
                break
        if self._in_turn or (self._behind and self._has_room):
            self._call()


class LongRequest:
    """One of them; `LongWork.request` makes it."""

    def __init__(self, work: LongWork, place: int) -> None:
        self._work = work
        self._place = place

    async def pause(self) -> None:
        """Between two pieces, each of a few milliseconds, and before the first one."""
        await self._work.join(self._place)
