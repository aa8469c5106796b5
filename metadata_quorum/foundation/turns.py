"""Work that is shared among turns of the loop, so that no turn is long.

    Turns          many that go on piece by piece, side by side: in each turn one of them does a piece, or
                   as many as have room in it
    some_per_turn  very many small things, some in each turn
    TurnShare      the same of many who have such things to do, so many for all of them together

With `asyncio.sleep(0)` between the pieces, a hundred that go on would make every turn a hundred pieces long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import NamedTuple, TypeVar

from metadata_quorum.foundation.next_turn import NextTurn

ItemT = TypeVar("ItemT")


def some_per_turn(
    loop: asyncio.AbstractEventLoop, left: deque[ItemT], most: int, work: Callable[[ItemT], object]
) -> None:
    """Do it with each of them in order, the first `most` at once; an exception keeps it from no other one."""
    try:
        for _ in range(min(len(left), most)):
            work(left.popleft())
    finally:
        if left:
            loop.call_soon(some_per_turn, loop, left, most, work)


class Turns:
    """What they take turns by. Who weighs little does not wait for many that weigh much, nor these for ever:
    in every other turn the lightest go first, by powers of two, and else those that have waited longest.
    Those that weigh as much go on in the order in which they ask."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = 1) -> None:
        """`most`: of what the pieces of one turn weigh together, but for the last one of them."""
        self._loop = loop
        self._most = self._left = most
        self._waiting: dict[int, deque[_Piece]] = {}
        """By the power of two of their weight."""
        self._numbers = count()
        self._is_lightest_first = False
        self._next_turn = NextTurn(loop, self._go_on)

    def has_room(self, weight: int) -> bool:
        """Whether a piece may be done in this turn, since nobody waits for that. Then it counts."""
        if self._waiting or weight > self._left:
            return False
        self._left -= weight
        self._next_turn.ask()
        return True

    async def next(self, weight: int = 1) -> None:
        """To be awaited before every piece that is not done in this turn."""
        piece = _Piece(next(self._numbers), weight, self._loop.create_future())
        self._waiting.setdefault(weight.bit_length(), deque()).append(piece)
        self._next_turn.ask()
        await piece.turn

    def _go_on(self) -> None:
        self._left = self._most
        self._is_lightest_first = not self._is_lightest_first
        while self._waiting and self._left > 0:
            self._give(min(self._waiting, key=None if self._is_lightest_first else self._first_number))
        if self._left < self._most:
            self._next_turn.ask()

    def _first_number(self, power: int) -> int:
        return self._waiting[power][0].number

    def _give(self, power: int) -> None:
        """A turn to the first one of these."""
        piece = self._waiting[power].popleft()
        if not self._waiting[power]:
            del self._waiting[power]
        if not piece.turn.done():  # else it was called off
            self._left -= piece.weight
            piece.turn.set_result(None)


class _Piece(NamedTuple):
    """Of work that waits for its turn."""

    number: int
    weight: int
    turn: asyncio.Future[None]


class TurnShare:
    """So many in each turn, whoever does them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._loop = loop
        self._most = self._left = most
        self._waiting: dict[Callable[[], None], None] = {}
        """In the order in which they go on."""
        self._next_turn = NextTurn(loop, self._go_on)

    def take(self, go_on: Callable[[], None]) -> bool:
        """Whether one more may be done in this turn; otherwise `go_on` is called in a later one."""
        self._next_turn.ask()
        if self._left:
            self._left -= 1
            return True
        self._waiting[go_on] = None
        return False

    async def wait(self) -> None:
        """To be awaited before each: in this turn, or in a later one."""
        granted: asyncio.Future[None] = self._loop.create_future()
        self._grant(granted)
        await granted

    def _grant(self, granted: asyncio.Future[None]) -> None:
        if not granted.done() and self.take(partial(self._grant, granted)):  # else it was called off
            granted.set_result(None)

    def _go_on(self) -> None:
        self._left = self._most
        if self._waiting:
            self._next_turn.ask()
        for _ in range(len(self._waiting)):
            if not self._left:
                break
            go_on = next(iter(self._waiting))
            del self._waiting[go_on]
            go_on()
