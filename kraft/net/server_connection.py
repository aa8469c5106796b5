"""One accepted connection of a listener: from its bytes to requests, and from replies to its bytes.

    socket -> ServerConnection (BufferedProtocol) -> FrameReader, Pipeline -> `serve(peer, frame)`
    socket <- transport.writelines <----------------- replies in order  <----- buffers or a future

Bytes are received straight into the buffer where the frame will stay, and replies are handed to the transport
as they are, gathered. A handler that has nothing to wait for costs no task and no future.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import Final, cast

from kraft.monitoring.rate_limited_log import rate_limited
from kraft.monitoring.request_metrics import ApiMetrics, Phase
from kraft.net.budget import Account
from kraft.net.connection import (
    SMALL_FRAME_BYTES,
    Buffers,
    FrameProgress,
    FrameReader,
    Pipeline,
    ProtocolError,
    Slot,
)
from kraft.net.connection_quotas import ListenerKind
from kraft.net.connection_services import ConnectionServices
from kraft.net.connections import SWEEP_S
from kraft.net.delayed_reply import DelayedReply
from kraft.net.listener import ListenerSecurity
from kraft.net.peer import Peer, StartedRequest, UncountedRequest, no_mute
from kraft.net.reply_output import COUNTED_FROM_BYTES, ReplyOutput
from metadata_quorum.foundation.supervision import report_fault

log = rate_limited(logging.getLogger(__name__))

SENT_TOGETHER_BYTES: Final = 64 * 1024
"""Replies that are there at once leave together until they are so many: a write is a call into the kernel,
which takes as long as a small request."""

SLOW_FRAME_S: Final = 30.0
"""A frame that has begun is looked at this often: in between it must come at the least rate. While other
frames wait for room, `SWEEP_S`; then it may be held up by the connection's own requests for no longer than
this, either."""
CONTENDED_BYTES_PER_S: Final = 1024 * 1024
"""The least rate of a large frame while others wait for room."""


class ServerConnection(asyncio.BufferedProtocol):
    """One accepted connection."""

    def __init__(self, services: ConnectionServices, listener: str, security: ListenerSecurity) -> None:
        self._services = services
        self._listener = listener
        self._security = security
        limits = services.connections.limits.connection
        self.listener_kind = security.listener_kind
        self._is_unauthenticated = security.asks_login
        self._account = Account(
            services.memory.queued_before_login if security.asks_login else services.memory.queued[listener]
        )
        max_frame_bytes = (
            limits.max_frame_bytes_before_login if security.asks_login else limits.max_frame_bytes
        )
        self._reader = FrameReader(max_frame_bytes, services.scratch, self._account)
        if (
            security.listener_kind is not ListenerKind.SHARED
        ):  # its connections are shared by all that a node does
            limits = replace(limits, max_in_flight_tasks=limits.max_in_flight_requests)
        may_start = services.is_exclusive, services.is_in_turn
        self._pipeline = Pipeline(limits, self._account, *may_start, more=self._reader.cut_on)
        self._starting: Slot | None = None
        self._looked_at: tuple[float, FrameProgress] | None = None
        """When, and how far its frame had come."""
        self._held_up = False
        """Whether it was not read for a time since then."""
        self.reading = True
        self._closed_by_us = False
        self._waits_for_budget = False
        self._waits_for_turn = False
        self._pumping = False
        self._flushes_soon = False
        self._unmute_timer: asyncio.TimerHandle | None = None
        self._muted_until = 0.0
        self._arrived = 0.0
        """When the oldest request in the queue came, by the stopwatch."""
        self._last_heard = services.loop.time()

    @property
    def last_active(self) -> float:
        return max(self._last_heard, self._output.last_sent)

    @property
    def name(self) -> str:
        return f"{self.peer.client_host}:{self.peer.client_port} ({self._listener})"

    @property
    def idle(self) -> bool:
        return self._pipeline.idle

    @property
    def listener(self) -> str:
        return self._listener

    @property
    def waiting_requests(self) -> int:
        return len(self._pipeline.queued)

    @property
    def waiting_replies(self) -> int:
        return self._pipeline.waiting_replies

    @property
    def progress(self) -> FrameProgress | None:
        return self._reader.progress

    def too_slow(self, now: float) -> int | None:
        """The rate that its request has not come at since we looked last; None where all is well."""
        progress = None if self._reader.needs_budget else self.progress
        if progress is None:
            self._looked_at = None
            return None
        contended = self._account.budget.exhausted and progress.held_bytes > SMALL_FRAME_BYTES
        looked_at, held_up = self._looked_at, self._held_up or not self.reading
        if looked_at is None or looked_at[1].frame != progress.frame or (held_up and not contended):
            self._look(now, progress)
            return None
        least = CONTENDED_BYTES_PER_S if contended else self._services.connections.limits.min_bytes_per_s
        since, before = looked_at
        if now - since < (SWEEP_S if contended and not held_up else SLOW_FRAME_S):
            return None
        self._look(now, progress)
        return least if progress.came_bytes - before.came_bytes < least * (now - since) else None

    def _look(self, now: float, progress: FrameProgress) -> None:
        self._looked_at = now, progress
        self._held_up = not self.reading

    def is_deaf(self, now: float) -> bool:
        """Whether it has read nothing of its replies since we looked last; else it is active."""
        return self._output.has_not_moved(now)

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
        self._transport.set_write_buffer_limits(high=COUNTED_FROM_BYTES)
        self._output = ReplyOutput(self._services, self._pipeline, self._transport, self._pump, self._refuse)
        # With TLS it has been counted when it was accepted.
        handle: int = transport.get_extra_info("socket").fileno()
        pause_s = (
            None
            if self._security.tls is not None
            else self._services.connections.arrived(self._security, host, handle)
        )
        self._services.connections.add(self)
        if pause_s is not None:
            self._pipeline.muted = True  # for as long as it lasts
            self._services.loop.call_later(pause_s, self.abort)
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
        self._services.connections.remove(self, self.peer.client_host)
        self._output.close()
        self._pipeline.close()
        self._reader.close()
        self.peer.gone = True
        for call_off in list(self.peer.parked.values()):
            try:
                call_off()
            except Exception as error:  # noqa: BLE001 - the others are to be called off too
                report_fault(self._services.loop, f"what waited for {self.name}", error)
        self.peer.parked.clear()
        self.peer.mute, self.peer.started = no_mute, UncountedRequest
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        if self._services.on_closed is not None:
            self._services.on_closed(self.peer, not self._closed_by_us)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        services = self._services
        self._last_heard = services.loop.time()
        if self._is_unauthenticated and self.peer.authenticated:
            self._let_in()
        now = services.requests.stopwatch()
        if not self._pipeline.queued:
            self._arrived = now
        try:
            self._pipeline.enqueue(self._reader.received(nbytes))
        except Exception as error:  # noqa: BLE001
            self._refuse(error)
            return
        if self._pipeline.queued and not self._waits_for_turn:
            self._waits_for_turn = not services.turn_budget.may_begin(now, self._take_turn)
        self._pump()

    def _let_in(self) -> None:
        self._is_unauthenticated = False
        self._reader.max_frame_bytes = self._services.connections.limits.connection.max_frame_bytes
        self._account.move_to(self._services.memory.queued[self._listener])

    def eof_received(self) -> bool:
        return False  # a client that stopped sending has gone: close

    def pause_writing(self) -> None:
        self._output.pause()

    def resume_writing(self) -> None:
        self._output.resume()

    # ---- requests and replies

    def _pump(self) -> None:
        """Start what may be started, send what may leave, read on or not."""
        if self._pumping:  # a reply was refused or drained in the middle of it: the outer call goes on
            return
        self._pumping = True
        try:
            self._start_all()
            while self._output.flush() and self._pipeline.queued and not self._waits_for_turn:
                self._start_all()  # there may be room for more now
        except Exception as error:  # noqa: BLE001
            self._output.flush()
            self._refuse(error)
        finally:
            self._pumping = False
        self._read_or_pause()

    def _start_all(self) -> None:
        """Start whatever may be; small replies wait, so that they leave with one write."""
        pipeline = self._pipeline
        while not self._waits_for_turn and (started := pipeline.next_frame()) is not None:
            if self._start(*started) and (pipeline.reply_bytes >= SENT_TOGETHER_BYTES or pipeline.has_files):
                self._output.flush()
            if pipeline.queued:
                self._waits_for_turn = not self._services.turn_budget.may_continue(self._take_turn)

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        self._pump()

    def _start(self, frame: memoryview, slot: Slot) -> bool:
        """Whether the reply is there already."""
        prepared = self._services.prepare(frame)
        if prepared is not None:
            self._pipeline.pause(slot)
            prepared.add_done_callback(partial(self._start_prepared, frame, slot))
            return False
        self._starting = slot
        slot.timing = timing = self._services.requests.started(slot.api_key, self._arrived)
        reply = self._services.serve(self.peer, frame)
        self._starting = None
        if timing is not None:
            timing.end(Phase.LOCAL)
        if isinstance(reply, DelayedReply):
            if not reply.done:
                reply.when_done(partial(self._on_reply, slot))
                return False
            reply = reply.result()
        elif isinstance(reply, asyncio.Future):
            if not reply.done():
                reply.add_done_callback(partial(self._on_reply, slot))
                if isinstance(reply, asyncio.Task):
                    self._pipeline.continues_in_task(slot)
                    self._services.turn_budget.started()
                return False
            reply = reply.result()
        self._pipeline.fill(slot, reply)
        return True

    def _start_prepared(self, frame: memoryview, slot: Slot, prepared: asyncio.Future[None]) -> None:
        if self._transport.is_closing():
            return
        if prepared.cancelled():
            self.abort()  # the node stops
            return
        try:
            prepared.result()
            self._pipeline.resume(slot)
            if self._start(frame, slot):
                self._output.flush()
        except Exception as error:  # noqa: BLE001
            self._refuse(error)
            return
        self._pump()

    def _started_request(self) -> StartedRequest:
        assert self._starting is not None, "asked for after its handler has returned: nothing is charged"
        return _PipelinedRequest(self, self._pipeline, self._starting)

    def resume_others(self, slot: Slot) -> None:
        """See `StartedRequest`."""
        self._pipeline.resume(slot)
        self._pump()

    def _on_reply(self, slot: Slot, done: asyncio.Future[Buffers] | DelayedReply) -> None:
        """May be called in the midst of another connection's request: what follows from it comes later."""
        if isinstance(done, asyncio.Future) and done.cancelled():
            self.abort()  # nothing behind it would ever be answered
            return
        try:
            reply = done.result()
            if self._transport.is_closing():
                return
            if slot.timing is not None:
                slot.timing.end(Phase.REMOTE)
            self._pipeline.fill(slot, reply)
        except Exception as error:  # noqa: BLE001
            self._refuse(error)
            return
        if not self._flushes_soon:
            self._flushes_soon = True
            self._services.loop.call_soon(self._flush_turn)

    def _flush_turn(self) -> None:
        """Send what was answered in this turn of the loop."""
        self._flushes_soon = False
        try:
            self._output.flush()
        except Exception as error:  # noqa: BLE001
            self._refuse(error)
            return
        if not self.reading and not self._waits_for_turn:  # else nothing waits for room
            self._pump()

    def _refuse(self, error: Exception) -> None:
        """The connection cannot go on."""
        if self._transport.is_closing() and isinstance(error, ProtocolError):
            return
        self.abort()
        if isinstance(error, ProtocolError):
            log.warning("closing %s: %s", self.name, error)
        else:
            report_fault(self._services.loop, f"the connection of {self.name}", error)

    # ---- back-pressure

    def _mute(self, pause_s: float) -> None:
        if self._starting is not None and self._starting.timing is not None:
            self._starting.timing.throttled(pause_s)
        until = self._services.loop.time() + pause_s
        if until <= self._muted_until:
            return
        self._muted_until = until
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        self._unmute_timer = self._services.loop.call_at(until, self._unmute)
        self._pipeline.muted = True
        self._read_or_pause()

    def _unmute(self) -> None:
        self._unmute_timer = None
        self._pipeline.muted = False
        self._last_heard = self._services.loop.time()
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
            if reading:
                self._transport.resume_reading()
            else:
                self._held_up = True
                self._transport.pause_reading()

    def _budget_has_room(self) -> None:
        self._waits_for_budget = False
        self._read_or_pause()


class _PipelinedRequest:
    """The `StartedRequest` of a connection."""

    __slots__ = ("_connection", "_pipeline", "_slot")

    def __init__(self, connection: ServerConnection, pipeline: Pipeline, slot: Slot) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._slot = slot

    def charge(self, size: int) -> None:
        self._pipeline.charge(self._slot, size)

    def pause_others(self) -> None:
        self._pipeline.pause(self._slot)

    def resume_others(self) -> None:
        self._connection.resume_others(self._slot)

    def answer_first(self) -> None:
        self._pipeline.answer_first(self._slot)

    def counts_as(self, api: ApiMetrics) -> None:
        api.requests += 1
        if self._slot.timing is not None:
            self._slot.timing.also(api)
