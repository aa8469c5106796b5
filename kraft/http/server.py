"""A node's HTTP server: what it answers on which path.

    GET /status    the node's own view, as JSON (status.py)
    GET /metrics   OpenMetrics (kraft/metrics/exposition.py); ?names=reporter or confluent for other names

Read-only, and on the loopback (listener.py).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kraft.http.status import status
from kraft.metrics.exposition import CONTENT_TYPE, exposition
from kraft.metrics.metric import Style
from kraft.metrics.sources import Sources

if TYPE_CHECKING:
    from aiohttp import web

Handler = Callable[[Sources, "web.BaseRequest"], Awaitable["web.StreamResponse"]]


def make_server(sources: Sources) -> web.Server:
    """aiohttp's server for one node; imports aiohttp (see listener.py)."""
    from aiohttp import web

    return web.Server(partial(_respond, sources), loop=sources.node.loop)


async def _respond(sources: Sources, request: web.BaseRequest) -> web.StreamResponse:
    from aiohttp import web

    handler = _PATHS.get(request.path)
    if handler is None:
        return web.json_response({"paths": list(_PATHS)}, status=404)
    if request.method != "GET":
        return web.json_response({"methods": ["GET"]}, status=405)
    return await handler(sources, request)


async def _status(sources: Sources, request: web.BaseRequest) -> web.StreamResponse:
    from aiohttp import web

    return web.Response(text=json.dumps(status(sources), indent=1), content_type="application/json")


async def _metrics(sources: Sources, request: web.BaseRequest) -> web.StreamResponse:
    from aiohttp import web

    try:
        style = Style(request.query.get("names", Style.STRIMZI))
    except ValueError:
        return web.json_response({"names": list(Style)}, status=400)
    response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
    await response.prepare(request)
    async for piece in exposition(sources, style):
        await response.write(piece)
    await response.write_eof()
    return response


_PATHS: Final[dict[str, Handler]] = {"/status": _status, "/metrics": _metrics}
