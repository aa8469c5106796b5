"""How many bytes are received in one turn of the event loop.

    bytes -> ServerConnection -> take: who has had its share waits
                                 (the next turn) -> they go on, with a share of what one turn receives

libuv reads a connection up to 32 times, as long as it fills the buffer, before it looks at the next one, and
all that are ready in one turn: what sixty clients send in large frames was 190 MB at once. Finding the pages
for a megabyte, and copying it, takes up to a millisecond.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from kraft.net.connection import SMALL_FRAME_BYTES
from kraft.net.room import Room, new_room
from metadata_quorum.foundation.next_turn import NextTurn

PER_TURN_BYTES: Final = 4 * 1024 * 1024
"""Twice that may come before shares are small: learning of the next turn costs a callback, which is asked for
when this much has come, in however many turns."""
LEAST_SHARE_BYTES: Final = 32 * 1024
"""However much has come. Most requests have room in it: their connections wait for nothing."""
COUNTED_BYTES: Final = 4 * 1024
"""Smaller reads do not count: libuv does not repeat them, and most connections never have larger ones."""
CLEARED_BYTES: Final = 16 * 1024 * 1024
"""To clear that much takes some ten milliseconds where its pages are new, and else a tenth of it."""
READ_ON_AT_ONCE: Final = PER_TURN_BYTES // LEAST_SHARE_BYTES
"""Connections: the least shares that one turn receives. Where more wait, they take turns."""


class Taken:
    """What one connection has taken in a turn."""

    __slots__ = ("read_bytes", "turn")

    def __init__(self) -> None:
        self.turn = self.read_bytes = 0


class ReadTurns:
    """Of all connections of one server."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.share_bytes = PER_TURN_BYTES
        """Who has taken so much in this turn waits for the next. One read takes no more."""
        self._turn = 0
        """Its number, among those that were counted."""
        self._left_bytes = PER_TURN_BYTES
        self._left_to_clear = CLEARED_BYTES
        """Of the buffers of large frames."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._next_turn = NextTurn(loop, self._go_on)

    def take(self, read_bytes: int, taken: Taken) -> bool:
        """A connection has read so much, at least `COUNTED_BYTES`. Whether it is to wait now."""
        self._left_bytes -= read_bytes
        if self._left_bytes <= 0:
            if self._next_turn.is_asked:
                self.share_bytes = LEAST_SHARE_BYTES
            self._count()
        if taken.turn != self._turn:
            taken.turn, taken.read_bytes = self._turn, 0
        taken.read_bytes += read_bytes
        return taken.read_bytes >= self.share_bytes

    def wait(self, read_on: Callable[[], None]) -> None:
        """It is called in the next turn, or a later one where very many wait."""
        self._count()
        self._waiting.append(read_on)

    def buffer(self, size: int) -> bytearray | Room:
        """For a frame that has begun. To clear that of a large one takes as long as to receive it, and ten
        bytes begin it: once those of this turn are many, the pages of more come with their bytes."""
        if size > SMALL_FRAME_BYTES:
            self._count()
            if size > self._left_to_clear:
                return new_room(size)
            self._left_to_clear -= size
        return bytearray(size)

    def _count(self) -> None:
        if not self._next_turn.is_asked:
            self._left_bytes, self._left_to_clear = PER_TURN_BYTES, CLEARED_BYTES
            self._next_turn.ask()

    def _go_on(self) -> None:
        """The next turn has started."""
        self._turn += 1
        self._left_bytes = self.share_bytes = PER_TURN_BYTES
        if self._waiting:
            self._count()
            self.share_bytes = max(PER_TURN_BYTES // len(self._waiting), LEAST_SHARE_BYTES)
            self._left_bytes = 2 * PER_TURN_BYTES  # who reads twice takes nearly two shares
            for _ in range(min(len(self._waiting), READ_ON_AT_ONCE)):
                self._waiting.popleft()()
