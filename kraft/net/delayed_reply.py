"""A reply that comes later, without a task and without a future.

    handler ------------------------------> DelayedReply -> its connection keeps the reply's place
    what it waited for -> handler -> settle -> DelayedReply -> the connection, at once

Each callback of a future takes its own way through the event loop. Produces with acks=all and parked fetches
wait like this instead, many thousands a second, and one advance of a high watermark answers all that waited
for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kraft.net.connection import Buffers


class DelayedReply:
    """One reply. It is settled once, and calls one party."""

    __slots__ = ("_buffers", "_error", "_on_done")

    def __init__(self) -> None:
        self._buffers: Buffers | None = None
        self._error: Exception | None = None
        self._on_done: Callable[[DelayedReply], None] | None = None

    @property
    def done(self) -> bool:
        return self._buffers is not None or self._error is not None

    def settle(self, make: Callable[[], Buffers]) -> None:
        """The reply is what `make` returns, or the error that it raises, so that nobody waits forever."""
        if self.done:
            return
        try:
            self._buffers = make()
        except Exception as error:  # noqa: BLE001
            self._error = error
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(self)

    def result(self) -> Buffers:
        """The reply, once it is done. Raises its error."""
        if self._error is not None:
            raise self._error
        assert self._buffers is not None
        return self._buffers

    def when_done(self, on_done: Callable[[DelayedReply], None]) -> None:
        """Call `on_done` as soon as it is done; only for a reply that is not."""
        self._on_done = on_done

    async def wait(self, loop: asyncio.AbstractEventLoop) -> Buffers:
        """For a handler that is a coroutine already."""
        if not self.done:
            done: asyncio.Future[None] = loop.create_future()
            self.when_done(lambda _: None if done.done() else done.set_result(None))
            await done
        return self.result()
