"""The first request of an API's version loads its schemas, in another thread; what comes behind it waits."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from kraft.net.listener import OPEN
from kraft.net.turn_budget import SHARE_S, TurnBudget
from kraft.wire import schemas
from kraft.wire.api_keys import ApiKey
from kraft.wire.decoding import reader_of
from kraft.wire.encoding import writer_of
from kraft.wire.header import request_is_flexible, response_is_flexible
from tests.unit.net.echo_node import framed, node
from tests.unit.net.harness import on_a_loop, request_frame, response, serving, until

pytestmark = pytest.mark.row("P7")

CONNECTIONS = 60


@on_a_loop
async def test_requests_behind_one_that_is_prepared_wait_for_it():
    async with node(CLIENTS=OPEN) as served:
        began: list[bytes] = []
        unprepared = {b"first": served.loop.create_future()}

        def serve(peer, frame):
            began.append(bytes(frame))
            return (framed(bytes(frame)),)

        served.server.services.prepare = lambda frame: unprepared.get(bytes(frame))
        served.server.services.serve = serve
        reader, writer = await served.connect("CLIENTS")
        writer.write(framed(b"zero") + framed(b"first") + framed(b"after"))
        assert (await reader.readexactly(8))[4:] == b"zero"
        assert began == [b"zero"]
        unprepared.pop(b"first").set_result(None)
        assert (await reader.readexactly(18)) == framed(b"first") + framed(b"after")


@on_a_loop
async def test_first_requests_of_hundreds_of_connections_share_the_turns_of_the_loop():
    """All of them wait for the same schemas; each then takes a millisecond."""
    async with node(CLIENTS=OPEN) as served:
        loaded = served.loop.create_future()
        now_s, now, most, turning = 0.0, 0, 0, True

        def turn() -> None:
            nonlocal now
            now = 0
            if turning:
                served.loop.call_soon(turn)

        def serve(peer, frame):
            nonlocal now_s, now, most
            now_s, now = now_s + 0.001, now + 1
            most = max(most, now)
            return (framed(bytes(frame)),)

        services = served.server.services
        asked = []

        def prepare(frame):
            if loaded.done():
                return None
            asked.append(frame)
            return loaded

        services.prepare, services.serve = prepare, serve
        services.turn_budget = TurnBudget(served.loop, lambda: now_s, lambda: now_s)
        readers = []
        for _ in range(CONNECTIONS):
            reader, writer = await served.connect("CLIENTS")
            writer.write(framed(b"first") + framed(b"after"))
            readers.append(reader)
        await until(lambda: len(asked) == CONNECTIONS)
        turn()
        loaded.set_result(None)
        for reader in readers:
            assert (await reader.readexactly(18)) == framed(b"first") + framed(b"after")
        turning = False
        assert most <= 2 * SHARE_S / 0.001 + 2


@on_a_loop
async def test_a_request_that_cannot_be_prepared_ends_its_connection_alone():
    async with node(CLIENTS=OPEN) as served:
        broken = served.loop.create_future()
        reported: list[dict] = []
        served.loop.set_exception_handler(lambda loop, context: reported.append(context))
        served.server.services.prepare = lambda frame: broken if bytes(frame) == b"first" else None
        served.server.services.serve = lambda peer, frame: (framed(bytes(frame)),)
        reader, writer = await served.connect("CLIENTS")
        writer.write(framed(b"first"))
        other, other_writer = await served.connect("CLIENTS")
        broken.set_exception(OSError(24, "too many open files"))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        other_writer.write(framed(b"other"))
        assert (await other.readexactly(9)) == framed(b"other")
        assert len(reported) == 1


@pytest.mark.parametrize("version", [0, 2])
@on_a_loop
async def test_no_schema_is_loaded_on_the_loop(monkeypatch: pytest.MonkeyPatch, version: int):
    for cache in (
        reader_of,
        writer_of,
        schemas.plan_for,
        schemas.is_flexible,
        request_is_flexible,
        response_is_flexible,
    ):
        cache.cache_clear()
    loaded_by: list[threading.Thread] = []

    def load(original, *args):
        loaded_by.append(threading.current_thread())
        return original(*args)

    for name in ("load_request_schema", "load_response_schema"):
        monkeypatch.setattr(schemas, name, partial(load, getattr(schemas, name)))
    async with serving() as running:
        reader, writer = await running.raw()
        for _ in range(2):
            writer.write(request_frame(ApiKey.API_VERSIONS, version, body=b"\0" * 5))
            await response(reader)
        writer.close()
        await writer.wait_closed()
    assert loaded_by
    assert threading.main_thread() not in loaded_by
