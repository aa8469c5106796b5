"""Producer ids for idempotent producers: a block at a time from the controller, one at a time from here.

    InitProducerId -> api/producer_ids -> ProducerIds.next_id -> (AllocateProducerIds -> controller)

A block that is not used up when the broker stops is lost, which nobody minds: there are 2^63.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

Allocate = Callable[[], Awaitable[tuple[int, int]]]
"""Asks the controller for a block: (first id, how many). Raises BrokerError."""


class ProducerIds:
    """This broker's ids."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def next_id(self) -> int:
        """An id that nobody else has. Raises BrokerError where the controller cannot be asked."""
        while self._next == self._end:
            async with self._refill:
                if self._next == self._end:
                    first, size = await self._allocate()
                    self._next, self._end = first, first + size
        self._next += 1
        return self._next - 1
