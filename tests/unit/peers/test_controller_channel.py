"""Which voters get requests: of ours all, of Apache Kafka's the active one alone; and how they are found."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from kraft.net.client import Address
from kraft.peers import broker_channels
from kraft.peers.controller_channel import LONG_BYTES, ControllerChannel, Outage
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import encode_response
from metadata_quorum.foundation.errors import ErrorCode

OURS, KAFKAS = (ApiKey.FETCH, ApiKey.BROKER_HEARTBEAT), (ApiKey.FETCH, ApiKey.BROKER_HEARTBEAT, ApiKey.VOTE)
ACTIVE = 2


def created(code: ErrorCode) -> dict[str, Any]:
    return {"name": "t", "topic_id": UUID(int=1), "error_code": int(code), "error_message": None,
            "topic_config_error_code": 0, "num_partitions": 1, "replication_factor": 1,
            "configs": []}  # fmt: skip


class Controllers:
    """Voters 1, 2 and 3 on sockets of their own; they answer ApiVersions and heartbeats at once, long
    envelopes and creations when they are told to, and all of one connection in order, as our servers do."""

    def __init__(self, api_keys: tuple[ApiKey, ...]) -> None:
        self._rows = [{"api_key": key, "min_version": 0, "max_version": 17} for key in api_keys]
        self.heartbeats: list[int] = []
        self.connections: list[tuple[int, asyncio.StreamWriter]] = []
        self.envelopes: asyncio.Queue[int] = asyncio.Queue()
        self.answers_long = asyncio.Event()
        self.creations: list[int] = []
        self.lost_creations = 0
        self.active = ACTIVE
        self.silent: set[int] = set()
        self._servers: list[asyncio.Server] = []

    async def start(self) -> dict[int, Address]:
        addresses = {}
        for voter in (1, 2, 3):
            server = await asyncio.start_server(self._serve(voter), "127.0.0.1", 0)
            self._servers.append(server)
            addresses[voter] = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        return addresses

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for _, writer in self.connections:
            writer.close()

    def _serve(self, voter: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections.append((voter, writer))
            while prefix := await reader.read(4):
                frame = await reader.readexactly(struct.unpack(">i", prefix)[0])
                api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
                if voter in self.silent:
                    continue
                answer = struct.pack(">i", correlation_id)
                if api_key == ApiKey.API_VERSIONS:
                    fields = {"error_code": 0, "api_keys": self._rows}
                    answer += encode_response(ApiKey.API_VERSIONS, version, fields)
                elif api_key == ApiKey.ENVELOPE:
                    self.envelopes.put_nowait(voter)
                    if len(frame) > LONG_BYTES:
                        await self.answers_long.wait()
                    fields = {"error_code": 0, "response_data": b"done"}
                    answer += b"\0" + encode_response(ApiKey.ENVELOPE, version, fields)
                elif api_key == ApiKey.CREATE_TOPICS:
                    self.creations.append(voter)
                    if len(self.creations) <= self.lost_creations:
                        continue
                    await self.answers_long.wait()
                    code = ErrorCode.NONE if voter == self.active else ErrorCode.NOT_CONTROLLER
                    fields = {"throttle_time_ms": 0, "topics": [created(code)]}
                    answer += b"\0" + encode_response(ApiKey.CREATE_TOPICS, version, fields)
                else:
                    self.heartbeats.append(voter)
                    code = ErrorCode.NONE if voter == self.active else ErrorCode.NOT_CONTROLLER
                    fields = {"error_code": int(code), "is_caught_up": True, "is_fenced": False,
                              "should_shut_down": False}  # fmt: skip
                    answer += b"\0" + encode_response(ApiKey.BROKER_HEARTBEAT, version, fields)
                writer.write(struct.pack(">i", len(answer)) + answer)
            writer.close()

        return serve


HEARTBEAT = {"broker_id": 4, "broker_epoch": 1, "current_metadata_offset": 1, "want_fence": False,
             "want_shut_down": False, "offline_log_dirs": []}  # fmt: skip


def started(
    voters: dict[int, Address], attempt_timeout_s: float = 2.0
) -> tuple[ControllerChannel, asyncio.Queue[int]]:
    """With the voters that it introduces itself to."""
    channel = ControllerChannel(
        asyncio.get_running_loop(), voters, random.Random(7), client_id="4",
        request_timeout_s=10, attempt_timeout_s=attempt_timeout_s, retry_backoff_s=0.01,
    )  # fmt: skip
    introduced: asyncio.Queue[int] = asyncio.Queue()
    channel.on_connected = introduced.put_nowait
    channel.start()
    return channel, introduced


@pytest.mark.parametrize("api_keys", [OURS, KAFKAS])
def test_only_who_takes_it_well_is_asked(api_keys: tuple[ApiKey, ...]) -> None:
    async def run() -> None:
        controllers = Controllers(api_keys)
        channel, introduced = started(await controllers.start())
        assert {await introduced.get() for _ in range(3)} == {1, 2, 3}
        of_kafka = api_keys is KAFKAS
        assert [channel.may_ask(voter) for voter in (1, 2, 3)] == [not of_kafka] * 3
        asking = asyncio.ensure_future(channel.request(ApiKey.BROKER_HEARTBEAT, 1, HEARTBEAT))
        if of_kafka:
            await asyncio.sleep(0)  # the request looks around, and finds nobody to ask
            channel.learn_active(ACTIVE)
            channel.learn_active(ACTIVE)
            channel.learn_active(9)  # no voter
            assert (introduced.get_nowait(), introduced.empty()) == (ACTIVE, True)
        await asking
        assert (channel.active, controllers.heartbeats[-1]) == (ACTIVE, ACTIVE)
        assert controllers.heartbeats == ([ACTIVE] if of_kafka else [1, ACTIVE])
        assert [channel.may_ask(voter) for voter in (1, 2, 3)] == [not of_kafka, True, not of_kafka]
        await channel.close()
        controllers.close()

    asyncio.run(run())


@pytest.mark.parametrize("api_keys", [OURS, KAFKAS])
def test_voters_are_learned_by_who_knows_bootstrap_servers_alone(api_keys: tuple[ApiKey, ...]) -> None:
    async def run() -> None:
        controllers = Controllers(api_keys)
        addresses = await controllers.start()
        channel, introduced = started({-2: Address("127.0.0.1", 1), -3: addresses[1]})
        assert await introduced.get() == -3
        assert not channel.may_ask(-3)
        channel.learn_address(ACTIVE, addresses[3])  # where it was
        assert await introduced.get() == ACTIVE
        channel.learn_address(ACTIVE, addresses[ACTIVE])
        assert await introduced.get() == ACTIVE
        channel.learn_active(ACTIVE)
        await channel.request(ApiKey.BROKER_HEARTBEAT, 1, HEARTBEAT)
        assert controllers.heartbeats == [ACTIVE]
        await channel.close()
        named, _ = started(addresses)
        named.learn_address(7, addresses[1])
        assert named.voters == (1, 2, 3)
        await named.close()
        controllers.close()

    asyncio.run(run())


SHORT = {"request_data": b"a client's", "request_principal": b"", "client_host_address": bytes(4)}
CREATION = {
    "topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1, "configs": []}],
    "timeout_ms": 1000, "validate_only": False,
}  # fmt: skip
LONG = {**SHORT, "request_data": bytes(LONG_BYTES + 1)}


@asynccontextmanager
async def met(attempt_timeout_s: float = 2.0) -> AsyncIterator[tuple[Controllers, ControllerChannel]]:
    """A channel that knows the active one."""
    controllers = Controllers(OURS)
    channel, introduced = started(await controllers.start(), attempt_timeout_s)
    assert {await introduced.get() for _ in range(3)} == {1, 2, 3}
    await channel.request(ApiKey.BROKER_HEARTBEAT, 1, HEARTBEAT)
    assert channel.active == ACTIVE
    yield controllers, channel
    await channel.close()
    controllers.close()


def test_what_is_short_waits_behind_no_long_request_of_a_client() -> None:
    """One CreateAcls of 40,000 entries held up all else for 13 s: the broker was fenced."""

    async def run() -> None:
        async with met() as (controllers, channel):
            before = len(controllers.connections)
            asking = [asyncio.ensure_future(channel.request(ApiKey.ENVELOPE, 0, LONG)) for _ in range(3)]
            assert await controllers.envelopes.get() == ACTIVE
            for _ in range(3):
                await channel.ask(ACTIVE, ApiKey.BROKER_HEARTBEAT, 1, HEARTBEAT, timeout_s=10)
            for _ in range(3):
                await channel.request(ApiKey.ENVELOPE, 0, SHORT)
            assert not any(each.done() for each in asking)
            assert channel.on_connected is not None
            introduced: list[int] = []
            channel.on_connected = introduced.append
            controllers.answers_long.set()
            assert {bytes((await each).response_data) for each in asking} == {b"done"}
            made = [voter for voter, _ in controllers.connections[before:]]
            assert made == [ACTIVE, ACTIVE], "one for each kind"
            assert introduced == []
            controllers.connections[-1][1].close()  # it was idle
            await asyncio.sleep(0)
            await channel.request(ApiKey.ENVELOPE, 0, SHORT)
            assert channel.active == ACTIVE

    asyncio.run(run())


def test_nothing_waits_behind_topics_that_are_created_on_demand() -> None:
    """A hundred at once, for one Metadata request: with 300 partitions each they took a second and a half."""

    async def run() -> None:
        async with met() as (controllers, channel):
            creating = [
                asyncio.ensure_future(channel.request(ApiKey.CREATE_TOPICS, 7, CREATION)) for _ in range(3)
            ]
            await channel.ask(ACTIVE, ApiKey.BROKER_HEARTBEAT, 1, HEARTBEAT, timeout_s=10)
            await channel.request(ApiKey.ENVELOPE, 0, SHORT)
            assert not any(each.done() for each in creating)
            controllers.answers_long.set()
            await asyncio.gather(*creating)

    asyncio.run(run())


def test_a_controller_that_creates_slowly_is_still_the_active_one() -> None:
    async def run() -> None:
        async with met(attempt_timeout_s=0.1) as (controllers, channel):
            controllers.lost_creations = 2
            controllers.answers_long.set()
            await channel.request(ApiKey.CREATE_TOPICS, 7, CREATION)
            assert controllers.creations == [ACTIVE] * 3, "nobody else was asked"

    asyncio.run(run())


def test_a_topic_is_created_by_the_active_controller_whoever_was_it_before() -> None:
    async def run() -> None:
        async with met() as (controllers, channel):
            controllers.active = 3
            controllers.answers_long.set()
            answer = await channel.request(ApiKey.CREATE_TOPICS, 7, CREATION)
            assert [each.error_code for each in answer.topics] == [ErrorCode.NONE]
            assert (controllers.creations, channel.active) == ([ACTIVE, 1, ACTIVE, 3], 3)

    asyncio.run(run())


def test_a_connection_for_envelopes_is_made_anew_only_where_nobody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_channels, "IDLE_S", -1.0)

    async def run() -> None:
        async with met() as (controllers, channel):
            before = len(controllers.connections)
            asking = [asyncio.ensure_future(channel.request(ApiKey.ENVELOPE, 0, LONG))]
            assert await controllers.envelopes.get() == ACTIVE
            asking.append(asyncio.ensure_future(channel.request(ApiKey.ENVELOPE, 0, LONG)))
            controllers.answers_long.set()
            assert {bytes((await each).response_data) for each in asking} == {b"done"}
            assert len(controllers.connections) == before + 1
            await channel.request(ApiKey.ENVELOPE, 0, LONG)
            assert len(controllers.connections) == before + 2

    asyncio.run(run())


def test_a_clients_request_does_not_wait_for_a_controller_that_is_gone() -> None:
    async def run() -> None:
        async with met() as (controllers, channel):
            (link,) = [writer for voter, writer in controllers.connections if voter == ACTIVE]
            asking = asyncio.ensure_future(channel.request(ApiKey.ENVELOPE, 0, LONG))
            assert await controllers.envelopes.get() == ACTIVE
            link.close()
            assert await controllers.envelopes.get() == 1  # the next one that is connected
            controllers.answers_long.set()
            assert bytes((await asking).response_data) == b"done"

    asyncio.run(run())


def test_where_the_active_one_is_silent_the_others_are_asked() -> None:
    """It may be paused, and its connections open for as long."""

    async def run() -> None:
        async with met(attempt_timeout_s=0.1) as (controllers, channel):
            controllers.silent.add(ACTIVE)
            controllers.active = 3
            await channel.request(ApiKey.BROKER_HEARTBEAT, 1, HEARTBEAT)
            assert channel.active == 3

    asyncio.run(run())


def test_a_controller_that_is_not_reached_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    outage, address = Outage(), Address("nowhere", 9093)
    unknown = OSError(-2, "Name or service not known")
    for now in (0.0, 4.9):
        outage.failed(address, unknown, now)
    assert not caplog.messages, "it may be starting"
    for now in (5.0, 6.0, 100.0):
        outage.failed(address, unknown, now)
    assert caplog.messages == ["the controller at nowhere:9093 is not reached: Name or service not known"]
    outage.over()
    outage.failed(address, TimeoutError(), 200.0)
    outage.failed(address, TimeoutError(), 205.0)
    assert caplog.messages[1:] == ["the controller at nowhere:9093 is not reached: it does not answer"]
