"""A client that means harm, at a node that runs: it stays up, as small as it was, and serves everybody else.

Each API in each version, each field at its bounds and beyond; of the APIs that are ours, what no node sends.
Three times the same requests: from a super user, from a user who has no rights, from somebody who has not
logged in. KRAFT_SEED chooses which of all requests `make test` sends; `make test-long` sends them all.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final
from uuid import UUID

import pytest

from kraft.api.request_context import Role
from kraft.api.table import ROWS
from kraft.local.free_ports import HOST
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage, Message, decode_response, encode_request
from kraft.wire.header import request_header, response_body
from kraft.wire.schemas import versions_of
from metadata_quorum.foundation.errors import ErrorCode
from tests.robustness.live_node import MIB, TOPIC, LiveNode
from tests.robustness.nodes import CLUSTER_ID, NODE_ID
from tests.support.clients.hostile_own_apis import of_brokers, of_controllers
from tests.support.clients.hostile_requests import (
    VICTIM,
    HostileRequest,
    damaged,
    full_requests,
    hostile_requests,
)
from tests.support.clients.wire_client import Wire
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.row("P7", "C9"), pytest.mark.stall_ms(50)]

SEED: Final = int(os.environ.get("KRAFT_SEED", "1"))
PIPELINED: Final = 10_000
"""Served in one turn of the loop they take a second."""
CONNECTIONS: Final = 24
DEAF: Final = 400
FILLED: Final = 60_000
"""Records, of a kilobyte each: more than one fetch may have."""

GROWTH_BYTES: Final = 64 * MIB
FULL_AT_ONCE: Final = 2
FULL_GROWTH_BYTES: Final = 512 * MIB
"""Twice what a listener's clients may make it hold: as much again may be in answers, and not all that was is
given back to the system."""

Served = list[tuple[ApiKey, int]]
"""APIs, and versions of each."""


def _served(role: Role) -> Served:
    return [
        (row.key, version)
        for row in ROWS.values()
        if role in row.listeners
        for version in range(row.min_version, row.max_version + 1)
        if version in versions_of(row.key)
    ]


SERVED: Final = _served(Role.BROKER)


class Hostile:
    """Sends what it is given, over a few connections at a time."""

    def __init__(self, port: int, *, login: bool) -> None:
        self.port = port
        self.login = login
        self.connections = CONNECTIONS
        self.outcomes: Counter[str] = Counter()
        self.bugs: list[HostileRequest] = []
        """What was answered with UNKNOWN_SERVER_ERROR: Kafka's answers are definite."""
        self.silent: list[HostileRequest] = []

    def send(self, requests: Sequence[HostileRequest]) -> None:
        async def all_of_them() -> None:
            shares = [requests[start :: self.connections] for start in range(self.connections)]
            await asyncio.gather(*(self._send(share) for share in shares))

        asyncio.run(all_of_them())

    async def _send(self, requests: Sequence[HostileRequest]) -> None:
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        for request in requests:
            streams = streams or await self._connect()
            try:
                goes_on = await asyncio.wait_for(self._talk(*streams, request), PATIENCE_S)
            except TimeoutError:
                if "max_wait_ms" not in request.what:  # which says how long to be silent
                    self.silent.append(request)
                goes_on = False
            except (asyncio.IncompleteReadError, ConnectionError):
                self.outcomes["closed"] += 1
                goes_on = False
            if not goes_on:
                streams[1].close()
                streams = None
        if streams is not None:
            streams[1].close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(HOST, self.port)
        if self.login:
            for key, body in (
                (ApiKey.SASL_HANDSHAKE, b"\0\5PLAIN"),
                (ApiKey.SASL_AUTHENTICATE, b"\0\0\0\x0c\0anna\0secret"),
            ):
                writer.write(_framed(key, 1, 0, body))
                await _frame(reader)
        return reader, writer

    async def _talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: HostileRequest
    ) -> bool:
        """Whether the connection is still good: what comes behind the request is answered, too."""
        writer.write(_framed(request.api_key, request.version, 1, request.body))
        writer.write(_framed(ApiKey.API_VERSIONS, 0, 2, b""))
        answer = await _frame(reader)
        if _correlation_id(answer) == 1:
            self._judge(request, answer)
            answer = await _frame(reader)
        else:
            self.outcomes["not answered"] += 1  # a produce request without acks
        assert _correlation_id(answer) == 2, request
        return True

    def _judge(self, request: HostileRequest, answer: bytes) -> None:
        self.outcomes["answered"] += 1
        if not versions_of(request.api_key):
            return  # of an API of ours
        at = response_body(request.api_key, request.version, memoryview(answer))
        try:
            message = decode_response(request.api_key, request.version, answer, at)
        except MalformedMessage:
            if request.api_key != ApiKey.API_VERSIONS:  # which may answer in version 0
                raise
            return
        if ErrorCode.UNKNOWN_SERVER_ERROR in set(_error_codes(message)):
            self.bugs.append(request)


def _framed(api_key: ApiKey, version: int, correlation_id: int, body: bytes) -> bytes:
    frame = request_header(api_key, version, correlation_id, "hostile") + body
    return struct.pack(">i", len(frame)) + frame


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(*struct.unpack(">i", await reader.readexactly(4)))


def _correlation_id(answer: bytes) -> int:
    return int.from_bytes(answer[:4], "big")


def _error_codes(message: Message) -> Iterator[int]:
    for name, value in vars(message).items():
        if name.endswith("error_code"):
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                yield from _error_codes(each)


def _victim(live: LiveNode) -> UUID:
    """The topic that suffers, made again where it has been deleted."""
    with Wire() as wire:
        topic = {"name": VICTIM, "num_partitions": 1, "replication_factor": 1}

        def topic_id() -> UUID | None:
            wire.ask(live.port, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=5000)
            found = wire.ask(live.port, ApiKey.METADATA, 12, topics=[{"name": VICTIM}]).topics[0]
            return None if found.error_code else found.topic_id

        made = wait_until(topic_id, "the topic is made")
    assert made is not None
    return made


def _requests(topic_id: UUID, share: float, served: Served) -> list[HostileRequest]:
    """That share of all, in an order that the seed chooses."""
    chance = random.Random(SEED)
    chosen = [
        request
        for key, version in served
        for request in hostile_requests(key, version, topic_id)
        if chance.random() < share
    ]
    chance.shuffle(chosen)
    return chosen


def _damaged(topic_id: UUID, count: int, served: Served) -> list[HostileRequest]:
    """Plausible requests with random damage."""
    chance = random.Random(SEED)
    whole = [next(iter(hostile_requests(key, version, topic_id))) for key, version in served]
    return [damaged(chance.choice(whole), chance) for _ in range(count)]


def _attack(live: LiveNode, hostile: Hostile, share: float, served: Served = SERVED) -> None:
    rounds = max(1, int(20 * share))
    live.serves_stock_clients()
    before = live.rss
    number = 0
    while number < rounds:
        requests = _requests(_victim(live), share, served)[number::rounds]
        hostile.send(requests + _damaged(_victim(live), len(requests) // 3, served))
        assert live.process.is_running(), live.node.said
        number += 1
    _judge(live, hostile, before)


def _judge(live: LiveNode, hostile: Hostile, before: int, growth: int = GROWTH_BYTES) -> None:
    """`before`: how large the node was, in bytes; `growth`: by how much it may be larger now."""
    live.serves_stock_clients()
    print(hostile.outcomes, f"{(live.rss - before) / MIB:.1f} MiB more", hostile.silent[:20])
    assert not hostile.bugs, f"{len(hostile.bugs)}: {hostile.bugs[:20]}"
    assert not hostile.silent, f"{len(hostile.silent)}: {hostile.silent[:20]}"
    assert live.rss - before < growth


def _port(live: LiveNode, place: int) -> int:
    """Of the listener at that place."""
    return int(live.node.values["listeners"].split(",")[place].rpartition(":")[2])


def _whose(live: LiveNode, who: str) -> Hostile:
    secured = _port(live, 1)
    return Hostile(live.port if who == "super user" else secured, login=who == "user")


WHO: Final = ["super user", "user", "stranger"]


@pytest.mark.parametrize("who", WHO)
def test_some_of_all_requests(live: LiveNode, who: str):
    _attack(live, _whose(live, who), 0.01)


def test_some_of_all_requests_at_the_controllers_listener(live: LiveNode):
    _attack(live, Hostile(_port(live, 2), login=False), 0.02, _served(Role.CONTROLLER))


@pytest.mark.parametrize("who", WHO)
def test_requests_of_the_apis_that_are_ours(live: LiveNode, who: str):
    hostile, requests = _whose(live, who), list(of_brokers(VICTIM, _victim(live)))
    before = live.rss
    hostile.send(requests)
    _judge(live, hostile, before)


def test_raft_frames_of_strangers(live: LiveNode):
    hostile, before = Hostile(_port(live, 2), login=False), live.rss
    hostile.send(list(of_controllers(CLUSTER_ID, NODE_ID)))
    _judge(live, hostile, before)


def _full(live: LiveNode, hostile: Hostile, who: str, share: float, size: int, growth: int) -> None:
    """The loop must not stand still over them, whatever they are answered with."""
    chance = random.Random(SEED)
    topic_id = _victim(live)
    newest = dict(SERVED)  # by API
    requests = [
        request
        for key, version in newest.items()
        for distinct in (False, True)
        if not (distinct and who == "super user")  # who may have all these topics
        for request in full_requests(key, version, topic_id, size, distinct=distinct)
        if chance.random() < share
    ]
    before = live.rss
    hostile.send(requests)
    _judge(live, hostile, before, growth)


@pytest.mark.parametrize("who", WHO[:2])
def test_some_arrays_full_of_the_least(live: LiveNode, who: str):
    _full(live, _whose(live, who), who, 0.05, 60_000, GROWTH_BYTES)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("who", WHO[:2])
def test_all_arrays_full_of_the_least(live: LiveNode, who: str):
    """Some hundred thousand items in each, as many as a request may have."""
    hostile = _whose(live, who)
    hostile.connections = FULL_AT_ONCE
    _full(live, hostile, who, 1.0, MIB, FULL_GROWTH_BYTES)


REPEATED: Final = (
    # what is described, and so many times the same
    (ApiKey.DESCRIBE_CONFIGS, 4, lambda n: {"resources": [{"resource_type": 4, "resource_name": "7"}] * n}),
    (ApiKey.DESCRIBE_GROUPS, 5, lambda n: {"groups": ["g"] * n}),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 0, lambda n: {"group_ids": ["g"] * n}),
    (ApiKey.OFFSET_FETCH, 8, lambda n: {"groups": [{"group_id": "g", "topics": None}] * n}),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, lambda n: {"transactional_ids": ["t"] * n}),
    (ApiKey.DESCRIBE_PRODUCERS, 0, lambda n: {"topics": [{"name": TOPIC, "partition_indexes": [0] * n}]}),
    (ApiKey.METADATA, 12, lambda n: {"topics": [{"name": TOPIC}] * n}),
    (ApiKey.DESCRIBE_LOG_DIRS, 1, lambda n: {"topics": [{"topic": TOPIC, "partitions": [0]}] * n}),
)


def test_what_is_named_many_times_is_described_once(live: LiveNode):
    """A few bytes each time would ask for gigabytes."""

    for key, version, fields in REPEATED:
        once, often = (_answer_bytes(live.port, key, version, fields(count)) for count in (1, 1000))
        assert often == once, key


def test_offsets_of_very_many_partitions(live: LiveNode):
    topics = [{"name": VICTIM, "partition_indexes": list(range(200_000))}]
    assert _answer_bytes(live.port, ApiKey.OFFSET_FETCH, 5, {"group_id": "g", "topics": topics}) > MIB
    live.serves_stock_clients()


def _answer_bytes(port: int, key: ApiKey, version: int, fields: dict[str, Any]) -> int:
    async def ask() -> int:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(_framed(key, version, 1, encode_request(key, version, fields)))
        answer = await _frame(reader)
        writer.close()
        return len(answer)

    return asyncio.run(ask())


@pytest.mark.parametrize("who", WHO[:2])
def test_fetches_of_very_many_topics_without_partitions(live: LiveNode, who: str):
    versions = [version for key, version in SERVED if key == ApiKey.FETCH]
    hostile = _whose(live, who)
    before = live.rss
    for version in (versions[0], versions[-1]):
        hostile.send(list(full_requests(ApiKey.FETCH, version, _victim(live), MIB)))
    _judge(live, hostile, before)


@pytest.mark.parametrize("who", ["super user", "stranger"])
def test_very_many_small_requests_at_once(live: LiveNode, who: str):
    async def pipelined() -> None:
        reader, writer = await asyncio.open_connection(HOST, _whose(live, who).port)
        writer.write(b"".join(_framed(ApiKey.API_VERSIONS, 0, number, b"") for number in range(PIPELINED)))
        for number in range(PIPELINED):
            assert _correlation_id(await _frame(reader)) == number
        writer.close()

    asyncio.run(pipelined())
    live.serves_stock_clients()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("who", WHO)
def test_all_requests(live: LiveNode, who: str):
    _attack(live, _whose(live, who), 1.0)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_all_requests_at_the_controllers_listener(live: LiveNode):
    _attack(live, Hostile(_port(live, 2), login=False), 1.0, _served(Role.CONTROLLER))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_consumers_that_read_nothing(live: LiveNode):
    """As many as like ask for all there is, again and again."""
    live.fill(FILLED)
    before = live.rss
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 2**31 - 1}
    fields = {
        "topics": [{"topic": TOPIC, "partitions": [partition]}],
        "max_bytes": 2**31 - 1,
        "replica_id": -1,
    }
    frame = _framed(ApiKey.FETCH, 4, 1, encode_request(ApiKey.FETCH, 4, fields))
    with ExitStack() as closing:
        for _ in range(DEAF):
            client = closing.enter_context(socket.create_connection((HOST, live.port)))
            client.sendall(frame * 4)
        live.serves_stock_clients()
        assert live.rss - before < GROWTH_BYTES
    live.serves_stock_clients()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.stall_ms(100)
def test_long_requests_of_many_connections_at_once(live: LiveNode):
    """Small enough to be let in whatever is there already; few are decoded at a time."""
    names = [f"none{number:05}" for number in range(4000)]
    fields = {"resources": [{"resource_type": 2, "resource_name": name} for name in names]}
    frame = _framed(ApiKey.DESCRIBE_CONFIGS, 4, 1, encode_request(ApiKey.DESCRIBE_CONFIGS, 4, fields))
    before = most = live.rss
    with ExitStack() as closing:
        clients = [closing.enter_context(socket.create_connection((HOST, live.port))) for _ in range(DEAF)]
        for client in clients:
            client.sendall(frame)
        for client in clients[:100]:
            assert client.recv(4)
            most = max(most, live.rss)
    live.serves_stock_clients()
    assert most - before < GROWTH_BYTES + DEAF * len(frame)
