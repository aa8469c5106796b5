"""What takes megabytes is told to one reader after the other."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.http import server
from kraft.http.server import HttpServer
from tests.support.contexts import node_context
from tests.unit.net.harness import on_a_loop

pytestmark = pytest.mark.row("U5")

READERS = 20


@on_a_loop
async def test_a_status_is_told_to_one_reader_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks has not logged in."""
    now = most = 0

    async def status(_: object) -> dict[str, Any]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return {"node_id": 1}

    monkeypatch.setattr(server, "status", status)
    node = node_context(asyncio.get_running_loop(), config=SimpleNamespace(advertised_endpoints=()))
    sources: Any = SimpleNamespace(node=node, broker=None, controller=None)
    http = HttpServer(sources)
    request: Any = SimpleNamespace(headers={"Host": "localhost"}, method="GET", path="/status")
    asked = [asyncio.ensure_future(http.respond(request)) for _ in range(READERS)]
    await asyncio.sleep(0)
    asked[3].cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [getattr(each, "status", None) for each in answers].count(200) == READERS - 1
    assert most == 1
