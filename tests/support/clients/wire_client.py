"""Our own client as plain function calls: for what no stock client can be made to send."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from kraft.local.free_ports import HOST
from kraft.net.client import Address, PeerClient
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from tests.support.waiting import PATIENCE_S

Value = TypeVar("Value")


class Wire:
    """Connections by port, kept until `close`; a broken one is opened again."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._clients: dict[int, PeerClient] = {}

    def ask(self, port: int, api_key: ApiKey, version: int, **fields: Any) -> Message:
        """One request and its answer. Raises `ConnectionError` where the node hangs up."""
        return self.run(self.client(port).request(api_key, version, fields, timeout_s=PATIENCE_S))

    def client(self, port: int) -> PeerClient:
        self.run(
            asyncio.sleep(0)
        )  # the loop did not run since the last call: connections that have ended are noticed now
        client = self._clients.get(port)
        if client is None or not client.connected:
            client = self.run(
                PeerClient.connect(self.loop, Address(HOST, port), "test", timeout_s=PATIENCE_S)
            )
            self._clients[port] = client
        return client

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self.run(asyncio.sleep(0))  # lets the transports close
        self.loop.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
