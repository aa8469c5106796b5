"""The HTTP port takes few connections, and ends those that do not read."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop
from aiohttp import web

from kraft.http import listener
from kraft.http.listener import MAX_CONNECTIONS, HttpPort
from kraft.local.free_ports import HOST, free_ports

pytestmark = pytest.mark.row("U5")

Respond = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
ASKED = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def hello(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="hello")


@asynccontextmanager
async def serving(respond: Respond) -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    http = HttpPort(loop, lambda: web.Server(respond, loop=loop))
    (port,) = free_ports(1, random.SystemRandom())
    await http.listen(HOST, port)
    try:
        yield port
    finally:
        await http.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(), 60))


async def is_answered(reader: asyncio.StreamReader) -> bool:
    try:
        return (await reader.readline()).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


def test_more_connections_than_there_may_be_are_refused_until_one_ends() -> None:
    async def test() -> None:
        async with serving(hello) as port:
            streams = [await asyncio.open_connection(HOST, port) for _ in range(MAX_CONNECTIONS + 3)]
            refused = [reader for reader, _ in streams[MAX_CONNECTIONS:]]
            assert [await is_answered(reader) for reader in refused] == [False] * 3
            for reader, writer in streams[:MAX_CONNECTIONS]:
                writer.write(ASKED)
                assert await is_answered(reader)
            streams[0][1].close()
            answered = False
            while not answered:  # the node hears of the end in one of its next turns
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(ASKED)
                answered = await is_answered(reader)
                writer.close()
            for _, writer in streams:
                writer.close()

    run(test)


def test_who_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "SWEEP_S", 0.05)

    async def test() -> None:
        ended = asyncio.Event()

        async def endless(request: web.BaseRequest) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            try:
                while True:
                    await response.write(bytes(64 * 1024))
            finally:
                ended.set()

        async with serving(endless) as port:
            with socket.socket() as deaf:
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                deaf.connect((HOST, port))
                deaf.sendall(ASKED)
                await ended.wait()

    run(test)


def test_what_is_too_long_before_there_is_a_server_ends_the_connection_quietly() -> None:
    async def test() -> None:
        reported: list[dict[str, object]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        async with serving(hello) as port:
            for _ in range(5):
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(bytes(200_000))
                assert not await is_answered(reader)
                writer.close()
        assert not reported

    run(test)
