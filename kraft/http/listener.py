"""The HTTP port, open from the start; the server behind it is made for the first connection.

aiohttp costs 30 MB of memory and a third of a second of CPU to import, which a node without HTTP clients
should not pay. So the first connection has it imported, in the executor; what that connection sends
meanwhile waits, and is then handed over to aiohttp's own protocol.

    socket -> _PendingConnection (holds the first bytes) -> aiohttp's protocol -> server.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from aiohttp import web

MAX_PENDING_BYTES: Final = 64 * 1024

MakeServer = Callable[[], "web.Server"]
"""Imports aiohttp and makes its server; runs in the executor."""


class HttpPort:
    """One node's HTTP port."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make_server: MakeServer) -> None:
        self._loop = loop
        self._make_server = make_server
        self._server: asyncio.Future[web.Server] | None = None
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> None:
        """Raises OSError."""
        self._listener = await self._loop.create_server(lambda: _PendingConnection(self), host, port)

    def server(self) -> asyncio.Future[web.Server]:
        """aiohttp's server, made at the first call."""
        if self._server is None:
            self._server = self._loop.run_in_executor(None, self._make_server)
        return self._server

    async def close(self) -> None:
        """End the port and its connections."""
        if self._listener is not None:
            self._listener.close()
        if self._server is not None:
            await (await self._server).shutdown(timeout=0.1)


class _PendingConnection(asyncio.Protocol):
    """One connection, until it is handed over."""

    def __init__(self, port: HttpPort) -> None:
        self._port = port
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._port.server().add_done_callback(self._hand_over)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > MAX_PENDING_BYTES and self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def _hand_over(self, server: asyncio.Future[web.Server]) -> None:
        transport = self._transport
        if transport is None:
            return
        if server.cancelled() or server.exception() is not None:
            transport.abort()
            return
        protocol = server.result()()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._received:
            protocol.data_received(bytes(self._received))
