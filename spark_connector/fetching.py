"""A fetch that has been sent, and whose response a caller may wait for, on a loop that runs only
meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from kraft.wire.fast_fetch import FetchedPartition
from spark_connector.errors import Retry


class Fetching:
    """A fetch that has been sent."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        answer: Coroutine[Any, Any, FetchedPartition],
        timeout_s: float,
    ) -> None:
        self._loop = loop
        self._answer = loop.create_task(answer)
        self._timeout_s = timeout_s

    def answer(self) -> FetchedPartition:
        """Wait for it. The timeout starts only now, because Spark may have paused the reader. Raises
        `Retry`."""
        try:
            return self._loop.run_until_complete(asyncio.wait_for(self._answer, self._timeout_s))
        except TimeoutError:
            raise Retry(f"no answer within {self._timeout_s:g} s") from None

    def give_up(self) -> None:
        """The response is not needed any more."""
        self._answer.cancel()
        if not self._loop.is_closed() and not self._loop.is_running():  # a generator may end anywhere
            self._loop.run_until_complete(asyncio.wait([self._answer]))
