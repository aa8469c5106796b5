"""Connections for what is asked now and then: the network may have forgotten one, and says so to nobody."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kraft.net.client import Address
from kraft.peers import broker_channels
from kraft.peers.broker_channels import IDLE_S, BrokerChannels
from kraft.wire.api_keys import ApiKey
from tests.support.virtual_loop import run_virtually

OTHER = 2
TIMEOUT_S, ANSWERED_S = 60.0, 0.001
DROPPED_S = 30.0
"""A firewall forgets what is idle for that long."""


class Client:
    """One connection, behind such a firewall. It waits for one answer at a time."""

    def __init__(self) -> None:
        self.connected, self.is_waiting = True, False
        self.answer_s = ANSWERED_S
        self._moved_at = asyncio.get_running_loop().time()

    async def request(self, api_key: ApiKey, version: int, fields: Any, *, timeout_s: float) -> str:
        return await self.exchange(api_key, version, (), timeout_s)

    async def exchange(self, api_key: ApiKey, version: int, body: Any, timeout_s: float) -> str:
        loop = asyncio.get_running_loop()
        self.is_waiting = True
        is_dropped = loop.time() - self._moved_at >= DROPPED_S
        await asyncio.sleep(timeout_s if is_dropped else self.answer_s)
        if is_dropped or not self.connected:
            raise TimeoutError
        self._moved_at = loop.time()
        self.is_waiting = False
        return "answered"

    def close(self) -> None:
        self.connected = False

    cut_off = close


def with_channels(
    monkeypatch: pytest.MonkeyPatch, test: Callable[[BrokerChannels, list[Client]], Coroutine[Any, Any, None]]
) -> None:
    """`test` is given the connections that are made, as well."""
    made: list[Client] = []

    async def dial(*_: Any, timeout_s: float) -> Client:
        made.append(Client())
        return made[-1]

    monkeypatch.setattr(broker_channels, "dial", dial)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        channels = BrokerChannels(loop, lambda broker_id: Address("h", broker_id), "1")
        await test(channels, made)
        channels.close()
        assert not any(each.connected for each in made)

    run_virtually(run())


@pytest.mark.parametrize("method", ["ask", "exchange"])
def test_a_connection_that_was_idle_is_made_anew(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's CreateTopics, sent on to the controller after a quiet minute, got REQUEST_TIMED_OUT."""

    async def test(channels: BrokerChannels, made: list[Client]) -> None:
        ask, loop = getattr(channels, method), asyncio.get_running_loop()
        for pause_s, connections in (
            (0.0, 1),
            (IDLE_S - 1, 1),
            (IDLE_S - 1, 1),
            (IDLE_S + 1, 2),
            (DROPPED_S, 3),
        ):
            await asyncio.sleep(pause_s)
            began = loop.time()
            assert await ask(OTHER, ApiKey.ENVELOPE, 0, {}, TIMEOUT_S) == "answered"
            assert loop.time() - began < 1
            assert len(made) == connections
        assert [each.connected for each in made] == [False, False, True]

    with_channels(monkeypatch, test)


def test_what_takes_long_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes meanwhile waits behind it, and ends nothing."""

    async def test(channels: BrokerChannels, made: list[Client]) -> None:
        await channels.ask(OTHER, ApiKey.ENVELOPE, 0, {}, TIMEOUT_S)
        made[0].answer_s = IDLE_S * 3
        first = asyncio.ensure_future(channels.ask(OTHER, ApiKey.ENVELOPE, 0, {}, TIMEOUT_S))
        await asyncio.sleep(IDLE_S * 2)
        second = asyncio.ensure_future(channels.ask(OTHER, ApiKey.ENVELOPE, 0, {}, TIMEOUT_S))
        assert await first == await second == "answered"  # type: ignore[comparison-overlap]
        assert len(made) == 1

    with_channels(monkeypatch, test)


def test_all_that_find_an_idle_connection_wait_for_one_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(channels: BrokerChannels, made: list[Client]) -> None:
        await channels.ask(OTHER, ApiKey.ENVELOPE, 0, {}, TIMEOUT_S)
        await asyncio.sleep(IDLE_S + 1)
        await asyncio.gather(*(channels.ask(OTHER, ApiKey.ENVELOPE, 0, {}, TIMEOUT_S) for _ in range(3)))
        assert len(made) == 2

    with_channels(monkeypatch, test)


def test_a_request_that_was_given_up_keeps_no_idle_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client had gone. All that came later was sent where the network had dropped everything."""
    monkeypatch.setattr(broker_channels, "IDLE_S", -1.0)  # at once
    connections: list[asyncio.BaseTransport] = []
    heard = asyncio.Event()

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self._transport: Any = transport
            self._is_dropped = not connections
            connections.append(transport)

        def data_received(self, data: bytes) -> None:
            heard.set()
            if not self._is_dropped:
                self._transport.write(struct.pack(">i", 6) + data[8:12] + b"\0\7")

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Server, "127.0.0.1", 0)
        address = Address(*server.sockets[0].getsockname())
        channels = BrokerChannels(loop, lambda _: address, "1")

        def ask() -> asyncio.Task[memoryview]:
            asked = channels.exchange(OTHER, ApiKey.HEARTBEAT, 0, (b"",), 10.0)
            return asyncio.ensure_future(asked)

        given_up = ask()
        await heard.wait()
        given_up.cancel()
        assert await ask() == b"\0\7"
        assert len(connections) == 2
        channels.close()
        server.close()
        for each in connections:
            each.close()

    asyncio.run(run())
