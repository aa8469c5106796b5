"""The HTTP port, open from the start, with nothing behind it until somebody knocks.

aiohttp costs 30 MB of memory and a third of a second of CPU to import, which a node that nobody looks at
should not pay. So the first connection has it imported, in the executor; what that connection sends
meanwhile waits, and is then handed over to aiohttp's own protocol.

    socket -> Door (holds the first bytes) -> aiohttp's protocol -> status.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from aiohttp import web

HOST: Final = "127.0.0.1"
MAX_HELD_BYTES: Final = 64 * 1024

MakeServer = Callable[[], "web.Server"]
"""Imports aiohttp and makes its server; runs in the executor."""


class HttpPort:
    """One node's HTTP port."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make_server: MakeServer) -> None:
        self._loop = loop
        self._make_server = make_server
        self._made: asyncio.Future[web.Server] | None = None
        self._socket: asyncio.Server | None = None

    async def listen(self, port: int) -> None:
        self._socket = await self._loop.create_server(lambda: _PendingConnection(self), HOST, port)

    def server(self) -> asyncio.Future[web.Server]:
        """aiohttp's server, made when it is first asked for."""
        if self._made is None:
            self._made = self._loop.run_in_executor(None, self._make_server)
        return self._made

    async def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._made is not None:
            await (await self._made).shutdown(timeout=0.1)


class _PendingConnection(asyncio.Protocol):
    """One connection, until it is handed over."""

    def __init__(self, port: HttpPort) -> None:
        self._port = port
        self._held = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._port.server().add_done_callback(self._hand_over)

    def data_received(self, data: bytes) -> None:
        self._held += data
        if len(self._held) > MAX_HELD_BYTES and self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def _hand_over(self, made: asyncio.Future[web.Server]) -> None:
        transport = self._transport
        if transport is None:
            return
        if made.cancelled() or made.exception() is not None:
            transport.abort()
            return
        protocol = made.result()()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._held:
            protocol.data_received(bytes(self._held))
