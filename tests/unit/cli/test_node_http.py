"""A node's answers over HTTP have a length; what is longer is not kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kraft.cli import node_http
from kraft.cli.errors import CliError
from kraft.cli.node_http import NodeHttp
from tests.unit.net.harness import on_a_loop

pytestmark = pytest.mark.row("U5")


@asynccontextmanager
async def endless(header: bytes) -> AsyncIterator[NodeHttp]:
    """A node whose answers have no end."""
    gone = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + header + b"\r\n")
        try:
            while True:
                writer.write(b'{"a": "' * 1000)
                await writer.drain()
        except ConnectionError:
            gone.set()
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield NodeHttp([server.sockets[0].getsockname()], None)
        await gone.wait()


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_http, "MOST_BYTES", 100_000)


@on_a_loop
async def test_an_answer_without_an_end_is_none() -> None:
    async with endless(b"Content-Type: application/json\r\n") as node:
        with pytest.raises(CliError, match="no node answers over HTTP"):
            await node.snapshot()


@on_a_loop
async def test_an_event_without_an_end_is_none() -> None:
    async with endless(b"Content-Type: text/event-stream\r\n") as node:
        news = node.live()
        kind, _ = await anext(news)
        assert kind == "trouble"
        await news.aclose()
