"""A node's HTTP server: what it answers on which path, to whom, and under which rules for browsers.

    GET /            the console (console/), after a login where the cluster asks for one
    GET /api         the JSON API's description; /api/v1/... (api.py, live.py)
    GET /status      the node's own view, as JSON (status.py)
    GET /ready       200 where the broker is unfenced, else 503
    GET /metrics     OpenMetrics (kraft/metrics/exposition.py); ?names=reporter or confluent for other names

It listens on the loopback (listener.py), and only reads unless it is asked to write (writes.py). The rules
for browsers: nothing is loaded from elsewhere, no other site may read or frame it, and it answers to an
address, to localhost or to its advertised names only, so that no other name can be pointed at it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping, Set
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from kraft.http.api import LIVE, ROUTES, Answer, Asked, Route, Service, encoded
from kraft.http.cluster_view import ClusterView
from kraft.http.finish import to_its_end
from kraft.http.listener import server_of
from kraft.http.live import LiveStreams
from kraft.http.login import LoginRequired, Logins, Visitor
from kraft.http.openapi import METRICS, OPEN, OPENAPI, READY, STATUS, WRITES, openapi
from kraft.http.refused import Refused
from kraft.http.status import is_fenced, status
from kraft.http.unread import MOST_OF_A_SCRAPE, PIECE_BYTES, UnreadAnswers
from kraft.http.writes import ROUTES as WRITE_ROUTES
from kraft.http.writes import Writes, what_is_allowed
from kraft.metrics.exposition import CONTENT_TYPE, exposition, most_memory
from kraft.metrics.metric import Style
from kraft.metrics.sources import Sources
from kraft.monitoring.rate_limited_log import rate_limited
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.foundation.supervision import awaited, report_fault

if TYPE_CHECKING:
    from aiohttp import web

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "kraft",
}
JSON_HEADERS: Final = {**HEADERS, "Content-Type": "application/json; charset=utf-8"}

_FILES: Final[Mapping[str, tuple[str, str]]] = {
    "/": ("console.html", "text/html"),
    "/console.js": ("console.js", "text/javascript"),
    "/messages.js": ("messages.js", "text/javascript"),
    "/topics.js": ("topics.js", "text/javascript"),
    "/rights.js": ("rights.js", "text/javascript"),
    "/writes.js": ("writes.js", "text/javascript"),
    "/console.css": ("console.css", "text/css"),
    "/api": ("api.html", "text/html"),
    "/api.js": ("api.js", "text/javascript"),
}
PATHS: Final = ("/", "/api", *OPEN)


def make_server(sources: Sources) -> web.Server:
    """aiohttp's server for one node; imports aiohttp (see listener.py)."""
    return server_of(HttpServer(sources).respond, sources.node.loop, _log_of_aiohttp())


def _log_of_aiohttp() -> logging.Logger:
    """aiohttp's log, without a traceback for every malformed request."""
    from aiohttp.http_exceptions import HttpProcessingError

    def refused(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
            record.exc_info = None
            record.msg, record.args = "%s: %s", (record.getMessage(), error.message.partition("\n")[0])
        return True

    log = logging.getLogger("aiohttp.server")
    log.addFilter(refused)
    return rate_limited(log)


class HttpServer:
    """See the module."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._logins = Logins(sources.node)
        self._service = Service(sources, ClusterView(sources))
        self._unread = UnreadAnswers()
        self._live = LiveStreams(self._service, self._unread)
        self._writes = Writes(sources.node)
        self._reporting = asyncio.Lock()
        """One status is told at a time: of ten thousand partitions it takes 10 MB, and whoever asks has not
        logged in."""
        self._own_names = {
            each.host.lower() for each in sources.node.config.advertised_endpoints if each.host
        }
        self._open: Mapping[str, Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]] = {
            STATUS: self._status,
            METRICS: self._metrics,
            READY: self._ready,
        }
        assert self._open.keys() == OPEN.keys(), "what is served is described"

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            _check_host(request.headers.get("Host", ""), self._own_names)
            if request.method == "POST":
                return await self._write(request, await self._logins.visitor(request))
            if request.method != "GET":
                raise Refused(405, "only GET, and POST where the console may write")
            answer = self._open.get(request.path)
            if answer is not None:
                return await answer(request)
            return await self._respond_to(request, await self._logins.visitor(request))
        except Refused as refused:
            refusal = _json({"error": refused.message}, refused.status)
            if refused.retry_after_s is not None:
                refusal.headers["Retry-After"] = str(refused.retry_after_s)
            return refusal
        except LoginRequired:
            return _json({"error": "log in as a user of the cluster"}, 401)
        except BrokerError as error:
            return _json({"error": error.message or error.code.name, "code": error.code.name}, 503)
        except OSError:  # a timeout is one
            return _json({"error": "a broker that knows this does not answer"}, 503)
        except Exception as error:  # noqa: BLE001 - one request's affair
            report_fault(self._sources.node.loop, f"{request.method[:10]} {request.path[:100]}", error)
            return _json({"error": "a bug: the node's log says which"}, 500)

    async def _respond_to(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        from aiohttp import web

        if request.path in _FILES:
            name, kind = _FILES[request.path]
            return web.Response(text=_file(name), content_type=kind, headers=HEADERS)
        if request.path == OPENAPI:
            return _json(openapi(version("kraft")))
        if not request.path.startswith("/api/"):
            raise Refused(404, f"there is nothing here; there is {', '.join(PATHS)}")
        if not visitor.may_see_cluster():
            raise Refused(403, f"{visitor.principal} may not DESCRIBE the cluster")
        if request.path == WRITES:
            return _json(await what_is_allowed(self._writes, self._service, visitor))
        if request.path == LIVE:
            headers = {**HEADERS, "Content-Type": "text/event-stream"}
            return await self._live.serve(request, visitor, web.StreamResponse(headers=headers))
        route, in_path = _route(ROUTES, request)
        answer = await route.answer(self._service, Asked(visitor, in_path, request.query))
        return await self._sent(request, await self._text(answer))

    async def _write(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        body = await self._writes.body(request, visitor)
        route, in_path = _route(WRITE_ROUTES, request)
        written = route.answer(self._service, Asked(visitor, in_path, request.query, body))
        return _json(await to_its_end(awaited(self._sources.node.loop, written, "a write of the console")))

    async def _status(self, request: web.BaseRequest) -> web.StreamResponse:
        async with self._reporting:
            report = await self._text(await status(self._sources))
        return await self._sent(request, report)

    async def _text(self, answer: Answer) -> bytes:
        if isinstance(answer, bytes):
            return answer
        return await to_its_end(self._sources.node.loop.run_in_executor(None, encoded, answer))

    async def _sent(self, request: web.BaseRequest, text: bytes) -> web.StreamResponse:
        from aiohttp import web

        if len(text) <= PIECE_BYTES:
            return _json(text)
        return await self._unread.send(request, web.StreamResponse(headers=JSON_HEADERS), text)

    async def _ready(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer probes: can clients be sent here?"""
        fenced = is_fenced(self._sources)
        return _json({"ready": not fenced}, 503 if fenced else 200)

    async def _metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        from aiohttp import web

        try:
            style = Style(request.query.get("names", Style.STRIMZI))
        except ValueError:
            raise Refused(400, f"names are one of {', '.join(Style)}") from None
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": CONTENT_TYPE})
        with self._unread.held(request, min(most_memory(self._sources), MOST_OF_A_SCRAPE)):
            await response.prepare(request)
            async for piece in exposition(self._sources, style):
                await response.write(piece)
            await response.write_eof()
        return response


def _route(routes: tuple[Route, ...], request: web.BaseRequest) -> tuple[Route, Mapping[str, str]]:
    """What answers a path, and what is in its parameters. Raises `Refused`."""
    for route in routes:
        found = route.match(request.rel_url.raw_path)
        if found is not None:
            return route, {name: unquote(text) for name, text in found.items()}
    raise Refused(404, "no such path; /api describes them")


def _json(body: Answer, status: int = 200) -> web.Response:
    from aiohttp import web

    headers = {**JSON_HEADERS, **({"WWW-Authenticate": 'Basic realm="kraft"'} if status == 401 else {})}
    return web.Response(
        body=body if isinstance(body, bytes) else encoded(body), status=status, headers=headers
    )


@cache
def _file(name: str) -> str:
    return (files("kraft.http") / "console" / name).read_text("utf-8")


def _check_host(header: str, own_names: Set[str]) -> None:
    """Raises `Refused`: a name that somebody points at 127.0.0.1 makes their pages ours to the browser."""
    host = header.rpartition(":")[0] if not header.endswith("]") and ":" in header else header
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        if host.lower() != "localhost" and host.lower() not in own_names:
            raise Refused(421, "ask by an address, as localhost, or by an advertised name") from None
