"""Is a broker whose connection broke dead? A call at its door tells more than silence does.

    server: heartbeat connection broken -> LivenessProbe -> Controller.process_gone -> fenced at once

A host refuses a connection to a port where no process listens; so whoever is refused at a broker's
own listener, after its connection broke, knows that the process has ended. Anything else
(accepted, no answer) proves nothing, and the broker is given kraft.controller.link.grace.ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kraft.net.client import Address
from metadata_quorum.foundation.supervision import supervised

PAUSE_S: Final = 0.01
"""A process that is being killed closes its sockets one by one: it may accept the first call."""


class LivenessProbe:
    """Calls under way, one per broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        find: Callable[[int], Address | None],
        on_gone: Callable[[int], None],
        patience_s: float,
    ) -> None:
        self._loop = loop
        self._find = find
        self._on_gone = on_gone
        self._patience_s = patience_s
        self._probes: dict[int, asyncio.Task[None]] = {}

    def probe(self, broker_id: int) -> None:
        """Its connection broke."""
        address = self._find(broker_id)
        if address is not None and broker_id not in self._probes:
            task = supervised(self._loop, self._probe(broker_id, address), f"last-call-{broker_id}")
            self._probes[broker_id] = task
            task.add_done_callback(lambda _: self._probes.pop(broker_id, None))

    async def close(self) -> None:
        calls = list(self._probes.values())
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def _probe(self, broker_id: int, address: Address) -> None:
        if await is_gone(self._loop, address, self._patience_s):
            self._on_gone(broker_id)


async def is_gone(loop: asyncio.AbstractEventLoop, address: Address, patience_s: float) -> bool:
    """Call until refused (True), or until `patience_s` have passed."""
    try:
        async with asyncio.timeout(patience_s):
            while True:
                try:
                    transport, _ = await loop.create_connection(asyncio.Protocol, address.host, address.port)
                    transport.abort()
                except ConnectionRefusedError:
                    return True
                except ConnectionError:
                    pass  # reset on the way in
                await asyncio.sleep(PAUSE_S)
    except OSError:  # a TimeoutError is one
        return False
