"""What a node tells over HTTP (its JSON API, kraft/http/api.py), as `kraft top` asks for it.

addresses -> the first that answers -> one snapshot, or the live stream; a node that falls silent is left
                                       for the next one
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import aiohttp

from kraft.cli.errors import CliError
from kraft.cli.told import Event, Events, Refusal, Snapshot, parsed

BASE: Final = "/api/v1"
CONNECT_S: Final = 2.0
SILENCE_S: Final = 6.0
"""A node sends its view of the cluster once a second; a paused one keeps its connections."""
NEXT_NODE_S: Final = 0.5
MOST_BYTES: Final = 64 * 1024 * 1024
"""In one answer, or one event."""

KINDS: Final[Mapping[str, Any]] = {"cluster": Snapshot, "events": list[Event]}
"""Of events, and what they tell."""

ShapeT = TypeVar("ShapeT")
Address = tuple[str, int]
Login = tuple[str, str]


class NodeHttp:
    """The nodes of one cluster, any of which shows all of it."""

    def __init__(self, addresses: Sequence[Address], login: Login | None) -> None:
        self._urls = [f"http://[{h}]:{p}" if ":" in h else f"http://{h}:{p}" for h, p in addresses]
        self._auth = None if login is None else aiohttp.BasicAuth(*login, encoding="utf-8")

    async def snapshot(self) -> tuple[Snapshot, list[Event]]:
        """The cluster, and what has happened to it, as one node tells them. Raises `CliError`."""
        silent = []
        async with self._session() as session:
            for url in self._urls:
                try:
                    cluster = await _get(session, f"{url}{BASE}/cluster", Snapshot)
                    return cluster, (await _get(session, f"{url}{BASE}/events", Events))["events"]
                except (aiohttp.ClientError, TimeoutError, ValueError):
                    silent.append(url.removeprefix("http://"))
        raise CliError(f"no node answers over HTTP at {', '.join(silent)}")

    async def live(self) -> AsyncIterator[tuple[str, Any]]:
        """("cluster", snapshot), ("events", list) and ("trouble", sentence), for ever: after a trouble
        another node tells, with all its events. Raises `CliError` where it does not let us."""
        async with self._session() as session:
            while True:
                for url in self._urls:
                    try:
                        async for news in _stream(session, f"{url}{BASE}/live"):
                            yield news
                    except (aiohttp.ClientError, TimeoutError, ValueError):
                        pass  # the next one is asked
                    yield "trouble", f"{url.removeprefix('http://')} does not answer"
                    await asyncio.sleep(NEXT_NODE_S)

    def _session(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
        return aiohttp.ClientSession(
            auth=self._auth,
            timeout=timeout,
            read_bufsize=2**20,
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
        )


async def _get(session: aiohttp.ClientSession, url: str, shape: type[ShapeT]) -> ShapeT:
    """Raises `ValueError` for what is no answer to it."""
    async with session.get(url) as response:
        await _raise_for(response)
        return parsed(shape, await _read(response))


async def _stream(session: aiohttp.ClientSession, url: str) -> AsyncIterator[tuple[str, Any]]:
    """Server-sent events, as kraft/http/live.py writes them. Raises `ValueError` for others."""
    async with session.get(url) as response:
        await _raise_for(response)
        received = b""
        async for piece in response.content.iter_any():
            received += piece
            *whole, received = received.split(b"\n\n")
            for each in whole:
                lines = (line.partition(": ") for line in each.decode().splitlines())
                fields = {name: value for name, _, value in lines}
                kind = fields.get("event", "")
                if kind in KINDS:
                    yield kind, parsed(KINDS[kind], fields.get("data", ""))
            _check_length(received)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Raises `ValueError`."""
    received = bytearray()
    async for piece in response.content.iter_any():
        received += piece
        _check_length(received)
    return bytes(received)


def _check_length(received: bytes | bytearray) -> None:
    """Raises `ValueError` for more than a node tells at a time."""
    if len(received) > MOST_BYTES:
        raise ValueError(f"an answer of more than {MOST_BYTES} bytes")


async def _raise_for(response: aiohttp.ClientResponse) -> None:
    """Raises `CliError` for what another node would answer as well, `ValueError` for no answer of a node."""
    if response.status == 401:
        raise CliError("the cluster asks for a login: --command-config FILE, or --dir of `kraft up`")
    if response.status == 403:
        raise CliError(parsed(Refusal, await _read(response))["error"])
    response.raise_for_status()
