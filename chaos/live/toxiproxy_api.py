"""Toxiproxy's API through toxiproxy-python, with what that library lacks put right here.

The library keeps the server's address in a class, so a process could talk to one server only; it
opens a connection per request, never times out, obeys HTTP_PROXY even on the loopback, and takes
an answer of 500 for success. So its module gets a session of ours in place of `requests`, and
the address of the current server.

A toxic cannot be added to a connection whose far end reads nothing while its buffers are full (a
node that was paused for long): Toxiproxy waits for it. We wait `PATIENCE_S`, and then raise.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kraft.cli.errors import CliError
from metadata_quorum.foundation.errors import ExitCode, FatalError

try:
    import toxiproxy
    import toxiproxy.api
    from toxiproxy.exceptions import NotFound, ProxyExists
except ImportError as error:
    raise FatalError(ExitCode.MISSING_TOOL, f"links need {error.name}: pip install '.[chaos]'") from None

PATIENCE_S: Final = 10.0
SERVER_ERROR: Final = 500

_requests: Final[Any] = toxiproxy.api.requests
_turn: Final = threading.Lock()
"""The library has one address at a time."""


@dataclass(frozen=True, slots=True)
class Toxic:
    """One toxic of a proxy."""

    name: str
    type: str
    stream: str
    """upstream: what the end that connected sends; downstream: what it receives."""
    attributes: Mapping[str, int]


class ToxiproxyApi:
    """One server."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._session = _Session(f"{host}:{port}")

    def listening(self) -> set[str]:
        """The proxies that are enabled."""
        with self._library() as server:
            return {name for name, proxy in server.proxies().items() if proxy.enabled}

    def names(self) -> set[str]:
        """Every proxy."""
        with self._library() as server:
            return set(server.proxies())

    def toxics(self, proxy: str) -> list[Toxic]:
        """In the order in which bytes pass them."""
        with self._library():
            toxics = _handle(proxy).toxics().values()
        return [Toxic(each.name, each.type, each.stream, each.attributes) for each in toxics]

    def add(self, proxy: str, toxic: Toxic) -> None:
        """One of the same name is replaced."""
        with self._library():
            handle = _handle(proxy)
            settings = {
                "name": toxic.name, "type": toxic.type, "stream": toxic.stream,
                "attributes": dict(toxic.attributes),
            }  # fmt: skip
            try:
                handle.add_toxic(**settings)
            except ProxyExists:  # as it calls every conflict
                handle.destroy_toxic(toxic.name)
                handle.add_toxic(**settings)

    def remove(self, proxy: str, toxic: str) -> None:
        """One that is not there is no error."""
        with self._library():
            try:
                _handle(proxy).destroy_toxic(toxic)
            except NotFound:
                pass

    def enable(self, proxy: str, on: bool) -> None:
        """Off: its connections end, and new ones are refused."""
        with self._library():
            handle = _handle(proxy)
            handle.enable() if on else handle.disable()

    def close(self) -> None:
        self._session.close()

    @contextmanager
    def _library(self) -> Iterator[Any]:
        with _turn:
            server = toxiproxy.Toxiproxy()
            server.update_api_consumer(self._host, self._port)
            toxiproxy.api.requests = self._session
            yield server


def _handle(proxy: str) -> Any:
    """The library's object for a proxy that exists, without asking the server for all of them."""
    return toxiproxy.Proxy(name=proxy, upstream="", listen="", enabled=True)


class _Session:
    """What the library uses of `requests`: one connection that is kept, and plain sentences."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._session = _requests.Session()
        self._session.trust_env = False  # no HTTP_PROXY between us and the loopback

    def get(self, url: str, **arguments: Any) -> Any:
        return self._ask("GET", url, arguments)

    def post(self, url: str, **arguments: Any) -> Any:
        return self._ask("POST", url, arguments)

    def delete(self, url: str, **arguments: Any) -> Any:
        return self._ask("DELETE", url, arguments)

    def close(self) -> None:
        self._session.close()

    def _ask(self, method: str, url: str, arguments: dict[str, Any]) -> Any:
        errors = _requests.exceptions
        try:
            response = self._session.request(method, url, timeout=PATIENCE_S, **arguments)
        except errors.Timeout:
            raise CliError(
                f"Toxiproxy did not do it in {PATIENCE_S:g} s ({method} {url}): the link is full, and its "
                "far end reads nothing; is that node paused?"
            ) from None
        except errors.ConnectionError:
            raise CliError(f"Toxiproxy does not answer at {self._where}") from None
        if response.status_code >= SERVER_ERROR:
            raise CliError(f"Toxiproxy failed ({method} {url}): {response.text.strip()}")
        return response
