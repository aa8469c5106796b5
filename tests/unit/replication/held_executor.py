"""An executor for a broker of a `Cluster` whose work is late, as late as the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from chaos.sim.disk import Killed
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.errors import BrokerError
from tests.support.may_block import MAY_BLOCK


class HeldExecutor:
    """Runs nothing by itself."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[MayBlock], Any], asyncio.Future[Any]]] = []
        self.held = True

    def __call__(self, work: Callable[[MayBlock], Any], /) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((work, future))
        if not self.held:
            self.run()
        return future

    def release(self) -> None:
        """From now on work is done at once."""
        self.held = False
        while self.waiting:
            self.run()

    async def run_next(self) -> bool:
        for _ in range(10):
            await asyncio.sleep(0)
        if not self.waiting:
            return False
        self.run()
        for _ in range(10):
            await asyncio.sleep(0)
        return True

    def run(self) -> None:
        work, future = self.waiting.pop(0)
        try:
            result = work(MAY_BLOCK)
        except (OSError, BrokerError) as error:
            if not future.done():
                future.set_exception(error)
        except Killed:  # its process is gone, and with it whoever waited
            future.cancel()
        else:
            if not future.done():
                future.set_result(result)
