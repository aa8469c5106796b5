"""Sessions that have ended are taken down: each of their partitions leaves its replica.

A session that ends is forgotten at once: its id is unknown, it counts for nothing, its parked fetch is
answered. To leave a replica takes a microsecond or two per partition, and the sessions of hundreds of
consumers end together when a service is stopped; so one turn of the loop takes down only some of them, and
a part of one with very many partitions. Until then its partitions note what is new, for nobody.

sessions.py (dropped, evicted), delayed_fetch.py (a session for one fetch) -> here -> FetchSession.take_down
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from fetch.sessions import FetchSession
from metadata_quorum.foundation.next_turn import NextTurn

LEFT_PER_TURN: Final = 3000
"""Partitions that leave their replicas in one turn of the loop."""
FEW: Final = 10
"""A session with as few partitions is taken down at once: most are for one fetch, and every fetch counts."""


class SessionEnds:
    """The sessions of one broker that are being taken down."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ended: deque[FetchSession] = deque()
        self._left = LEFT_PER_TURN
        """Partitions that may still leave in this turn."""
        self._next_turn = NextTurn(loop, self._go_on)

    def __len__(self) -> int:
        return len(self._ended)

    def end(self, session: FetchSession) -> None:
        """No fetch will use it any more."""
        if len(session.partitions) <= FEW:
            session.take_down_at_once()
            return
        session.close()
        self._ended.append(session)
        self._next_turn.ask()
        self._take_down()

    def _go_on(self) -> None:
        self._left = LEFT_PER_TURN
        if self._ended:
            self._next_turn.ask()
            self._take_down()

    def _take_down(self) -> None:
        while self._ended and self._left > 0:
            session = self._ended[0]
            self._left -= session.take_down(self._left)
            if not session.partitions:
                self._ended.popleft()
