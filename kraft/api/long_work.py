"""Long requests share the event loop: in each turn of the loop one of them does one piece of its work.

    request -> slices.py -> LongRequest.pause() --> the loop's other callbacks, a piece of another one --> on
    frame of a client -> dispatch.py -> LongWork.begin() --> decoded in a thread --> handler -> slices.py

With `asyncio.sleep(0)` instead, a hundred clients with large requests would make every turn a hundred
pieces long. A half answered request takes memory, so only the `AT_ONCE` oldest take turns, as many as Kafka
has request handlers; the others have not started, and those with long frames have not been decoded: that
takes twenty times the frame. What is being decoded or encoded counts among them. A request that waits for
something else, such as the controller, blocks none of the others. One whose client has gone ends where it
waits for its turn.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Final, NamedTuple

from kraft.net.peer import Peer

AT_ONCE: Final = 8

Turn = asyncio.Future[None]


class _Begun(NamedTuple):
    place: int
    client: Peer


_begun: ContextVar[_Begun | None] = ContextVar("begun", default=None)
"""What the current task serves, where that is long from the beginning."""


class LongWork:
    """The long requests of one node (context.py)."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._places = count()
        self._in_turn: deque[Turn] = deque()
        self._behind: list[tuple[int, int, Turn]] = []
        """A heap of places, numbers and turns: the oldest first."""
        self._numbers = count()
        self._is_called = False
        self._in_threads = 0

    @contextmanager
    def in_a_thread(self) -> Iterator[None]:
        """While a request is decoded, or an answer encoded, outside the loop."""
        self._in_threads += 1
        try:
            yield
        finally:
            self._in_threads -= 1
            self._call()

    def another_request(self) -> None:
        """What is started from here on is no part of what the current task serves: that may let others go on,
        of its connection or of any. They have places of their own, and do not end with its client."""
        if _begun.get() is not None:
            _begun.set(None)

    async def begin(self, client: Peer, *, waits: bool) -> None:
        """The current task serves a request that is long from the beginning: it has a place behind all that
        are there, which it keeps in whatever it does. `waits`: first for its turn."""
        begun = _Begun(next(self._places), client)
        _begun.set(begun)
        if waits:
            await self.request().pause()

    def request(self) -> LongRequest:
        """A request that turns out to be long. Its place is behind all that are there, unless it has one."""
        begun = _begun.get()
        return LongRequest(self, next(self._places)) if begun is None else LongRequest(self, *begun)

    def join(self, place: int) -> Turn:
        """Wait behind all who came earlier: a newcomer takes no turn while an older request is half done."""
        turn: Turn = self._loop.create_future()
        heapq.heappush(self._behind, (place, next(self._numbers), turn))
        self._call()
        return turn

    @property
    def _has_room(self) -> bool:
        return len(self._in_turn) + self._in_threads < AT_ONCE

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Who is let go on runs in the next turn, and has come back by the time that this is called again."""
        self._is_called = False
        while self._behind and self._has_room:
            self._in_turn.append(heapq.heappop(self._behind)[2])
        while self._in_turn:
            turn = self._in_turn.popleft()
            if not turn.done():  # else its client is gone
                turn.set_result(None)
                break
        if self._in_turn or (self._behind and self._has_room):
            self._call()


class LongRequest:
    """One of them; `LongWork.request` makes it."""

    def __init__(self, work: LongWork, place: int, client: Peer | None = None) -> None:
        self._work = work
        self._place = place
        self._client = client

    async def pause(self) -> None:
        """Between two pieces, each of a few milliseconds, and before the first one. Does not return when the
        client has gone: the task is cancelled."""
        if self._client is None:
            await self._work.join(self._place)
            return
        if self._client.gone:
            raise asyncio.CancelledError
        turn = self._work.join(self._place)
        self._client.parked[turn] = turn.cancel
        try:
            await turn
        finally:
            self._client.parked.pop(turn, None)
