"""The HTTP port, open from the start; the server behind it is made for the first connection.

aiohttp costs 30 MB of memory and a third of a second of CPU to import, which a node without HTTP clients
should not pay. So the first connection has it imported, in the executor; what that connection sends
meanwhile waits.

    socket -> _Connection (holds what was received) -> some pieces per turn of the loop -> aiohttp's protocol
           -> one request per turn of the loop -> server.py

All connections together have only so much of each turn of the loop, whatever they send and ask for. No body
is ever unpacked: a few bytes of one may become gigabytes.

Connections are few, since each takes a file handle that the node's logs may need. Where there are as many as
there may be, the one that asked for nothing for longest makes room for the next, or one that does not read as
fast as it is answered: whoever only holds connections keeps nobody out. One that reads nothing is ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, cast

from metadata_quorum.foundation.supervision import report_fault
from metadata_quorum.foundation.turns import Turns, TurnShare

if TYPE_CHECKING:
    import logging

    from aiohttp import web

MAX_HELD_BYTES: Final = 256 * 1024
"""Of one connection, until it is its turn. More ends it: no browser and no script has so much to say."""
PIECE_BYTES: Final = 16 * 1024
PIECES_PER_TURN: Final = 4
"""Of all connections. aiohttp takes a quarter of a millisecond for most of them, and two where each byte is a
chunk of its own."""
BUFFERED_BYTES: Final = 4096
"""Of a body that nobody has read yet, before aiohttp reads no more of it."""
LINGERING_S: Final = 1.0
"""For how long a body that nobody wants is read, so that its sender gets to read why."""
MAX_CONNECTIONS: Final = 128
SWEEP_S: Final = 10.0
"""Who has read nothing of an answer for so long is deaf."""

MakeServer = Callable[[], "web.Server"]
"""Imports aiohttp and makes its server; runs in the executor."""
Respond = Callable[["web.BaseRequest"], Awaitable["web.StreamResponse"]]


def server_of(respond: Respond, loop: asyncio.AbstractEventLoop, log: logging.Logger) -> web.Server:
    """aiohttp's server, within limits; imports aiohttp."""
    from aiohttp import web

    # What is asked for every few seconds is no event of a node: no line of its log each.
    return web.Server(
        respond,
        access_log=None,
        logger=log,
        loop=loop,
        handler_cancellation=True,  # see finish.py
        auto_decompress=False,
        read_bufsize=BUFFERED_BYTES,
        lingering_time=LINGERING_S,
    )


class HttpPort:
    """One node's HTTP port."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make_server: MakeServer) -> None:
        self._loop = loop
        self._make_server = make_server
        self._server: asyncio.Future[web.Server] | None = None
        self._listener: asyncio.Server | None = None
        self._pending = 0
        self._idle: dict[web.RequestHandler, None] = {}
        """Connections without a request in service, the idlest first."""
        self._unread: dict[web.RequestHandler, int] = {}
        """Bytes of answers that were unread when we looked last."""
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._requests = Turns(loop)
        self.pieces = TurnShare(loop, PIECES_PER_TURN)
        """What is handed over to aiohttp."""

    async def listen(self, host: str, port: int) -> None:
        """Raises OSError."""
        self._listener = await self._loop.create_server(lambda: _Connection(self), host, port)

    def server(self) -> asyncio.Future[web.Server]:
        """aiohttp's server, made at the first call; where that fails (for want of memory or file handles), at
        the next one."""
        if self._server is None:
            self._server = self._loop.run_in_executor(None, self._make_watched_server)
            self._server.add_done_callback(self._made)
            if self._sweep_timer is None:
                self._sweep_timer = self._loop.call_later(SWEEP_S, self._sweep)
        return self._server

    def _made(self, server: asyncio.Future[web.Server]) -> None:
        if server.cancelled() or (error := server.exception()) is None:
            return
        self._server = None
        report_fault(self._loop, "making the HTTP server", error)

    def _make_watched_server(self) -> web.Server:
        server = self._make_server()
        respond = server.request_handler

        async def watched(request: web.BaseRequest) -> web.StreamResponse:
            await self._requests.next()  # who waits for its turn may still have to make room
            self._idle.pop(request.protocol, None)
            try:
                return await respond(request)
            finally:
                self._idle[request.protocol] = None

        server.request_handler = watched
        return server

    def arrived(self) -> bool:
        """Count a connection; False where there are too many, and none can make room."""
        self._pending += 1
        return self._pending + len(self._handlers()) <= MAX_CONNECTIONS or self._make_room()

    def _make_room(self) -> bool:
        """Abort a connection. Each is aborted only once: it still counts for a moment afterwards."""
        for handler in (*self._idle, *self._unread):
            self._idle.pop(handler, None)
            self._unread.pop(handler, None)
            if handler.transport is not None:
                handler.transport.abort()
                return True
        return False

    def handed_over(self, handler: web.RequestHandler) -> None:
        """The connection has been handed to aiohttp."""
        self._pending -= 1
        self._idle[handler] = None

    def left(self) -> None:
        """The connection is gone."""
        self._pending -= 1

    def _handlers(self) -> list[web.RequestHandler]:
        made = self._server
        is_there = made is not None and made.done() and not made.cancelled() and made.exception() is None
        return made.result().connections if made is not None and is_there else []

    def _sweep(self) -> None:
        self._sweep_timer = self._loop.call_later(SWEEP_S, self._sweep)
        for handler in [each for each in self._idle if each.transport is None]:
            del self._idle[handler]
        before, self._unread = self._unread, {}
        for handler in self._handlers():
            transport = handler.transport
            if transport is None or (unread := transport.get_write_buffer_size()) == 0:
                continue
            if before.get(handler) == unread:
                transport.abort()
            else:
                self._unread[handler] = unread

    async def close(self) -> None:
        """End the port and its connections."""
        if self._listener is not None:
            self._listener.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._server is not None:
            await asyncio.wait((self._server,))
        if self._server is not None and not self._server.cancelled():
            await self._server.result().shutdown(timeout=0.1)


class _Connection(asyncio.Protocol):
    """One connection, in front of aiohttp's protocol."""

    def __init__(self, port: HttpPort) -> None:
        self._port = port
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._handler: web.RequestHandler | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._port.arrived():
            self._port.server().add_done_callback(self._hand_over)
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._go_on()
        if len(self._received) > MAX_HELD_BYTES and self._transport is not None:
            self._transport.abort()

    def _go_on(self) -> None:
        """Hand over as much as this turn has room for; the rest in later ones."""
        handler = self._handler
        while handler is not None and self._received and self._port.pieces.take(self._go_on):
            piece = bytes(self._received[:PIECE_BYTES])
            del self._received[:PIECE_BYTES]
            handler.data_received(piece)

    def pause_writing(self) -> None:
        if self._handler is not None:
            self._handler.pause_writing()

    def resume_writing(self) -> None:
        if self._handler is not None:
            self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._received.clear()
        handler, self._handler = self._handler, None
        if handler is None:
            self._port.left()
        else:
            handler.connection_lost(exc)

    def _hand_over(self, server: asyncio.Future[web.Server]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if server.cancelled() or server.exception() is not None:
            transport.abort()
            return
        self._handler = handler = server.result()()
        handler.connection_made(transport)
        self._port.handed_over(handler)
        self._go_on()
