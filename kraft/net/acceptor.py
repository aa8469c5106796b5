"""Listeners with TLS: connections are counted when they are accepted, not after their handshake.

    listening socket -> accept -> `arrived` -> handshake -> the protocol that `make` returned

asyncio's own servers report a TLS connection only after its handshake; until then, a client that sends
nothing could hold any number of them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from kraft.monitoring.rate_limited_log import rate_limited
from kraft.net.renewable_tls import RenewableTls
from metadata_quorum.foundation.supervision import supervised

log = rate_limited(logging.getLogger(__name__))

TLS_HANDSHAKE_S: Final = 10.0

BACKLOG: Final = 1024
"""Connections that the system has established and we have not accepted."""
ACCEPTED_AT_ONCE: Final = 64
"""Connections that are accepted in one turn of the loop."""

BEGUN_AT_ONCE: Final = 4
"""Handshakes that are begun in one turn of the loop: a signature takes up to some milliseconds."""

ACCEPT_AGAIN_S: Final = 1.0
"""The pause after accept has failed."""


class TlsAcceptor:
    """Accepts for one listener."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tls: RenewableTls,
        make: Callable[[], asyncio.BufferedProtocol],
        arrived: Callable[[str, int], float | None],
        left: Callable[[str], None],
    ) -> None:
        """`arrived(host, handle)`: None, or in how many seconds to close a refused connection. `left(host)`
        is called for each connection that ends before it has a protocol."""
        self._loop = loop
        self._tls = tls
        self._make = make
        self._arrived = arrived
        self._left = left
        self._sockets: list[socket.socket] = []
        self._in_turn: deque[asyncio.Future[None]] = deque()
        """Handshakes whose first message is there."""
        self.begun = 0
        self.handshakes: dict[asyncio.Task[None], None] = {}

    async def listen(self, host: str | None, port: int) -> int:
        """Returns the port (which the system chooses for port 0). Raises OSError."""
        self._sockets = await listening_sockets(self._loop, host, port)
        for each in self._sockets:
            self._loop.add_reader(each, self._accept, each)
        return cast(int, self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening, and cancel handshakes in progress."""
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        self._sockets.clear()
        for handshake in self.handshakes:
            handshake.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, (host, *_) = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file handles, no memory: as asyncio does
                log.error("cannot accept connections: %s", error)
                self._loop.remove_reader(listening)
                self._loop.call_later(ACCEPT_AGAIN_S, self._accept_again, listening)
                return
            accepted.setblocking(False)
            if (pause_s := self._arrived(host, accepted.fileno())) is not None:
                self._loop.call_later(pause_s, self._refuse, accepted, host)
                continue
            handshake = supervised(self._loop, self._shake_hands(accepted, host), "a TLS handshake")
            self.handshakes[handshake] = None
            handshake.add_done_callback(self.handshakes.pop)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _refuse(self, accepted: socket.socket, host: str) -> None:
        accepted.close()
        self._left(host)

    async def _greeted(self, accepted: socket.socket) -> None:
        """Wait for the client's first message, which the signature answers that a handshake takes its time
        for, and then for its turn. Raises `TimeoutError`."""
        turn: asyncio.Future[None] = self._loop.create_future()
        handle = accepted.fileno()
        try:
            async with asyncio.timeout(TLS_HANDSHAKE_S):
                self._loop.add_reader(handle, self._line_up, handle, turn)
                await turn
        except BaseException:
            self._loop.remove_reader(handle)
            accepted.close()
            raise

    def _line_up(self, handle: int, turn: asyncio.Future[None]) -> None:
        self._loop.remove_reader(handle)
        if not self._in_turn:
            self._loop.call_soon(self._next)
        self._in_turn.append(turn)

    def _next(self) -> None:
        """Begin a few handshakes in each turn of the loop, even if a thousand connections come together."""
        if len(self._in_turn) > BEGUN_AT_ONCE:
            self._loop.call_soon(self._next)
        for _ in range(min(BEGUN_AT_ONCE, len(self._in_turn))):
            turn = self._in_turn.popleft()
            if not turn.done():
                self.begun += 1
                turn.set_result(None)

    async def _shake_hands(self, accepted: socket.socket, host: str) -> None:
        try:
            await self._greeted(accepted)
            await self._loop.connect_accepted_socket(
                self._make, accepted, ssl=self._tls.context, ssl_handshake_timeout=TLS_HANDSHAKE_S
            )
        except OSError as error:  # ssl's errors are such, and timeouts
            why = str(error) or "the client ended it; it may not trust our certificate"
            log.info("a TLS handshake with %s failed: %s", host, why)
            self._left(host)
        except BaseException:  # it is cancelled, or a bug
            self._left(host)
            raise


async def listening_sockets(
    loop: asyncio.AbstractEventLoop, host: str | None, port: int
) -> list[socket.socket]:
    """One for each address of the host; None: all addresses of this machine. As with asyncio's servers, one
    of a family that the machine does not have (no IPv6) is left out. Raises `OSError`."""
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    lacking: OSError | None = None
    try:
        for family, kind, protocol, _, address in dict.fromkeys(addresses):
            try:
                made = socket.socket(family, kind, protocol)
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:
                    raise
                lacking = error
                continue
            sockets.append(made)
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(address)
            made.listen(BACKLOG)
    except OSError:
        for each in sockets:
            each.close()
        raise
    if not sockets and lacking is not None:
        raise lacking
    return sockets
