"""What may wait for a device has threads of its own: whatever clients have computed, flushes go on."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.contexts import node_context

WITHIN_S = 30.0


@pytest.mark.row("P7")
def test_it_waits_for_nothing_that_is_computed() -> None:
    """A hundred views of a large cluster, asked for at once, held a flush up for five seconds."""
    release = threading.Event()

    async def test(blocking: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        computed = loop.run_in_executor(None, release.wait, WITHIN_S)
        node = node_context(loop, blocking_threads=blocking)
        assert await asyncio.wait_for(node.blocking(lambda _: 4), WITHIN_S / 2) == 4
        assert not computed.done()
        release.set()
        await computed

    with ThreadPoolExecutor(1) as blocking:
        try:
            asyncio.run(test(blocking))
        finally:
            release.set()
