"""Producer ids for idempotent producers: a block at a time from the controller, one at a time from here.

    InitProducerId -> api/producer_ids -> ProducerIds.next_id -> (allocate_block -> controller)

A block that is not used up when the broker stops is lost, which is harmless: there are 2^63 ids. While no
block comes a producer gets a retriable error and may try another broker: this one may be cut off from the
controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kraft.broker.controller_requests import ControllerRequests
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.supervision import awaited

ALLOCATE_PRODUCER_IDS_VERSION: Final = 0

Allocate = Callable[[], Awaitable[tuple[int, int]]]
"""Asks the controller for a block: (first id, how many). Raises BrokerError."""
PATIENCE_S: Final = 1.0


async def allocate_block(controller: ControllerRequests) -> tuple[int, int]:
    """Ask the controller for a block: (first id, how many). Raises `BrokerError`."""
    answer = await controller.request(
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ALLOCATE_PRODUCER_IDS_VERSION,
        {},
        "no producer ids from the controller",
    )
    return answer.producer_id_start, answer.producer_id_len


class ProducerIds:
    """The ids that this broker gives to new producers."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._refill: asyncio.Task[None] | None = None

    async def next_id(self) -> int:
        """An id that no other producer has. Raises BrokerError where the controller does not answer."""
        while self._next == self._end:
            if self._refill is None:
                self._refill = awaited(asyncio.get_running_loop(), self._take_block(), "producer ids")
            done, _ = await asyncio.wait((self._refill,), timeout=PATIENCE_S)
            if not done:
                raise BrokerError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "waiting for a block of producer ids"
                )
            if self._next == self._end:
                done.pop().result()
        self._next += 1
        return self._next - 1

    async def _take_block(self) -> None:
        try:
            first, size = await self._allocate()
            self._next, self._end = first, first + size
        finally:
            self._refill = None
