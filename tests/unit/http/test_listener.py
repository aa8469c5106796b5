"""The HTTP port takes few connections, and ends those that do not read."""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections import Counter
from contextlib import suppress

import pytest
from aiohttp import web

from kraft.http import listener
from kraft.http.listener import MAX_CONNECTIONS, MAX_HELD_BYTES, PIECE_BYTES, PIECES_PER_TURN
from kraft.local.free_ports import HOST
from tests.unit.http.serving import ASKED, hello, run, serving

pytestmark = pytest.mark.row("U5")


class TurnsOfLoop:
    """Which turn of the loop it is."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.number = 0
        self._next()

    def _next(self) -> None:
        self.number += 1
        self._loop.call_soon(self._next)


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
                writer.write(bytes(2 * MAX_HELD_BYTES))
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


def test_requests_that_come_together_begin_in_turns_of_their_own() -> None:
    async def test() -> None:
        turns = TurnsOfLoop(asyncio.get_running_loop())
        begun: Counter[int] = Counter()

        async def noted(request: web.BaseRequest) -> web.StreamResponse:
            begun[turns.number] += 1
            return await hello(request)

        async with serving(noted) as port:
            streams = [await asyncio.open_connection(HOST, port) for _ in range(50)]
            for _, writer in streams:
                writer.write(ASKED)
            for reader, writer in streams:
                assert await is_answered(reader)
                writer.close()
        assert set(begun.values()) == {1}

    run(test)


def test_all_connections_together_have_so_much_read_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = web.RequestHandler.data_received

    async def test() -> None:
        turns = TurnsOfLoop(asyncio.get_running_loop())
        parsed: Counter[int] = Counter()

        def noted(handler: web.RequestHandler, data: bytes) -> None:
            parsed[turns.number] += len(data)
            parse(handler, data)

        monkeypatch.setattr(web.RequestHandler, "data_received", noted)
        async with serving(hello) as port:
            streams = [await asyncio.open_connection(HOST, port) for _ in range(20)]
            for _, writer in streams:
                writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
                writer.write(b"1\r\na\r\n" * 30_000)
            for reader, writer in streams:
                assert await is_answered(reader)
                writer.close()
        assert max(parsed.values()) <= PIECES_PER_TURN * PIECE_BYTES

    run(test)


def test_a_body_is_not_unpacked() -> None:
    packed = zlib.compress(bytes(1_000_000))

    async def test() -> None:
        received = asyncio.get_running_loop().create_future()

        async def read(request: web.BaseRequest) -> web.StreamResponse:
            received.set_result(await request.read())
            return await hello(request)

        async with serving(read) as port:
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: deflate\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n" % len(packed) + packed)
            assert await is_answered(reader)
            assert await received == packed
            writer.close()

    run(test)


def test_a_long_body_that_nobody_wants_is_answered() -> None:
    async def test() -> None:
        async with serving(hello) as port:
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n")
            writer.write(bytes(3_000_000))
            assert await is_answered(reader)
            writer.close()

    run(test)


def test_a_request_ends_with_its_connection() -> None:
    """Who asks again and again, and goes, leaves nothing in the line before others."""

    async def test() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def endless(request: web.BaseRequest) -> web.StreamResponse:
            begun.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.set()
            return await hello(request)

        async with serving(endless) as port:
            _, writer = await asyncio.open_connection(HOST, port)
            writer.write(ASKED)
            await begun.wait()
            writer.close()
            await ended.wait()

    run(test)
