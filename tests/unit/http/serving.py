"""An HTTP port on a loop of its own."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import uvloop
from aiohttp import web

from kraft.http.listener import HttpPort, server_of
from kraft.local.free_ports import HOST, Ports

Respond = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
ASKED = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def hello(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="hello")


@asynccontextmanager
async def serving(respond: Respond, failures: int = 0) -> AsyncIterator[int]:
    """`failures`: how often it cannot be made."""
    loop = asyncio.get_running_loop()
    tries = iter(range(failures))

    def make() -> web.Server:
        if next(tries, None) is not None:
            raise OSError(errno.EMFILE, "Too many open files")
        return server_of(respond, loop, logging.getLogger(__name__))

    http = HttpPort(loop, make)
    with Ports() as ports:
        (port,) = ports(1)
        await http.listen(HOST, port)
        try:
            yield port
        finally:
            await http.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(), 60))
