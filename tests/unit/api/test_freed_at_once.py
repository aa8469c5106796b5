"""What a request leaves behind is freed by counting references.

The collector of cycles runs seldom, and until it does a cycle keeps a whole answer. Three nodes on a loop in
memory, the collector off.
"""

from __future__ import annotations

import asyncio
import gc
import random
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from benchmarks.memory_loop import MemoryLoop
from benchmarks.scripted import PRODUCE_VERSION, TOPIC, Client, Cluster, fetch_frame, framed
from kraft.api.request_context import Role
from kraft.api.table import ROWS
from kraft.net.client import PeerClient
from kraft.wire.api_keys import ApiKey
from kraft.wire.header import request_header
from kraft.wire.schemas import versions_of
from metadata_quorum.foundation.batch import Record, encode_batch
from tests.support.clients.hostile_requests import HostileRequest, hostile_requests

SESSION_ID = struct.Struct(">i")
SESSION_ID_AT = 15
"""Behind length, correlation id, tags, throttle time and error code."""
LARGE_BYTES = 700_000
"""Of a batch: more than an answer copies at once, so that it is sent from its file."""

TOO_MANY_PARTITIONS = 2_000
METADATA_VERSION: Final = 12
"""With topic ids."""
SHARE: Final = 0.05
"""Of all hostile requests."""
ENDS_CLUSTERS: Final = {ApiKey.UNREGISTER_BROKER}
"""A broker that is no longer registered ends what it does, with cycles of its own."""


@contextmanager
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


@contextmanager
def cycles() -> Iterator[list[object]]:
    """All that is in some."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def left_in_cycles() -> Counter[str]:
    with cycles() as found:
        return Counter(type(each).__qualname__ for each in found)


def errors_in_cycles() -> list[str]:
    with cycles() as found:
        return [repr(each)[:200] for each in found if isinstance(each, BaseException)]


class Deaf(asyncio.Protocol):
    """A client that reads no answer."""


async def send_apart(cluster: Cluster, requests: Sequence[HostileRequest]) -> None:
    """Each on a connection of its own, which ends with it."""
    transports = []
    for each in requests:
        at = cluster.addresses[0]
        transport, _ = await asyncio.get_running_loop().create_connection(Deaf, at.host, at.port)
        frame = request_header(each.api_key, each.version, 1, "hostile") + each.body
        transport.write(struct.pack(">i", len(frame)) + frame)
        transports.append(transport)
    await asyncio.sleep(3)
    for transport in transports:
        transport.close()
    await asyncio.sleep(1)


def some_refused(topic_id: UUID) -> list[HostileRequest]:
    """Of the newest version of each API."""
    chance = random.Random(1)
    return [
        request
        for row in ROWS.values()
        if Role.BROKER in row.listeners and row.key not in ENDS_CLUSTERS and versions_of(row.key)
        for place, request in enumerate(hostile_requests(row.key, row.max_version, topic_id))
        if place == 0 or chance.random() < SHARE
    ]


def produce_frame(partition: int, acks: int, value: bytes) -> bytes:
    records = encode_batch([Record(-1, 1_700_000_000_000, None, value)])
    fields: dict[str, Any] = {
        "acks": acks,
        "timeout_ms": 10_000,
        "topic_data": [{"name": TOPIC, "partition_data": [{"index": partition, "records": records}]}],
    }
    return framed(ApiKey.PRODUCE, PRODUCE_VERSION, fields)


async def write_and_read(client: Client, partitions: list[int], value: bytes) -> None:
    for acks in (1, -1):
        await client.send([produce_frame(number, acks, value) for number in partitions])
    opened = await client.send([fetch_frame(0, 0, partitions, 0)])
    (session_id,) = SESSION_ID.unpack_from(opened, SESSION_ID_AT)
    for epoch in (1, 2):
        answer = await client.send([fetch_frame(session_id, epoch, partitions, 0)])
        assert len(answer) > len(value)


def run(path: Path, body: Callable[[Client, list[int]], Awaitable[None]]) -> None:
    loop = MemoryLoop()

    async def go() -> None:
        cluster = Cluster(loop, path)
        await cluster.start()
        try:
            place, partitions = next(iter((await cluster.create_topic()).items()))
            await body(await cluster.connect(place), partitions)
        finally:
            await cluster.stop()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(go())


@pytest.mark.row("C5")
@pytest.mark.parametrize("value", [b"small", bytes(LARGE_BYTES)], ids=["small", "large"])
def test_produces_and_fetches_leave_no_cycle(tmp_path: Path, value: bytes):
    """Large answers did: with 1 KiB records at full speed they were most of what a node took."""

    async def body(client: Client, partitions: list[int]) -> None:
        await write_and_read(client, partitions, value)  # what is made once
        with collector_off():
            await write_and_read(client, partitions, value)
            await asyncio.sleep(1)
            assert not left_in_cycles()

    run(tmp_path, body)


@pytest.mark.row("C9")
def test_a_request_that_ends_its_connection_leaves_no_cycle(tmp_path: Path):
    """Thirty frames of 40 MB, of nobody who had to log in, kept 1.2 GB."""

    async def body(client: Client, partitions: list[int]) -> None:
        too_many = fetch_frame(0, 0, range(TOO_MANY_PARTITIONS), 0)
        with collector_off():
            client.send([too_many])
            await asyncio.sleep(1)
            assert "managedbuffer" not in left_in_cycles(), "the frame is still there"

    run(tmp_path, body)


@pytest.mark.row("C9")
def test_what_is_refused_leaves_no_cycle(tmp_path: Path):
    """A list of errors in a frame that is in their tracebacks did: two hundred refused produces of 8 MB, of
    anybody, kept 1.5 GB."""
    loop = MemoryLoop()

    async def go() -> None:
        cluster = Cluster(loop, tmp_path)
        await cluster.start()
        try:
            await cluster.create_topic()
            asker = await PeerClient.connect(loop, cluster.addresses[0], "test")
            found = await asker.request(ApiKey.METADATA, METADATA_VERSION, {"topics": [{"name": TOPIC}]})
            requests = some_refused(found.topics[0].topic_id)
            with collector_off():
                await send_apart(cluster, requests)
                assert not errors_in_cycles()
        finally:
            await cluster.stop()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(go())
