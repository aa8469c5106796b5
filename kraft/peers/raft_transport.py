"""Carries Raft frames to the other voters: one connection per ordered pair of nodes.

Frames to voter j are sent on a connection that this node opened to j's controller listener; frames
from j arrive on a connection that j opened. So a one-way network partition affects one direction only,
and the order of frames is the order of one connection. A frame for a voter that is not connected
is lost: Raft sends again what matters.

    Raft -> RaftTransport.send -> connection to j -> j's server -> api/raft.py -> RaftDriver.receive

A connection that ends although we did not close it is `broken`: the process behind it has most
likely failed, and Raft looks for a new leader early. A connection to a silent peer is closed after
`ACK_TIMEOUT_MS` of unacknowledged bytes and opened again, so that a link that heals does not wait
for TCP's doubled retransmission timers.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from kraft.net.client import Address, PeerClient
from kraft.net.connection_security import PLAINTEXT, ConnectionSecurity, dial
from kraft.net.reconnect_backoff import ReconnectBackoff
from kraft.wire import header
from kraft.wire.api_keys import ApiKey
from kraft.wire.raft_frame import RAFT_API_VERSION, RaftFrame, encode
from metadata_quorum.foundation.supervision import ended, restarted

CONNECT_TIMEOUT_S: Final = 1.0
ACK_TIMEOUT_MS: Final = 3_000
CLIENT_ID: Final = "raft"
WRITE_BUFFER_MAX_BYTES: Final = 64 * 1024 * 1024

log = logging.getLogger(__name__)


class RaftEvents(Protocol):
    """Is notified when a connection is made or lost (the `RaftDriver`)."""

    def connected(self, peer: int) -> None: ...

    def disconnected(self, peer: int, *, broken: bool) -> None: ...

    def refused(self, peer: int) -> None: ...

    def sent(self, size: int) -> None:
        """A frame of that many bytes was handed to a connection."""


class RaftTransport:
    """A `RaftLink` over TCP. `start` dials every voter and keeps dialling."""

    def __init__(
        self,
        *,
        cluster_id: str,
        node_id: int,
        addresses: Mapping[int, tuple[str, int]],
        random: random.Random,
        security: ConnectionSecurity = PLAINTEXT,
    ) -> None:
        self._links = {
            peer: _PeerConnection(
                peer, Address(*address), random, self._frame_encoder(cluster_id, node_id, peer), security
            )
            for peer, address in addresses.items()
            if peer != node_id
        }

    @staticmethod
    def _frame_encoder(cluster_id: str, source: int, target: int) -> Callable[[bytes], bytes]:
        request = header.request_header(ApiKey.RAFT_FRAME, RAFT_API_VERSION, 0, None)

        def encoded(frame: bytes) -> bytes:
            body = encode(RaftFrame(cluster_id, source, target, frame))
            return (len(request) + len(body)).to_bytes(4, "big") + request + body

        return encoded

    def start(self, loop: asyncio.AbstractEventLoop, events: RaftEvents) -> None:
        for link in self._links.values():
            link.start(loop, events)

    def send(self, peer: int, frame: bytes) -> bool:
        return self._links[peer].send(frame)

    async def close(self) -> None:
        for link in self._links.values():
            await link.close()


class _PeerConnection:
    """One voter: dialled for ever, at most one connection at a time."""

    def __init__(
        self,
        peer: int,
        address: Address,
        random: random.Random,
        encoded: Callable[[bytes], bytes],
        security: ConnectionSecurity,
    ) -> None:
        self.peer = peer
        self._address = address
        self._random = random
        self._encoded = encoded
        self._security = security
        self._transport: asyncio.Transport | None = None
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        self._events: RaftEvents | None = None

    def start(self, loop: asyncio.AbstractEventLoop, events: RaftEvents) -> None:
        self._events = events
        self._task = restarted(loop, partial(self._keep_connected, loop), f"raft-link-{self.peer}")

    async def _keep_connected(self, loop: asyncio.AbstractEventLoop) -> None:
        redial = ReconnectBackoff(self._random)
        while True:
            lost = asyncio.Event()
            began = loop.time()
            try:
                client = await dial(
                    loop,
                    self._address,
                    CLIENT_ID,
                    self._security,
                    timeout_s=CONNECT_TIMEOUT_S,
                    on_lost=lambda _, lost=lost: lost.set(),  # type: ignore[misc]
                )
            except OSError as error:
                if isinstance(error, ConnectionRefusedError) and self._events is not None:
                    self._events.refused(self.peer)
                held_s = 0.0
            else:
                try:
                    if client.connected:
                        self._connected(client)
                        await lost.wait()
                        self._disconnected(client)
                finally:
                    client.close()
                held_s = loop.time() - began
            await asyncio.sleep(redial.pause_s(held_s))

    def send(self, frame: bytes) -> bool:
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if transport.get_write_buffer_size() > WRITE_BUFFER_MAX_BYTES:
            transport.abort()
            return False
        transport.write(self._encoded(frame))
        if self._events is not None:
            self._events.sent(len(frame))
        return True

    def _connected(self, client: PeerClient) -> None:
        self._transport = transport = client.transport
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, ACK_TIMEOUT_MS)
        log.debug("raft link to %d is up", self.peer)
        assert self._events is not None
        self._events.connected(self.peer)

    def _disconnected(self, client: PeerClient) -> None:
        self._transport = None
        assert self._events is not None
        if not self._closing:
            silent = isinstance(client.lost_by, TimeoutError)
            log.debug("raft link to %d is down: %r", self.peer, client.lost_by)
            self._events.disconnected(self.peer, broken=not silent)

    async def close(self) -> None:
        self._closing = True
        await ended(self._task)
        if self._transport is not None:
            self._transport.abort()
