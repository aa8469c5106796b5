"""Whether the process of a broker whose connection broke has ended: a connection attempt shows it at once.

    server: heartbeat connection broken -> LivenessProbe -> QuorumController.process_gone -> fenced at once

A host refuses a connection to a port where no process listens; so a refusal at a broker's own listener, after
its connection broke, proves that the process has ended. Anything else (accepted, no response) proves nothing,
and the broker has kraft.controller.link.grace.ms to come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kraft.net.client import Address, connected
from metadata_quorum.foundation.supervision import supervised

PAUSE_S: Final = 0.01
"""A process that is being killed closes its sockets one by one: it may accept the first connection."""


class LivenessProbe:
    """Probes in progress, one per broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        find: Callable[[int], Address | None],
        on_gone: Callable[[int], None],
        timeout_s: float,
    ) -> None:
        self._loop = loop
        self._find = find
        self._on_gone = on_gone
        self._timeout_s = timeout_s
        self._probes: dict[int, asyncio.Task[None]] = {}

    def probe(self, broker_id: int) -> None:
        """Find out whether a broker lives whose connection broke."""
        address = self._find(broker_id)
        if address is not None and broker_id not in self._probes:
            task = supervised(self._loop, self._probe(broker_id, address), f"liveness-probe-{broker_id}")
            self._probes[broker_id] = task
            task.add_done_callback(lambda _: self._probes.pop(broker_id, None))

    async def close(self) -> None:
        probes = list(self._probes.values())
        for task in probes:
            task.cancel()
        await asyncio.gather(*probes, return_exceptions=True)

    async def _probe(self, broker_id: int, address: Address) -> None:
        if await process_has_ended(self._loop, address, self._timeout_s):
            self._on_gone(broker_id)


async def process_has_ended(loop: asyncio.AbstractEventLoop, address: Address, timeout_s: float) -> bool:
    """Connect until refused (True), or until `timeout_s` have passed (False)."""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    (await connected(loop, asyncio.Protocol, address)).abort()
                except ConnectionRefusedError:
                    return True
                except ConnectionError:
                    pass  # reset while connecting
                await asyncio.sleep(PAUSE_S)
    except OSError:  # a TimeoutError is one
        return False
