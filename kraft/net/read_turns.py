"""How many bytes are received in one turn of the event loop.

    bytes -> ServerConnection -> may_go_on: yes, or nothing more is read from it, and it waits in line
    (the next turn) -> the first in line are read again, each up to its share

libuv reads a connection up to 32 times before it looks at the next one, and all that are ready in one turn:
what sixty clients send in large frames was 190 MB at once. Finding the pages for a megabyte, and copying it,
takes up to a millisecond.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kraft.net.connection import SCARCE_BYTES, SMALL_FRAME_BYTES
from kraft.net.room import Room, new_room
from metadata_quorum.foundation.next_turn import NextTurn

PER_TURN_BYTES: Final = 4 * 1024 * 1024
"""Twice that may come before the first one waits: learning of the next turn costs a callback, which is asked
for when this much has come, in however many turns."""
AT_ONCE: Final = 4
"""Connections in line that are read in one turn. The more there are, the more frames are unfinished at a
time: those of a megabyte take a third more CPU time with sixteen."""
CLEARED_BYTES: Final = 16 * 1024 * 1024
"""To clear that much takes some ten milliseconds where its pages are new, and else a tenth of it."""
LEAST_BYTES: Final = SCARCE_BYTES
"""What a read takes out of turn, and then its connection waits. Smaller reads do not count: libuv does not
repeat them, and most connections never have larger ones."""


class ReadTurns:
    """Of all connections of one server."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.are_tight = False
        """Whether only those may read that it is the turn of."""
        self._left_bytes = PER_TURN_BYTES
        """Until they are tight."""
        self._left_to_clear = CLEARED_BYTES
        """Of the buffers of large frames."""
        self._shares: dict[Callable[[], None], int] = {}
        """What is left to those who went on in this turn."""
        self._shares_before: dict[Callable[[], None], int] = {}
        """To those of the turn before: asyncio reads them in this one, and uvloop where they have TLS."""
        self._waiting: dict[Callable[[], None], None] = {}
        """In the order in which they go on."""
        self._next_turn = NextTurn(loop, self._go_on)
        self._is_counting = False
        """Whether `_go_on` comes in the next turn."""

    def most_bytes(self, go_on: Callable[[], None]) -> int:
        """What it may take with one read while they are tight."""
        return max(self._shares_of(go_on).get(go_on, 0), LEAST_BYTES)

    def may_go_on(self, read_bytes: int, go_on: Callable[[], None]) -> bool:
        """Whether more may be read in this turn from who has just read `read_bytes`, at least `LEAST_BYTES`;
        otherwise `go_on` is called in a later one."""
        if self.are_tight:
            shares = self._shares_of(go_on)
            left_bytes = shares.pop(go_on, 0) - read_bytes
            if left_bytes > 0:
                shares[go_on] = left_bytes
                return True
        else:
            self._left_bytes -= read_bytes
            if self._left_bytes > 0:
                return True
            if not self._is_counting:
                self._count()
                return True
            self.are_tight = True
        self._waiting[go_on] = None
        return False

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

    def forget(self, go_on: Callable[[], None]) -> None:
        """Who waited has gone."""
        self._waiting.pop(go_on, None)

    def _shares_of(self, go_on: Callable[[], None]) -> dict[Callable[[], None], int]:
        return self._shares if go_on in self._shares else self._shares_before

    def _count(self) -> None:
        self._left_bytes, self._left_to_clear = PER_TURN_BYTES, CLEARED_BYTES
        self._is_counting = True
        self._next_turn.ask()

    def _go_on(self) -> None:
        """The next turn has started."""
        self._is_counting = False
        self._left_bytes = PER_TURN_BYTES
        self._shares, self._shares_before = {}, self._shares
        self.are_tight = bool(self._waiting)
        if not self.are_tight:
            self._shares_before = {}  # they refer to connections
            return
        self._count()
        at_once = min(len(self._waiting), AT_ONCE)
        for _ in range(at_once):
            go_on = next(iter(self._waiting))
            del self._waiting[go_on]
            self._shares[go_on] = PER_TURN_BYTES // at_once
            go_on()
