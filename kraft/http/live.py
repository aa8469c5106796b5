"""The live stream of the console: server-sent events, until the reader goes, or may not read any more.

event: cluster   the snapshot, once a second
event: events    what has happened, as soon as it has; `id` is the last one's number, from which a reader
                 that reconnects goes on

All readers are told of the same event; each of them in another turn of the loop.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from kraft.http.api import Json, Service, events_since
from kraft.http.login import Visitor
from kraft.http.refused import Refused
from kraft.http.unread import UnreadAnswers
from kraft.wire import long_json
from metadata_quorum.foundation.turns import Turns

if TYPE_CHECKING:
    from aiohttp import web

PERIOD_S: Final = 1.0
MAX_READERS: Final = 32


class LiveStreams:
    """The event streams that one node sends."""

    def __init__(self, service: Service, unread: UnreadAnswers) -> None:
        self._service = service
        self._unread = unread
        self._readers = 0
        self._turns = Turns(service.sources.node.loop)

    async def serve(
        self, request: web.BaseRequest, visitor: Visitor, response: web.StreamResponse
    ) -> web.StreamResponse:
        """Returns when the reader has gone. Raises `Refused` where there are too many."""
        if self._readers >= MAX_READERS:
            raise Refused(503, f"{MAX_READERS} streams are open already")
        self._readers += 1
        news = asyncio.Event()
        events = self._service.sources.events
        events.listeners[news.set] = None
        try:
            await response.prepare(request)
            known = _last_known(request)
            await self._stream(request, visitor, response, news, known if known <= events.newest else 0)
        except ConnectionResetError:
            pass
        finally:
            self._readers -= 1
            del events.listeners[news.set]
        return response

    async def _stream(
        self,
        request: web.BaseRequest,
        visitor: Visitor,
        response: web.StreamResponse,
        news: asyncio.Event,
        known: int,
    ) -> None:
        loop, events = self._service.sources.node.loop, self._service.sources.events
        due = 0.0
        while visitor.is_logged_in and visitor.may_see_cluster():
            await self._turns.next()
            news.clear()
            recent, known = events_since(self._service, visitor, known), events.newest
            if recent:
                text = json.dumps(recent)
                await response.write(f"id: {known}\nevent: events\ndata: {text}\n\n".encode())
            if loop.time() >= due:
                due = loop.time() + PERIOD_S
                event = await self._service.view.snapshot(visitor, _as_event)
                with self._unread.held(request, len(event)):
                    await response.write(event)
            try:
                async with asyncio.timeout(max(due - loop.time(), 0.0)):
                    await news.wait()
            except TimeoutError:
                continue


def _as_event(snapshot: Json) -> bytes:
    return b"event: cluster\ndata: %b\n\n" % long_json.encode(snapshot)


def _last_known(request: web.BaseRequest) -> int:
    """The browser tells it when it reconnects. A restarted node counts from zero: then all are told."""
    text = request.headers.get("Last-Event-ID", "")
    return int(text) if text.isdecimal() and len(text) < 18 else 0
