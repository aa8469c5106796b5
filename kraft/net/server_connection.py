"""Listeners and their connections: the only place where a node's sockets are served.

    socket -> counted -> TLS, where the listener has it -> ServerConnection
    socket -> ServerConnection (BufferedProtocol) -> FrameReader, Pipeline -> `serve(peer, frame)`
    socket <- transport.writelines <----------------- replies in order  <----- buffers or a future

Each listener has a budget for what its clients make us hold, so that nobody on one is held up by what
happens on another; who must log in and has not shares one with strangers only. Bytes are received straight
into the buffer where the frame will stay, and replies are handed to the transport as they are, gathered. A
handler that has nothing to wait for costs no task and no future.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from kraft.monitoring.rate_limited_log import rate_limited
from kraft.net.acceptor import BACKLOG, TlsAcceptor
from kraft.net.connection import (
    SCRATCH_BYTES,
    SMALL_FRAME_BYTES,
    Account,
    Buffers,
    ConnectionLimits,
    FrameProgress,
    FrameReader,
    Pipeline,
    ProtocolError,
    Slot,
)
from kraft.net.connection_quotas import ConnectionQuotas, ListenerKind, MaxConnections
from kraft.net.server_memory import ServerMemory
from kraft.net.turn_budget import TurnBudget
from metadata_quorum.foundation.supervision import report_fault

log = rate_limited(logging.getLogger(__name__))

HIGH_WATER_BYTES: Final = 4 * 1024 * 1024
"""Replies that the other end has not read yet; from here on nothing more is started for it."""

SLOW_FRAME_S: Final = 30.0
"""A frame that has begun is looked at this often: in between it must come at the least rate."""
SWEEP_S: Final = 10.0
"""And this often while other frames wait for room."""
CONTENDED_BYTES_PER_S: Final = 1024 * 1024
"""The least rate of a large frame while others wait for room."""


def _no_mute(pause_s: float) -> None:
    """For a peer without a connection."""


class StartedRequest:
    """A request that has been started, for who finds out what it takes."""

    __slots__ = ("_connection", "_slot")

    def __init__(self, connection: ServerConnection | None = None, slot: Slot | None = None) -> None:
        """Without them: of a peer without a connection."""
        self._connection = connection
        self._slot = slot

    def charge(self, size: int) -> None:
        """It takes so many bytes more than its frame, until its reply."""
        if self._connection is not None and self._slot is not None:
            self._connection.charge(self._slot, size)

    def pause_others(self) -> None:
        """Nothing that comes behind it on its connection is started before `resume_others`."""
        if self._connection is not None:
            self._connection.hold(True)

    def resume_others(self) -> None:
        if self._connection is not None:
            self._connection.hold(False)


@dataclass(slots=True, eq=False)
class Peer:
    """Who is at the other end of a connection, and what the handlers remember about it."""

    listener: str
    client_host: str
    client_port: int
    principal: str = "User:ANONYMOUS"
    authenticated: bool = True
    """False until it has logged in, where its listener asks for that."""
    state: dict[str, Any] = field(default_factory=dict)
    """Free for handlers, for as long as the connection lives (e.g. which broker heartbeats here)."""
    parked: dict[asyncio.Future[Any], Callable[[], object]] = field(default_factory=dict)
    """What to call off when the connection is gone: replies that nobody waits for any longer."""
    mute: Callable[[float], None] = _no_mute
    """Start nothing more that it asks for so many seconds. What has been started goes on."""
    started: Callable[[], StartedRequest] = StartedRequest
    """The request that is just being started."""


Certificate = Mapping[str, Any]
"""As Python's ssl module tells it."""


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """What a listener asks of its connections."""

    tls: ssl.SSLContext | None = None
    principal_of: Callable[[Certificate], str] | None = None
    """Of the other end's certificate; `ValueError` where that is nobody's. None: it does not count."""
    asks_login: bool = False
    """Nobody is let in before `Peer.authenticated` is set."""
    listener_kind: ListenerKind = ListenerKind.SHARED


OPEN: Final = ListenerSecurity()

Reply = Buffers | asyncio.Future[Buffers]
Serve = Callable[[Peer, memoryview], Reply]
"""Takes one frame; returns the reply's buffers (none for no reply), or a future of them. Raises
`ProtocolError` where the connection cannot go on."""

OnClosed = Callable[[Peer, bool], None]
"""Told when a connection is gone; True where the other end closed or lost it, False where we did."""


Admit = Callable[[str], float]
"""Told the host of every new connection; for how many seconds to keep it waiting before it is closed, 0 to
let it in."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What a node bears."""

    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    max_connections: MaxConnections = field(default_factory=MaxConnections)
    max_controller_connections: MaxConnections = field(default_factory=MaxConnections)
    """At controllers' listeners; the one above is for all others together."""
    max_idle_s: float = 600.0
    """connections.max.idle.ms"""
    max_queued_bytes: int = 512 * 1024 * 1024
    """queued.max.request.bytes: requests without reply, over all connections of a listener."""
    max_queued_bytes_before_login: int = 32 * 1024 * 1024
    """The same, over all connections of all listeners that have not logged in."""
    max_unread_bytes: int = 256 * 1024 * 1024
    """Replies that their clients do not read; beyond it fetches are answered with little."""
    min_bytes_per_s: int = 0
    """kraft.request.min.bytes.per.second: at which a frame that has begun must come."""

    def memory(self) -> ServerMemory:
        """The budgets that it allows, all of them free."""
        return ServerMemory(self.max_queued_bytes, self.max_queued_bytes_before_login, self.max_unread_bytes)


class Server:
    """All listeners of a node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        serve: Serve,
        is_exclusive: Callable[[memoryview], bool],
        is_in_turn: Callable[[memoryview], bool] = lambda frame: False,
        *,
        limits: ServerLimits | None = None,
        memory: ServerMemory | None = None,
        on_closed: OnClosed | None = None,
        admit: Admit = lambda host: 0.0,
    ) -> None:
        self.loop = loop
        self.serve = serve
        self.is_exclusive = is_exclusive
        self.is_in_turn = is_in_turn
        self.limits = limits if limits is not None else ServerLimits()
        self.on_closed = on_closed
        self.admit = admit
        self.memory = memory if memory is not None else self.limits.memory()
        self.unread = self.memory.unread
        self.turn_budget = TurnBudget(loop)
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.connections: dict[ServerConnection, None] = {}  # a dict, because sets have no stable order
        shared = ConnectionQuotas()
        self.counts = dict.fromkeys(ListenerKind, shared) | {ListenerKind.CONTROLLERS: ConnectionQuotas()}
        self._servers: list[asyncio.Server] = []
        self._acceptors: list[TlsAcceptor] = []
        self._sweep: asyncio.TimerHandle | None = None

    async def listen(
        self, listener: str, host: str | None, port: int, security: ListenerSecurity = OPEN
    ) -> int:
        """Serve a listener; returns its port (of interest where 0 was asked for)."""
        self.memory.add_listener(listener)
        if self._sweep is None:
            self._schedule_sweep()
        if security.tls is not None:
            acceptor = TlsAcceptor(
                self.loop,
                security.tls,
                lambda: ServerConnection(self, listener, security),
                partial(self.arrived, security),
                self.counts[security.listener_kind].left,
            )
            self._acceptors.append(acceptor)
            return await acceptor.listen(host, port)
        server = await self.loop.create_server(
            lambda: ServerConnection(self, listener, security), host, port, backlog=BACKLOG
        )
        self._servers.append(server)
        return cast(int, server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and end every connection at once."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for server in self._servers:
            server.close()
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()
        for connection in list(self.connections):
            connection.abort()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

    def arrived(self, security: ListenerSecurity, host: str, handle: int) -> float | None:
        """Count a connection that has just been accepted. In how many seconds to end it; None: let it in."""
        counts, limits = self.counts[security.listener_kind], self.limits
        max_connections = (
            limits.max_controller_connections
            if security.listener_kind is ListenerKind.CONTROLLERS
            else limits.max_connections
        )
        if (refusal := counts.arrived(host, handle, max_connections, security.listener_kind)) is not None:
            log.warning("refusing %s: %s", host, refusal)
            return 0.0
        if counts.total > max_connections.connections:
            self._make_room()
        return self.admit(host) or None

    def _make_room(self) -> None:
        """A broker came on top: the client that has been silent for longest goes, as in Kafka."""
        shared = (each for each in self.connections if each.listener_kind is ListenerKind.SHARED)
        if (idlest := min(shared, key=lambda each: each.last_active, default=None)) is not None:
            log.warning(
                "closing %s: max.connections=%d", idlest.name, self.limits.max_connections.connections
            )
            idlest.abort()

    def _schedule_sweep(self) -> None:
        period = min(self.limits.max_idle_s / 10, SWEEP_S)
        self._sweep = self.loop.call_later(period, self._close_idle)

    def _close_idle(self) -> None:
        self._schedule_sweep()
        now = self.loop.time()
        for connection in list(self.connections):
            if now - connection.last_active > self.limits.max_idle_s and (
                connection.idle or connection.is_deaf(now)
            ):
                connection.abort()
            elif (least := connection.too_slow(now)) is not None:
                log.warning("closing %s: its request comes at less than %d bytes/s", connection.name, least)
                connection.abort()


class ServerConnection(asyncio.BufferedProtocol):
    """One accepted connection."""

    def __init__(self, server: Server, listener: str, security: ListenerSecurity) -> None:
        self._server = server
        self._listener = listener
        self._security = security
        limits = server.limits.connection
        self.listener_kind = security.listener_kind
        self._is_unauthenticated = security.asks_login
        self._account = Account(
            server.memory.queued_before_login if security.asks_login else server.memory.queued[listener]
        )
        max_frame_bytes = (
            limits.max_frame_bytes_before_login if security.asks_login else limits.max_frame_bytes
        )
        self._reader = FrameReader(max_frame_bytes, server.scratch, self._account)
        may_start = server.is_exclusive, server.is_in_turn
        self._pipeline = Pipeline(limits, self._account, *may_start, more=self._reader.cut_on)
        self._starting: Slot | None = None
        self._looked_at: tuple[float, FrameProgress] | None = None
        """When, and how far its frame had come."""
        self.reading = True
        self._closed_by_us = False
        self._waits_for_budget = False
        self._unread_bytes = 0
        self._waits_for_turn = False
        self._pumping = False
        self._unmute_timer: asyncio.TimerHandle | None = None
        self._muted_until = 0.0
        self.last_active = server.loop.time()

    @property
    def name(self) -> str:
        return f"{self.peer.client_host}:{self.peer.client_port} ({self._listener})"

    @property
    def idle(self) -> bool:
        return self._pipeline.idle

    @property
    def progress(self) -> FrameProgress | None:
        return self._reader.progress

    def too_slow(self, now: float) -> int | None:
        """The rate that its request has not come at since we looked last; None where all is well."""
        progress = self.progress if self.reading else None
        if progress is None:
            self._looked_at = None
            return None
        if self._looked_at is None or self._looked_at[1].frame != progress.frame:
            self._looked_at = now, progress
            return None
        contended = self._account.budget.exhausted and progress.held_bytes > SMALL_FRAME_BYTES
        least = CONTENDED_BYTES_PER_S if contended else self._server.limits.min_bytes_per_s
        since, before = self._looked_at
        if now - since < (SWEEP_S if contended else SLOW_FRAME_S):
            return None
        self._looked_at = now, progress
        return least if progress.came_bytes - before.came_bytes < least * (now - since) else None

    def is_deaf(self, now: float) -> bool:
        """Whether it has read nothing of its replies since we looked last; else it is active."""
        before, now_unread = self._unread_bytes, self._transport.get_write_buffer_size()
        if before and now_unread != before:
            self._count_unread(now_unread)
            self.last_active = now
            return False
        return before > 0

    def abort(self) -> None:
        """End the connection now; what it was sent may be lost."""
        self._closed_by_us = True
        self._transport.abort()

    # ---- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        host, port = (transport.get_extra_info("peername") or ("?", 0))[:2]
        self.peer = Peer(self._listener, host, port, authenticated=not self._security.asks_login)
        self.peer.mute = self._mute
        self.peer.started = self._started_request
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        # With TLS it has been counted when it was accepted.
        handle: int = transport.get_extra_info("socket").fileno()
        pause_s = (
            None if self._security.tls is not None else self._server.arrived(self._security, host, handle)
        )
        self._server.connections[self] = None
        if pause_s is not None:
            self._pipeline.muted = True  # for as long as it lasts
            self._server.loop.call_later(pause_s, self.abort)
        elif self._security.principal_of is not None and (
            certificate := transport.get_extra_info("peercert")
        ):
            try:
                self.peer.principal = self._security.principal_of(certificate)
            except ValueError as error:
                log.warning("refusing %s: %s", self.name, error)
                self.abort()
            except Exception as error:  # noqa: BLE001 - else it would be let in without a name
                self._refuse(error)

    def connection_lost(self, exc: Exception | None) -> None:
        del self._server.connections[self]
        self._count_unread(0)
        self._server.counts[self.listener_kind].left(self.peer.client_host)
        self._pipeline.close()
        self._reader.close()
        for call_off in list(self.peer.parked.values()):
            try:
                call_off()
            except Exception as error:  # noqa: BLE001 - the others are to be called off too
                report_fault(self._server.loop, f"what waited for {self.name}", error)
        self.peer.parked.clear()
        self.peer.mute, self.peer.started = _no_mute, StartedRequest
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        if self._server.on_closed is not None:
            self._server.on_closed(self.peer, not self._closed_by_us)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._server.loop.time()
        if self._is_unauthenticated and self.peer.authenticated:
            self._let_in()
        try:
            self._pipeline.enqueue(self._reader.received(nbytes))
        except Exception as error:  # noqa: BLE001
            self._refuse(error)
            return
        self._pump()

    def _let_in(self) -> None:
        self._is_unauthenticated = False
        self._reader.max_frame_bytes = self._server.limits.connection.max_frame_bytes
        self._account.move_to(self._server.memory.queued[self._listener])

    def eof_received(self) -> bool:
        return False  # a client that stopped sending has gone: close

    def pause_writing(self) -> None:
        self._pipeline.output_blocked = True
        self._count_unread(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._pipeline.output_blocked = False
        self._count_unread(0)
        self._pump()

    # ---- requests and replies

    def _pump(self) -> None:
        """Start what may be started, send what may leave, read on or not."""
        if self._pumping:  # a reply was refused or drained in the middle of it: the outer call goes on
            return
        self._pumping = True
        try:
            while (started := self._pipeline.next_frame()) is not None:
                if self._start(*started):
                    self._flush()
                if self._pipeline.queued and not self._server.turn_budget.may_continue(self._take_turn):
                    self._waits_for_turn = True
                    break
        except Exception as error:  # noqa: BLE001
            self._refuse(error)
        finally:
            self._pumping = False
        self._read_or_pause()

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        self._pump()

    def _start(self, frame: memoryview, slot: Slot) -> bool:
        """Whether the reply is there already."""
        self._starting = slot
        reply = self._server.serve(self.peer, frame)
        self._starting = None
        if isinstance(reply, asyncio.Future):
            if not reply.done():
                reply.add_done_callback(partial(self._on_reply, slot))
                if isinstance(reply, asyncio.Task):
                    self._server.turn_budget.started()
                return False
            reply = reply.result()
        self._pipeline.fill(slot, reply)
        return True

    def _started_request(self) -> StartedRequest:
        return StartedRequest(self, self._starting)

    def charge(self, slot: Slot, size: int) -> None:
        """See `StartedRequest`."""
        self._pipeline.charge(slot, size)

    def hold(self, held: bool) -> None:
        """See `StartedRequest`."""
        self._pipeline.held = held
        if not held:
            self._pump()

    def _on_reply(self, slot: Slot, done: asyncio.Future[Buffers]) -> None:
        if done.cancelled():
            return
        try:
            reply = done.result()
            if self._transport.is_closing():
                return
            self._pipeline.fill(slot, reply)
            self._flush()
        except Exception as error:  # noqa: BLE001
            self._refuse(error)
            return
        if not self.reading and not self._waits_for_turn:  # else nothing waits for room
            self._pump()

    def _flush(self) -> None:
        output = self._pipeline.take_output()
        if not output or self._transport.is_closing():
            return
        self.last_active = self._server.loop.time()
        if len(output) == 1:
            self._transport.write(output[0])
        else:
            self._transport.writelines(output)
        if self._pipeline.output_blocked:
            self._count_unread(self._transport.get_write_buffer_size())

    def _count_unread(self, size: int) -> None:
        self._server.unread.held_bytes += size - self._unread_bytes
        self._unread_bytes = size

    def _refuse(self, error: Exception) -> None:
        """The connection cannot go on."""
        if self._transport.is_closing() and isinstance(error, ProtocolError):
            return
        self.abort()
        if isinstance(error, ProtocolError):
            log.warning("closing %s: %s", self.name, error)
        else:
            report_fault(self._server.loop, f"the connection of {self.name}", error)

    # ---- back-pressure

    def _mute(self, pause_s: float) -> None:
        until = self._server.loop.time() + pause_s
        if until <= self._muted_until:
            return
        self._muted_until = until
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        self._unmute_timer = self._server.loop.call_at(until, self._unmute)
        self._pipeline.muted = True
        self._read_or_pause()

    def _unmute(self) -> None:
        self._unmute_timer = None
        self._pipeline.muted = False
        self.last_active = self._server.loop.time()
        self._pump()

    def _read_or_pause(self) -> None:
        if self._transport.is_closing():
            return
        if self._reader.needs_budget and not self._reader.resume() and not self._waits_for_budget:
            self._waits_for_budget = True
            self._reader.wait(self._budget_has_room)
        reading = self._pipeline.wants_input and not self._reader.needs_budget
        if reading != self.reading:
            self.reading = reading
            self._looked_at = None
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _budget_has_room(self) -> None:
        self._waits_for_budget = False
        self._read_or_pause()
