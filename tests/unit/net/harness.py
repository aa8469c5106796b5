"""A server on a free loopback port with handlers made for a test, and raw connections to it."""

from __future__ import annotations

import asyncio
import functools
import struct
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from kraft.api.context import NodeContext
from kraft.api.dispatch import Dispatcher
from kraft.api.request_context import Role
from kraft.api.row import ApiRow
from kraft.api.table import ROWS
from kraft.net.client import Address, PeerClient
from kraft.net.listener import ServerLimits
from kraft.net.peer import Peer
from kraft.net.server import Server
from tests.support.contexts import broker_context, controller_context, node_context

WITHIN_S = 60.0


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on uvloop, as the node does."""

    @functools.wraps(test)  # so that it can be parametrized
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(test(*args, **kwargs), WITHIN_S))

    return run


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until the condition holds; `on_a_loop` bounds the wait."""
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)


def row(key: int, handler: Any, **more: Any) -> dict[int, ApiRow]:
    """Kafka's APIs, and this handler for one of them."""
    return {**ROWS, key: ApiRow(key, (0, 20), (), node=handler, **more)}


class Running:
    """What `serving` gives: the node, its server, and what happened to its connections."""

    def __init__(self, node: NodeContext, server: Server, port: int) -> None:
        self.node = node
        self.server = server
        self.port = port
        self.closed: list[tuple[Peer, bool]] = []

    async def client(self) -> PeerClient:
        loop = asyncio.get_running_loop()
        return await PeerClient.connect(loop, Address("127.0.0.1", self.port), "test")

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


@asynccontextmanager
async def serving(
    rows: Mapping[int, ApiRow] = ROWS,
    limits: ServerLimits | None = None,
    role: Role = Role.BROKER,
    controller: Any = None,
) -> AsyncIterator[Running]:
    loop = asyncio.get_running_loop()
    limits = limits if limits is not None else ServerLimits()
    config = types.SimpleNamespace(
        auto_create_topics_enable=False,
        max_request_partition_size_limit=2000,
        socket_request_max_bytes=limits.connection.max_frame_bytes,
    )
    node = node_context(loop, cluster_id="a-cluster", config=config)
    dispatcher = Dispatcher(
        node,
        rows,
        {"PLAINTEXT": role},
        broker=broker_context(node),
        controller=None if controller is None else controller_context(node, quorum_controller=controller),
    )
    closed: list[tuple[Peer, bool]] = []
    server = Server(
        loop,
        dispatcher.serve,
        dispatcher.is_exclusive,
        dispatcher.is_in_turn,
        limits=limits,
        on_closed=lambda peer, broken: closed.append((peer, broken)),
        prepare=dispatcher.prepare,
        stopwatch=float,  # stands still: no turn ends early because the machine does something else
        cpu_time=float,
    )
    port = await server.listen("PLAINTEXT", "127.0.0.1", 0)
    running = Running(node, server, port)
    running.closed = closed
    try:
        yield running
    finally:
        await dispatcher.close()
        await server.close()


def request_frame(api_key: int, version: int, correlation_id: int = 7, body: bytes = b"") -> bytes:
    """A request with a header of version 1 and no client id."""
    frame = struct.pack(">hhih", api_key, version, correlation_id, -1) + body
    return struct.pack(">i", len(frame)) + frame


async def response(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)


async def closes(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends the connection without a further byte."""
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True
