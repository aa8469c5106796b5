"""Answers that are read slowly take so much memory together, and make room for those of readers that read."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import pytest
from aiohttp import web

from kraft.http import unread
from kraft.http.unread import PIECE_BYTES, UnreadAnswers
from kraft.local.free_ports import HOST
from tests.unit.http.serving import ASKED, run, serving

pytestmark = pytest.mark.row("U5")

ANSWER = b"x" * (100 * PIECE_BYTES)


def test_who_reads_slowly_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "MOST_BYTES", 4 * len(ANSWER))

    async def test() -> None:
        answers = UnreadAnswers()
        now = most = 0

        async def respond(request: web.BaseRequest) -> web.StreamResponse:
            nonlocal now, most
            now += 1
            most = max(most, now)
            arrived.release()
            try:
                return await answers.send(request, web.StreamResponse(), ANSWER)
            finally:
                now -= 1
                ended.release()

        arrived, ended = asyncio.Semaphore(0), asyncio.Semaphore(0)
        async with serving(respond) as port:
            with ExitStack() as until_then:
                for number in range(10):
                    deaf = until_then.enter_context(socket.socket())
                    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    deaf.connect((HOST, port))
                    deaf.sendall(ASKED)
                    await arrived.acquire()
                    if number >= 4:
                        await ended.acquire()
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(ASKED)
                await reader.readuntil(b"\r\n\r\n")
                assert await reader.readexactly(len(ANSWER)) == ANSWER
                writer.close()
                assert most == 5  # for a moment
                assert now <= 4

    run(test)


def test_an_answer_that_is_alone_may_be_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "MOST_BYTES", len(ANSWER) // 2)

    async def test() -> None:
        answers = UnreadAnswers()

        async def respond(request: web.BaseRequest) -> web.StreamResponse:
            return await answers.send(request, web.StreamResponse(), ANSWER)

        async with serving(respond) as port:
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(ASKED)
            head = await reader.readuntil(b"\r\n\r\n")
            assert f"Content-Length: {len(ANSWER)}".encode() in head
            assert await reader.readexactly(len(ANSWER)) == ANSWER
            writer.close()

    run(test)
