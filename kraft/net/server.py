"""Listeners: the only place where a node's sockets are opened.

    socket -> counted -> TLS, where the listener has it -> ServerConnection -> `serve(peer, frame)`

What all connections share is made here. server_connection.py is one connection; connections.py decides which
of them may stay.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import cast

from kraft.monitoring.request_metrics import RequestMetrics
from kraft.net.acceptor import BACKLOG, TlsAcceptor
from kraft.net.connection import SCRATCH_BYTES
from kraft.net.connection_services import ConnectionServices, OnClosed, OnOvertaken
from kraft.net.connections import Admit, Connections
from kraft.net.listener import OPEN, ListenerSecurity, ServerLimits
from kraft.net.peer import Prepare, Serve, nothing_to_prepare
from kraft.net.read_turns import ReadTurns
from kraft.net.reply_turns import ReplyTurns
from kraft.net.server_connection import ServerConnection
from kraft.net.server_memory import ServerMemory
from kraft.net.turn_budget import TurnBudget


class Server:
    """All listeners of a node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        serve: Serve,
        is_exclusive: Callable[[int], bool],
        is_in_turn: Callable[[int], bool] = lambda api_key: False,
        *,
        limits: ServerLimits | None = None,
        memory: ServerMemory | None = None,
        on_closed: OnClosed | None = None,
        on_overtaken: OnOvertaken = lambda peer: None,
        admit: Admit = lambda host: 0.0,
        prepare: Prepare = nothing_to_prepare,
        stopwatch: Callable[[], float] = time.perf_counter,
        cpu_time: Callable[[], float] = time.thread_time,
        requests: RequestMetrics | None = None,
    ) -> None:
        limits = limits if limits is not None else ServerLimits()
        self._loop = loop
        self.memory = memory if memory is not None else limits.memory()
        self.connections = Connections(loop, limits, admit, self.memory.unread)
        self.services = ConnectionServices(
            loop=loop,
            serve=serve,
            prepare=prepare,
            is_exclusive=is_exclusive,
            is_in_turn=is_in_turn,
            connections=self.connections,
            memory=self.memory,
            unread=self.memory.unread,
            turn_budget=TurnBudget(loop, stopwatch, cpu_time),
            read_turns=ReadTurns(loop),
            reply_turns=ReplyTurns(loop),
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
            on_closed=on_closed,
            on_overtaken=on_overtaken,
            requests=requests if requests is not None else RequestMetrics(),
        )
        self._servers: list[asyncio.Server] = []
        self._acceptors: list[TlsAcceptor] = []

    async def listen(
        self, listener: str, host: str | None, port: int, security: ListenerSecurity = OPEN
    ) -> int:
        """Serve a listener; returns its port (chosen by the system if `port` is 0)."""
        self.memory.add_listener(listener)
        self.connections.start_sweeping()
        if security.tls is not None:
            acceptor = TlsAcceptor(
                self._loop,
                security.tls,
                lambda: ServerConnection(self.services, listener, security),
                partial(self.connections.arrived, security),
                self.connections.counts[security.listener_kind].left,
            )
            self._acceptors.append(acceptor)
            return await acceptor.listen(host, port)
        server = await self._loop.create_server(
            lambda: ServerConnection(self.services, listener, security), host, port, backlog=BACKLOG
        )
        self._servers.append(server)
        return cast(int, server.sockets[0].getsockname()[1])

    @property
    def begun_handshakes(self) -> int:
        """Of TLS, since it listens."""
        return sum(each.begun for each in self._acceptors)

    async def close(self) -> None:
        """Stop listening and end every connection."""
        for server in self._servers:
            server.close()
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()
        await self.connections.close()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
