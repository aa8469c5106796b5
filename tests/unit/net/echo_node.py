"""A server without APIs that answers with the request, and raw connections to it."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kraft.local.free_ports import HOST
from kraft.net.listener import ListenerSecurity, ServerLimits
from kraft.net.peer import Peer, Reply
from kraft.net.server import Server

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Node:
    """A server that answers with the request; "login" logs in, "wait" is answered when the test says so."""

    def __init__(self, limits: ServerLimits) -> None:
        self.loop = asyncio.get_running_loop()
        self.server = Server(
            self.loop,
            self.serve,
            lambda frame: False,
            limits=limits,
            stopwatch=float,  # stands still: no turn ends early because the machine does something else
            cpu_time=float,
        )
        self.ports: dict[str, int] = {}
        self.waiting: list[asyncio.Future[tuple[bytes, ...]]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.charge = 0

    async def listen(self, name: str, security: ListenerSecurity) -> None:
        self.ports[name] = await self.server.listen(name, HOST, 0, security)

    def serve(self, peer: Peer, frame: memoryview) -> Reply:
        if frame == b"login":
            peer.authenticated = True
        peer.started().charge(self.charge)
        if frame == b"wait":
            self.waiting.append(self.loop.create_future())
            return self.waiting[-1]
        return (framed(bytes(frame[:10])),)

    async def connect(self, name: str, tls: ssl.SSLContext | None = None) -> Streams:
        streams = await asyncio.open_connection(HOST, self.ports[name], ssl=tls)
        self.writers.append(streams[1])
        return streams


@asynccontextmanager
async def node(limits: ServerLimits | None = None, **listeners: ListenerSecurity) -> AsyncIterator[Node]:
    made = Node(limits if limits is not None else ServerLimits())
    for name, security in listeners.items():
        await made.listen(name, security)
    try:
        yield made
    finally:
        for writer in made.writers:
            writer.transport.abort()
        await made.server.close()


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame
