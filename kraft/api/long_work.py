"""Long requests share the event loop: in each of its turns one of them does one piece of its work.

    request -> slices.py -> LongRequest.pause() --> the loop's other callbacks, a piece of another one --> on
    frame of a client -> dispatch.py -> LongWork.begin() --> decoded in a thread --> handler -> slices.py

With `asyncio.sleep(0)` instead, a hundred clients with large requests would make every turn a hundred
pieces long. A half-answered request takes memory, so only the `AT_ONCE` oldest take turns, as many as Kafka
has request handler threads. The others have not started, and those with long frames are not even decoded,
which takes twenty times the frame. Requests that are being decoded or encoded count among the `AT_ONCE`. A
request that waits for something else, such as the controller, blocks none of the others. A request whose
client has gone ends at its next pause.

What asks for one heavy thing, such as a broker's configuration, waits behind no long request: it only shares
the turn's `FIRST_SLICES` with others of its kind (`first`).
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeVar

from kraft.net.peer import Peer
from metadata_quorum.foundation.next_turn import NextTurn

AT_ONCE: Final = 8

FIRST_SLICES: Final = 1.0
"""Of what requests do before they wait for their turns, so many slices have room in one turn of the loop."""

Turn = asyncio.Future[None]
TaskT = TypeVar("TaskT")


@dataclass(slots=True)
class _Begun:
    place: int | None = None
    """None: it has not turned out to be long."""
    client: Peer | None = None
    """Of one that is known to be long from the beginning: it ends with its client."""


_begun: ContextVar[_Begun | None] = ContextVar("begun", default=None)
"""The request that the current task serves."""


class LongWork:
    """The long requests of one node (context.py)."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._places = count()
        self._in_turn: deque[Turn] = deque()
        self._behind: list[tuple[int, int, Turn]] = []
        """Those that wait to be among `_in_turn`: a heap of places, numbers and turns, the oldest first."""
        self._numbers = count()
        self._next_turn = NextTurn(loop, self._go_on)
        self._in_threads = 0
        self._first_pieces: deque[tuple[float, Turn]] = deque()
        """Those that wait for a turn of the loop with room for them, and what they take of it."""
        self._first_left = FIRST_SLICES
        self._next_firsts = NextTurn(loop, self._begin_firsts)

    @contextmanager
    def in_a_thread(self) -> Iterator[None]:
        """While a request is decoded, or an answer encoded, outside the loop."""
        self._in_threads += 1
        try:
            yield
        finally:
            self._in_threads -= 1
            self._next_turn.ask()

    def another_request(self) -> None:
        """What is started from here on does not belong to the request that the current task serves: a task
        may let other requests continue, of its connection or of others. They get places of their own, and do
        not end with its client."""
        if _begun.get() is not None:
            _begun.set(None)

    def serving(self, start: Callable[[], TaskT]) -> TaskT:
        """`start` the task that serves a request, or another one for the request that the current task
        serves: whatever they do, they keep the place that they take first. With another one for each list of
        theirs, all that have come would be half answered at once."""
        if _begun.get() is not None:
            return start()
        _begun.set(_Begun())
        try:
            return start()
        finally:
            _begun.set(None)

    async def begin(self, client: Peer, *, waits: bool) -> None:
        """The current task serves a request that is known to be long: it takes a place behind all others, and
        keeps it whatever it does. `waits`: wait for its turn first."""
        begun = _Begun(next(self._places), client)
        _begun.set(begun)
        if waits:
            await self.request().pause()

    def request(self) -> LongRequest:
        """A request that turns out to be long. It takes a place behind all others, unless it has one
        already."""
        begun = _begun.get()
        if begun is None:
            return LongRequest(self, next(self._places))
        if begun.place is None:
            begun.place = next(self._places)
        return LongRequest(self, begun.place, begun.client)

    async def first(self, slices: float) -> None:
        """Wait for a turn of the loop that has room for a first piece of so many slices: sixty-four requests
        may begin together. In the order of their coming, and mostly at once."""
        takes = min(slices, FIRST_SLICES)
        if self._first_pieces or takes > self._first_left:
            turn: Turn = self._loop.create_future()
            self._first_pieces.append((takes, turn))
            await turn
            return
        self._first_left -= takes
        self._next_firsts.ask()

    def _begin_firsts(self) -> None:
        """The next turn has begun."""
        self._first_left = FIRST_SLICES
        while self._first_pieces and self._first_pieces[0][0] <= self._first_left:
            takes, turn = self._first_pieces.popleft()
            if not turn.done():
                self._first_left -= takes
                turn.set_result(None)
        if self._first_left < FIRST_SLICES:
            self._next_firsts.ask()

    def join(self, place: int) -> Turn:
        """Wait behind all earlier requests: a newcomer takes no turn while an older one is half done."""
        turn: Turn = self._loop.create_future()
        heapq.heappush(self._behind, (place, next(self._numbers), turn))
        self._next_turn.ask()
        return turn

    @property
    def _has_room(self) -> bool:
        return len(self._in_turn) + self._in_threads < AT_ONCE

    def _go_on(self) -> None:
        """Let the next request do a piece. It does so in the next turn of the loop, and if it waits for
        another turn, it has joined again by the time that this is called again."""
        while self._behind and self._has_room:
            self._in_turn.append(heapq.heappop(self._behind)[2])
        while self._in_turn:
            turn = self._in_turn.popleft()
            if not turn.done():  # else its client is gone
                turn.set_result(None)
                break
        if self._in_turn or (self._behind and self._has_room):
            self._next_turn.ask()


class LongRequest:
    """One long request; made by `LongWork.request`."""

    def __init__(self, work: LongWork, place: int, client: Peer | None = None) -> None:
        self._work = work
        self._place = place
        self._client = client

    async def pause(self) -> None:
        """Wait for the next turn: before the first piece, and between pieces of a few milliseconds each. Does
        not return if the client has gone: the task is cancelled."""
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
