"""How many bytes are received in one turn of the event loop.

    bytes -> ServerConnection -> take: once that is much, each further connection is read once, a short
                                 piece, and who may have more goes on in the next turn

libuv reads a connection up to 32 times, as long as it fills the buffer, before it looks at the next one, and
all that are ready in one turn: what sixty clients send in large frames was 190 MB at once. Finding the pages
for a megabyte, and copying it, takes up to a millisecond.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from operator import call
from typing import Final

from kraft.net.connection import SMALL_FRAME_BYTES
from kraft.net.room import Room, new_room
from metadata_quorum.foundation.next_turn import NextTurn
from metadata_quorum.foundation.turns import some_per_turn

PER_TURN_BYTES: Final = 4 * 1024 * 1024
"""Twice that may come in a turn before reads are short: learning of the next turn costs a callback, which is
asked for when this much has come, in however many turns."""
SHORT_BYTES: Final = 32 * 1024
"""A short read. Most requests fit into one: their connections wait for nothing."""
COUNTED_BYTES: Final = 4 * 1024
"""Smaller reads do not count: libuv does not repeat them, and most connections never have larger ones."""
CLEARED_BYTES: Final = 16 * 1024 * 1024
"""To clear that much takes some ten milliseconds where its pages are new, and else a tenth of it."""
READ_ON_AT_ONCE: Final = 1000
"""Connections, each of which costs a call into the kernel."""


class ReadTurns:
    """Of all connections of one server."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.are_short = False
        """Whether what is read in the rest of this turn is read in short pieces."""
        self._loop = loop
        self._left_bytes = PER_TURN_BYTES
        self._left_to_clear = CLEARED_BYTES
        """Of the buffers of large frames."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._next_turn = NextTurn(loop, self._go_on)
        self._is_counting = False
        """Whether `_go_on` comes in the next turn."""

    def take(self, read_bytes: int) -> bool:
        """So many have come, at least `COUNTED_BYTES`. Whether more are to be read in a later turn only."""
        if not self.are_short:
            self._left_bytes -= read_bytes
            if self._left_bytes <= 0:
                self.are_short = self._is_counting
                self._count()
        return self.are_short and read_bytes >= SHORT_BYTES

    def read_later(self, read_on: Callable[[], None]) -> None:
        """Called in the next turn, or soon after."""
        self._waiting.append(read_on)

    def buffer(self, size: int) -> bytearray | Room:
        """For a frame that has begun. To clear that of a large one takes as long as to receive it, and ten
        bytes begin it: once those of this turn are many, the pages of more come with their bytes."""
        if size > SMALL_FRAME_BYTES:
            if not self._is_counting:
                self._count()
            if size > self._left_to_clear:
                return new_room(size)
            self._left_to_clear -= size
        return bytearray(size)

    def _count(self) -> None:
        if not self._is_counting:
            self._is_counting = True
            self._left_bytes, self._left_to_clear = PER_TURN_BYTES, CLEARED_BYTES
            self._next_turn.ask()

    def _go_on(self) -> None:
        """The next turn has started."""
        self.are_short = self._is_counting = False
        self._left_bytes = PER_TURN_BYTES
        if self._waiting:
            waiting, self._waiting = self._waiting, deque()
            waiting.rotate(-1)  # the first one had most: it is looked at last now
            some_per_turn(self._loop, waiting, READ_ON_AT_ONCE, call)
