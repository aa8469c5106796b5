"""How a coordinator loads the partitions of its topic that it leads: in turns, and anew where that fails.

After a failover dozens load at once. Each replays its log a piece at a time. In each turn of the loop one of
them does, or several that have little to replay: most logs are small, and a turn may take milliseconds.

A load that failed, an append of which nobody knows how much is in the log, a record that the machine did not
take: the log is the truth, and a new machine that has read it is as good as a new coordinator. Of what fails
always, the attempts become rare.

    runtime.Shard -> replay.py -> Loads.turn, before each piece
                  -> Loads.failed -> (a while) -> become_leader of the service
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from metadata_quorum.foundation.next_turn import NextTurn

FIRST_S: Final = 1.0
LAST_S: Final = 60.0
"""Before the next attempt: the first one in a leader epoch, and at most; each pause is twice the last one."""


class Loads:
    """Of all partitions of one topic."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, load: Callable[[int, int], None], turn_bytes: int
    ) -> None:
        """`load`: the partition, in that leader epoch. `turn_bytes`: what is replayed per turn."""
        self._loop = loop
        self._load = load
        self.turn_bytes = turn_bytes
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._pauses: dict[int, tuple[int, float]] = {}
        """By partition: the leader epoch, and the last pause in it."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        """With the sizes of their pieces."""
        self._next_turn = NextTurn(loop, self._go_on)
        self.unpacking = asyncio.Lock()
        """Whose compressed batch is open: a few kilobytes may be a hundred megabytes."""

    async def turn(self, size: int) -> None:
        """Wait for one's turn to replay a piece of that many bytes."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((size, turn))
        self._next_turn.ask()
        await turn

    def _go_on(self) -> None:
        left, is_first = self.turn_bytes, True
        while self._waiting and (is_first or self._waiting[0][0] <= left):
            size, turn = self._waiting.popleft()
            if not turn.done():  # else its partition is led elsewhere now
                turn.set_result(None)
                left, is_first = left - size, False
        if self._waiting:
            self._next_turn.ask()

    def failed(self, partition: int, leader_epoch: int) -> None:
        """It is not served any more."""
        epoch, last_s = self._pauses.get(partition, (leader_epoch, 0.0))
        pause_s = min(2 * last_s, LAST_S) if epoch == leader_epoch and last_s else FIRST_S
        self._pauses[partition] = leader_epoch, pause_s
        self._stop(partition)
        self._timers[partition] = self._loop.call_later(pause_s, self._load, partition, leader_epoch)

    def resigned(self, partition: int) -> None:
        """It is led elsewhere."""
        self._stop(partition)
        self._pauses.pop(partition, None)

    def _stop(self, partition: int) -> None:
        timer = self._timers.pop(partition, None)
        if timer is not None:
            timer.cancel()
