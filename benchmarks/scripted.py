"""Three nodes in this process serve a fixed script of requests: what `make bench-guard` counts.

    python -m benchmarks.scripted --bursts 64 --fetches 256

Everything is as in three processes (framing, dispatch, log, replication, purgatory, Raft beneath), but that
connections are memory and the clock is virtual (memory_loop.py), so that every run does the same. Frames are
made before the first is sent, as many in every run.
"""

from __future__ import annotations

import asyncio
import gc
import random
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.memory_loop import MemoryLoop
from kraft.config.node_config import Config
from kraft.local.layout import nodes_from, properties_of
from kraft.local.security import PLAINTEXT
from kraft.net.client import Address, PeerClient
from kraft.node.environment import NodeEnvironment
from kraft.node.node import Node
from kraft.node.process import GC_THRESHOLDS
from kraft.storage.formatter import format_storage, read_storage
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import encode_request
from kraft.wire.header import request_header
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.supervision import ErrorBoundary

NODES: Final = 3
PARTITIONS: Final = 18
BURST: Final = 10
"""Produce requests that are under way together on each connection, one to each node."""
TOPIC: Final = "script"
RECORD_BYTES: Final = 100
MOST_BURSTS: Final = 128
MOST_FETCHES: Final = 512
WARM_UP_BURSTS: Final = 8
FETCHED_BYTES: Final = 1000
"""Of each partition in each fetch: a few batches."""
PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12
_EPOCH_MS: Final = 1_700_000_000_000
_LENGTH: Final = struct.Struct(">i")
_SESSION_ID_AT: Final = 15  # length, correlation id, tags, throttle time, error code


class Client(asyncio.Protocol):
    """Sends frames made in advance, and counts the answers."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._awaited = 0
        self._done: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def send(self, frames: Sequence[bytes]) -> asyncio.Future[bytes]:
        """A future of the last answer."""
        self._awaited = len(frames)
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(b"".join(frames))
        return self._done

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            answer = bytes(self._received[:end])
            del self._received[:end]
            self._awaited -= 1
            if self._awaited == 0 and self._done is not None:
                self._done.set_result(answer)


def framed(api_key: ApiKey, version: int, fields: dict[str, Any]) -> bytes:
    body = request_header(api_key, version, 1, "script") + encode_request(api_key, version, fields)
    return _LENGTH.pack(len(body)) + body


def produce_frame(partition: int, sequence: int) -> bytes:
    """One record, of an idempotent producer."""
    record = Record(-1, _EPOCH_MS, None, bytes(RECORD_BYTES))
    batch = encode_batch([record], producer_id=partition, producer_epoch=0, base_sequence=sequence)
    topic = {"name": TOPIC, "partition_data": [{"index": partition, "records": batch}]}
    return framed(ApiKey.PRODUCE, PRODUCE_VERSION, {"acks": -1, "timeout_ms": 30_000, "topic_data": [topic]})


def fetch_frame(session_id: int, epoch: int, partitions: Sequence[int], offset: int) -> bytes:
    """Of a consumer's session, all of whose partitions go on to that offset."""
    wanted = [
        {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": FETCHED_BYTES,
        }
        for partition in partitions
    ]
    fields = {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1,
        "session_id": session_id, "session_epoch": epoch, "rack_id": "", "forgotten_topics_data": [],
        "topics": [{"topic": TOPIC, "partitions": wanted}],
    }  # fmt: skip
    return framed(ApiKey.FETCH, FETCH_VERSION, fields)


class Cluster:
    """Three combined nodes on one loop, with their files in a directory."""

    def __init__(self, loop: MemoryLoop, directory: Path) -> None:
        self._loop = loop
        boundary = ErrorBoundary(_end, loop.time)
        loop.set_exception_handler(boundary.loop_error)
        places = nodes_from(NODES, 9092)
        rng, disk = random.Random(1), OsDisk()
        self.addresses = [Address("127.0.0.1", place.client_port) for place in places]
        self.nodes: list[Node] = []
        for place in places:
            home = directory / f"node-{place.id}"
            home.mkdir()
            config = Config.from_properties(properties_of(place, places, home / "data", PLAINTEXT))
            format_storage(disk, config, "c" * 22, rng, new_cluster=True)
            environment = NodeEnvironment(loop, disk, random.Random(place.id), self._now_ms, boundary)
            self.nodes.append(Node(config, read_storage(disk, config), environment))

    def _now_ms(self) -> int:
        return _EPOCH_MS + int(self._loop.time() * 1000)

    async def start(self) -> None:
        await asyncio.gather(*(node.start() for node in self.nodes))

    async def create_topic(self) -> dict[int, list[int]]:
        """The partitions that each node leads, by its place."""
        client = await PeerClient.connect(self._loop, self.addresses[0], "admin")
        topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": NODES}
        await client.request(ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 10_000})
        await asyncio.sleep(5)
        answer = await client.request(ApiKey.METADATA, 9, {"topics": [{"name": TOPIC}]})
        client.close()
        led: dict[int, list[int]] = {}
        for partition in answer.topics[0].partitions:
            assert len(partition.isr_nodes) == NODES, partition
            led.setdefault(partition.leader_id - 1, []).append(partition.partition_index)
        return {place: sorted(partitions) for place, partitions in sorted(led.items())}

    async def connect(self, place: int) -> Client:
        at = self.addresses[place]
        _, client = await self._loop.create_connection(Client, at.host, at.port)
        assert isinstance(client, Client)
        return client

    def log_ends(self) -> int:
        """Offsets that every replica of the script's topic has, all partitions together."""
        (records,) = {
            sum(node.broker_role.replica_manager.get(TOPIC, p).log.log_end_offset for p in range(PARTITIONS))
            for node in self.nodes
            if node.broker_role is not None
        }
        return records

    async def stop(self) -> None:
        await asyncio.gather(*(node.stop() for node in self.nodes))


def _end(error: BaseException) -> None:
    raise SystemExit(f"a node has ended: {error!r}")


async def produce(clients: dict[int, Client], frames: dict[int, list[bytes]], bursts: range) -> None:
    """The next burst begins when all requests of one are answered."""
    for burst in bursts:
        mine = slice(BURST * burst, BURST * (burst + 1))
        await asyncio.gather(*(clients[at].send(frames[at][mine]) for at in clients))


async def script(directory: Path, loop: MemoryLoop, bursts: int, fetches: int) -> tuple[float, float]:
    """CPU seconds of both parts."""
    cluster = Cluster(loop, directory)
    await cluster.start()
    led = await cluster.create_topic()
    clients = {place: await cluster.connect(place) for place in led}
    frames = {
        place: [
            produce_frame(partitions[i % len(partitions)], i // len(partitions))
            for i in range(BURST * (WARM_UP_BURSTS + MOST_BURSTS))
        ]
        for place, partitions in led.items()
    }
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    await produce(clients, frames, range(WARM_UP_BURSTS))
    began = time.process_time()
    await produce(clients, frames, range(WARM_UP_BURSTS, WARM_UP_BURSTS + bursts))
    produced = time.process_time()
    place, partitions = next(iter(led.items()))
    client = clients[place]
    opened = await client.send([fetch_frame(0, 0, partitions, 0)])
    (session_id,) = _LENGTH.unpack_from(opened, _SESSION_ID_AT)
    prepared = [fetch_frame(session_id, 1 + i, partitions, i % 32) for i in range(MOST_FETCHES)]
    fetching = time.process_time()
    for frame in prepared[:fetches]:
        answer = await client.send([frame])
        assert len(answer) > FETCHED_BYTES, answer
    fetched = time.process_time()
    assert cluster.log_ends() == NODES * BURST * (WARM_UP_BURSTS + bursts)
    await cluster.stop()
    return produced - began, fetched - fetching


def main(
    bursts: Annotated[int, typer.Option(max=MOST_BURSTS)] = MOST_BURSTS,
    fetches: Annotated[int, typer.Option(max=MOST_FETCHES)] = MOST_FETCHES,
) -> None:
    """Run the script once; prints the CPU time of each part, in seconds."""
    loop = MemoryLoop()
    with (
        tempfile.TemporaryDirectory(prefix="kraft-script-") as directory,
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        spent = runner.run(script(Path(directory), loop, bursts, fetches))
    sys.stdout.write("{:.6f} {:.6f}\n".format(*spent))


if __name__ == "__main__":
    typer.run(main)
