"""The HTTP port takes few connections, and ends those that do not read."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

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
async def serving(respond: Respond, failures: int = 0) -> AsyncIterator[int]:
    """`failures`: how often it cannot be made."""
    loop = asyncio.get_running_loop()
    tries = iter(range(failures))

    def make() -> web.Server:
        if next(tries, None) is not None:
            raise OSError(errno.EMFILE, "Too many open files")
        return web.Server(respond, loop=loop)

    http = HttpPort(loop, make)
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


def test_connections_that_ask_for_nothing_make_room() -> None:
    async def test() -> None:
        async with serving(hello) as port:
            streams = [await asyncio.open_connection(HOST, port) for _ in range(MAX_CONNECTIONS)]
            for reader, writer in streams:
                writer.write(ASKED)
                assert await is_answered(reader)
            last_used, (idlest, _) = streams[0], streams[1]
            last_used[1].write(ASKED)
            while b"hello" not in await last_used[0].readline():  # of the first answer, then of this one
                pass
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(ASKED)
            assert await is_answered(reader)
            with suppress(ConnectionResetError):
                await idlest.read()  # to its end
            for _, each in (*streams, (reader, writer)):
                each.close()

    run(test)


def test_more_connections_than_there_may_be_are_refused_while_all_are_answered() -> None:
    async def test() -> None:
        arrived, may_go_on = asyncio.Semaphore(0), asyncio.Event()

        async def slow(request: web.BaseRequest) -> web.StreamResponse:
            arrived.release()
            await may_go_on.wait()
            return await hello(request)

        async with serving(slow) as port:
            streams = [await asyncio.open_connection(HOST, port) for _ in range(MAX_CONNECTIONS)]
            for _, writer in streams:
                writer.write(ASKED)
            for _ in streams:
                await arrived.acquire()
            refused, one_more = await asyncio.open_connection(HOST, port)
            assert not await is_answered(refused)
            may_go_on.set()
            for reader, _ in streams:
                assert await is_answered(reader)
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(ASKED)
            assert await is_answered(reader)
            for _, each in (*streams, (reader, writer), (refused, one_more)):
                each.close()

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


@pytest.mark.parametrize("failures", [1, 2])
def test_a_server_that_could_not_be_made_is_made_for_the_next_connection(failures: int) -> None:
    """Nor does it keep the port, and what ends after it, from ending."""

    async def test() -> None:
        reported: list[dict[str, object]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        async with serving(hello, failures) as port:
            for attempt in (1, 2):
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(ASKED)
                assert await is_answered(reader) == (attempt > failures)
                writer.close()
        assert [each["message"] for each in reported] == ["making the HTTP server has failed"] * failures

    run(test)
