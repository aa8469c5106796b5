"""One accepted connection of a listener: from its bytes to requests, and from replies to its bytes.

    socket -> ServerConnection (BufferedProtocol) -> FrameReader, Pipeline -> `serve(peer, frame)`
    socket <- transport.writelines <----------------- replies in order  <----- buffers or a future

Bytes are received straight into the buffer where the frame will stay, and replies are handed to the transport
without being copied. A handler that has nothing to wait for costs no task and no future.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
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
from kraft.net.delayed_reply import DelayedReply
from kraft.net.frame_rate import FrameRate
from kraft.net.listener import Certificate, ListenerSecurity
from kraft.net.peer import Peer, StartedRequest, UncountedRequest, no_mute
from kraft.net.read_turns import COUNTED_BYTES, Taken
from kraft.net.reply_output import COUNTED_FROM_BYTES, ReplyOutput
from metadata_quorum.foundation.supervision import report_fault

log = rate_limited(logging.getLogger(__name__))

SENT_TOGETHER_BYTES: Final = 64 * 1024
"""Replies that are ready at once leave together, up to this size: a write is a call into the kernel, which
takes as long as a small request."""

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
        self._reader = FrameReader(
            max_frame_bytes, services.scratch, self._account, allocate=services.read_turns.buffer
        )
        if (
            security.listener_kind is not ListenerKind.SHARED
        ):  # its connections are shared by all that a node does
            limits = replace(limits, max_in_flight_tasks=limits.max_in_flight_requests)
        may_start = services.is_exclusive, services.is_in_turn
        self._pipeline = Pipeline(
            limits, self._account, *may_start, more=self._reader.cut_on, overtaken=self._overtaken
        )
        self._starting: Slot | None = None
        self._frame_rate = FrameRate()
        self.reading = True
        """Whether it is to be read: when its turn has come, if `_waits_to_read`."""
        self._waits_to_read = False
        self._taken = Taken()
        self._closed_by_us = False
        self._waits_for_budget = False
        self._waits_for_turn = False
        self._pumping = False
        self._flushes_soon = False
        self._unmute_timer: asyncio.TimerHandle | None = None
        self._muted_until = 0.0
        self._arrived = 0.0
        """When the oldest queued request came, by the stopwatch."""
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
        """The least rate, in bytes a second, if the frame that is being received comes more slowly; None if
        all is well."""
        waits_for_budget = self._waits_for_budget and self._reader.needs_budget
        progress = None if waits_for_budget else self.progress
        if progress is None:
            self._frame_rate.forget()
            return None
        contended = self._account.budget.exhausted and progress.held_bytes > SMALL_FRAME_BYTES
        least = CONTENDED_BYTES_PER_S if contended else self._services.connections.limits.min_bytes_per_s
        is_below = self._frame_rate.is_below(least, now, progress, reading=self.reading, contended=contended)
        return least if is_below else None

    def unread_handle(self, since: float) -> int | None:
        if self.reading or self._transport.is_closing():
            return None
        if self._pipeline.muted or self._last_heard > since:
            return None
        handle: int = self._transport.get_extra_info("socket").fileno()
        return handle

    def hung_up(self) -> None:
        self._transport.abort()

    def is_deaf(self, now: float) -> bool:
        """Whether the other end has read none of its replies since the last call."""
        return self._output.has_not_moved(now)

    def abort(self) -> None:
        """Close the connection now; replies that are on their way may be lost."""
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
        # With TLS it was counted when it was accepted.
        handle: int = transport.get_extra_info("socket").fileno()
        pause_s = (
            None
            if self._security.tls is not None
            else self._services.connections.arrived(self._security, host, handle)
        )
        self._services.connections.add(self)
        if pause_s is not None:
            self._pipeline.muted = True  # for as long as the connection lasts
            self._services.loop.call_later(pause_s, self.abort)
        elif self._security.principal_of is not None and transport.get_extra_info("peercert"):
            certificate: Certificate = transport.get_extra_info("ssl_object").getpeercert(True)
            self._take_principal(self._security.principal_of, certificate)

    def _take_principal(self, principal_of: Callable[[Certificate], str], certificate: Certificate) -> None:
        try:
            self.peer.principal = principal_of(certificate)
        except ValueError as error:
            log.warning("refusing %s: %s", self.name, error)
            self.abort()
        except Exception as error:  # noqa: BLE001 - without a principal it must not be let in
            self._refuse(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._services.connections.remove(self, self.peer.client_host)
        self._output.close()
        self._pipeline.close()
        self._reader.close()
        if self._waits_for_budget:
            self._account.budget.forget(self._budget_has_room)
        self.peer.gone = True
        for call_off in list(self.peer.parked.values()):
            try:
                call_off()
            except Exception as error:  # noqa: BLE001 - the others must be called off too
                report_fault(self._services.loop, f"what waited for {self.name}", error)
        self.peer.parked.clear()
        self.peer.mute, self.peer.started = no_mute, UncountedRequest
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        if self._services.on_closed is not None:
            self._services.on_closed(self.peer, not self._closed_by_us)

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._reader.get_buffer()
        share_bytes = self._services.read_turns.share_bytes
        return buffer if len(buffer) <= share_bytes else buffer[:share_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        services = self._services
        self._last_heard = services.loop.time()
        if nbytes >= COUNTED_BYTES and services.read_turns.take(nbytes, self._taken):
            self._wait_to_read()
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
        return False  # a client that has stopped sending is gone: close

    def pause_writing(self) -> None:
        self._output.pause()

    def resume_writing(self) -> None:
        self._output.resume()

    # ---- requests and replies

    def _pump(self) -> None:
        """Start what may be started, send what may leave, then read on or stop reading."""
        if self._pumping:  # called from within: the outer call continues
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
        """Start all that may be started. Small replies wait, so that they leave with one write."""
        pipeline = self._pipeline
        while not self._waits_for_turn and (started := pipeline.next_frame()) is not None:
            if self._start(*started) and (pipeline.reply_bytes >= SENT_TOGETHER_BYTES or pipeline.has_files):
                self._output.flush()
            if pipeline.queued:
                self._waits_for_turn = not self._services.turn_budget.may_continue(self._take_turn)

    def _overtaken(self) -> None:
        self._services.on_overtaken(self.peer)

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        self._pump()

    def _start(self, frame: memoryview, slot: Slot) -> bool:
        """Start a request. Returns whether its reply is there already."""
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
            self.abort()  # the node is stopping
            return
        again = partial(self._start_prepared, frame, slot, prepared)
        if not self._services.turn_budget.may_continue(again):
            return  # hundreds may have waited for the same schemas
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
        """May be called in the middle of another connection's request, so it only notes the reply;
        `_flush_turn` does the rest."""
        if isinstance(done, asyncio.Future) and done.cancelled():
            self.abort()  # later requests would never be answered
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
            self._services.reply_turns.add(self._flush_turn)

    def _flush_turn(self) -> None:
        """Send all that was answered in the last turn of the loop."""
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
        # Its frames hold the request, up to 100 MB, and the future that it was raised from: a cycle.
        error.__traceback__ = None

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
        reading = self._pipeline.wants_input
        if reading and self._reader.is_large:  # what could not start may as well stay with its sender
            reading = not self._pipeline.holds_back(self._reader.api_key)
        if reading and self._reader.needs_budget:
            reading = self._reader.resume()
            if not reading and not self._waits_for_budget:
                self._waits_for_budget = True
                self._reader.wait(self._budget_has_room)
        if reading != self.reading:
            self.reading = reading
            if reading:
                if not self._waits_to_read:
                    self._transport.resume_reading()
            else:
                self._frame_rate.hold_up()
                self._transport.pause_reading()
                self._reader.hold_up()

    def _wait_to_read(self) -> None:
        if not self._waits_to_read:
            self._waits_to_read = True
            self._frame_rate.is_ahead(self._services.loop.time())
            self._transport.pause_reading()
            self._services.read_turns.wait(self._read_on)

    def _read_on(self) -> None:
        """It is its turn again."""
        self._waits_to_read = False
        self._frame_rate.goes_on(self._services.loop.time())
        if self.reading and not self._transport.is_closing():
            self._transport.resume_reading()

    def _budget_has_room(self) -> None:
        self._waits_for_budget = False
        self._read_or_pause()


class _PipelinedRequest:
    """A `StartedRequest` of this connection's pipeline."""

    __slots__ = ("_connection", "_pipeline", "_slot")

    def __init__(self, connection: ServerConnection, pipeline: Pipeline, slot: Slot) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._slot = slot

    def charge(self, size: int) -> None:
        self._pipeline.charge(self._slot, size)

    def keep(self) -> None:
        self._pipeline.keep(self._slot)

    def let_go(self) -> None:
        self._pipeline.let_go(self._slot)

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
