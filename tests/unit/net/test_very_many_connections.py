"""Of very many connections that end together some are closed in one turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from kraft.net import connections
from kraft.net.listener import ServerLimits
from kraft.wire.api_keys import ApiKey
from tests.unit.net.harness import Running, on_a_loop, row, serving, until

pytestmark = pytest.mark.row("P7")

CONNECTIONS, PER_TURN = 35, 10


async def nothing(running: Running) -> None:
    """They are idle for too long."""


async def stop(running: Running) -> None:
    await running.server.connections.close()


@pytest.mark.parametrize(
    ("max_idle_s", "end"), [(0.2, nothing), (60.0, stop)], ids=["idle", "the node stops"]
)
@on_a_loop
async def test_some_are_closed_in_one_turn(
    monkeypatch: pytest.MonkeyPatch, max_idle_s: float, end: Callable[[Running], Awaitable[None]]
) -> None:
    monkeypatch.setattr(connections, "PER_TURN", PER_TURN)
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    async with serving(row(ApiKey.HEARTBEAT, None), ServerLimits(max_idle_s=max_idle_s)) as running:

        def count() -> None:
            seen.append(len(running.closed))
            loop.call_soon(count)

        clients = [await running.raw() for _ in range(CONNECTIONS)]
        await until(lambda: running.server.connections.opened.total() == CONNECTIONS)
        count()
        await end(running)
        await until(lambda: len(running.closed) == CONNECTIONS)
        assert max(after - before for before, after in pairwise(seen)) <= PER_TURN
        for _, writer in clients:
            writer.close()
