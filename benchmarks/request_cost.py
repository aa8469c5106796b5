"""What one produce request costs the cluster in CPU time: `python -m benchmarks.request_cost`.

Requests of one record are sent over one connection to each node, a fixed number of them in flight all the
time. What is measured is not how fast they are answered, which depends on whatever else the machine does, but
the CPU time that all three nodes spend on them: the leader's part, both followers' fetches, and the kernel's
part. The client is as plain as it can be (blocking sockets, frames made in advance): it shares the machine.
"""

from __future__ import annotations

import selectors
import socket
import struct
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.cluster import NODES
from benchmarks.ours import KraftCluster
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import decode_response, encode_request
from kraft.wire.header import request_header, response_body
from metadata_quorum.foundation.batch import Record, encode_batch

TOPIC: Final = "cost"
VERSION: Final = 9
CLIENT_ID: Final = "request-cost"
PATIENCE_S: Final = 60.0
_LENGTH: Final = struct.Struct(">i")
_MS_PER_S: Final = 1000
_NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True)
class Load:
    """What is sent."""

    acks: int
    depth: int
    """Requests in flight, over all nodes."""
    record_bytes: int
    idempotent: bool


@dataclass(frozen=True)
class Cost:
    """Of one request, on all nodes together."""

    cpu_us: float
    by_node_us: tuple[float, ...]
    per_s: float


class Producer:
    """One connection to one node, with batches for the partitions that it leads."""

    def __init__(self, address: tuple[str, int], partitions: list[int], load: Load, producer_id: int) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._load = load
        self._producer_id = producer_id
        self._partitions = deque(partitions)
        self._sequences = dict.fromkeys(partitions, 0)
        self._frames = {partition: self._frame(partition) for partition in partitions}
        self._received = bytearray()

    def _frame(self, partition: int) -> bytes:
        now_ms = int(time.time() * _MS_PER_S)
        records = [Record(-1, now_ms, None, b"x" * self._load.record_bytes)]
        if self._load.idempotent:
            sequence = self._sequences[partition]
            batch = encode_batch(
                records, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence
            )
        else:
            batch = encode_batch(records)
        return _framed(
            ApiKey.PRODUCE,
            VERSION,
            encode_request(
                ApiKey.PRODUCE,
                VERSION,
                {
                    "acks": self._load.acks,
                    "timeout_ms": 30_000,
                    "topic_data": [
                        {"name": TOPIC, "partition_data": [{"index": partition, "records": batch}]}
                    ],
                },
            ),
        )

    def send(self, count: int) -> None:
        frames = []
        for _ in range(count):
            partition = self._partitions[0]
            self._partitions.rotate(-1)
            frames.append(self._frame(partition) if self._load.idempotent else self._frames[partition])
            self._sequences[partition] += 1
        if frames:
            self.socket.sendall(b"".join(frames))

    def received(self, *, warming_up: bool) -> int:
        """How many answers have come; raises where one is an error. New partitions have no leader yet."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionResetError("the node has ended the connection")
        self._received += data
        count = pos = 0
        while pos + 4 <= len(self._received):
            (size,) = _LENGTH.unpack_from(self._received, pos)
            if pos + 4 + size > len(self._received):
                break
            # header 5 bytes, one topic, its name, one partition: index, error code
            (error,) = struct.unpack_from(">h", self._received, pos + 4 + 5 + 1 + 1 + len(TOPIC) + 1 + 4)
            if error and not warming_up:
                raise ValueError(f"a produce was answered with error {error}")
            pos += 4 + size
            count += 1
        del self._received[:pos]
        return count


def _framed(api_key: ApiKey, version: int, body: bytes) -> bytes:
    header = request_header(api_key, version, 1, CLIENT_ID)
    return _LENGTH.pack(len(header) + len(body)) + header + body


def new_producer_id(address: tuple[str, int]) -> int:
    fields = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    request = encode_request(ApiKey.INIT_PRODUCER_ID, 4, fields)
    with socket.create_connection(address, timeout=PATIENCE_S) as connection:
        connection.sendall(_framed(ApiKey.INIT_PRODUCER_ID, 4, request))
        file = connection.makefile("rb")
        (size,) = _LENGTH.unpack(file.read(4))
        frame = memoryview(file.read(size))
    body = frame[response_body(ApiKey.INIT_PRODUCER_ID, 4, frame) :]
    return int(decode_response(ApiKey.INIT_PRODUCER_ID, 4, body).producer_id)


def leaders(bootstrap: str, partitions: int) -> dict[tuple[str, int], list[int]]:
    """Which partitions are to be sent where."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, partitions, NODES)]).values():
        future.result(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = admin.list_topics(TOPIC, timeout=PATIENCE_S)
        topic = found.topics[TOPIC]
        if len(topic.partitions) == partitions and all(
            p.leader > 0 and len(p.isrs) == NODES for p in topic.partitions.values()
        ):
            break
        time.sleep(0.1)
    by_node: dict[tuple[str, int], list[int]] = {}
    for number, partition in sorted(topic.partitions.items()):
        node = found.brokers[partition.leader]
        by_node.setdefault((str(node.host), node.port), []).append(number)
    return by_node


def cpu_ns(pids: Mapping[int, int]) -> list[int]:
    """CPU time of each process's threads, to the nanosecond."""
    return [
        sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())
        for pid in pids.values()
    ]


def run(producers: list[Producer], depth: int, seconds: float, *, warming_up: bool) -> Iterator[int]:
    """Keep `depth` requests in flight; yields how many were answered, again and again."""
    selector = selectors.DefaultSelector()
    for i, producer in enumerate(producers):
        selector.register(producer.socket, selectors.EVENT_READ, producer)
        producer.send(depth // len(producers) + (i < depth % len(producers)))
    in_flight, until = depth, time.monotonic() + seconds
    while in_flight:
        more = time.monotonic() < until
        for key, _ in selector.select(PATIENCE_S):
            count = key.data.received(warming_up=warming_up)
            in_flight -= count
            if more:
                key.data.send(count)
                in_flight += count
            yield count


def measure(
    cluster: KraftCluster,
    producers: list[Producer],
    load: Load,
    seconds: float,
    *,
    warming_up: bool = False,
) -> Cost:
    before, began = cpu_ns(cluster.pids()), time.monotonic()
    count = sum(run(producers, load.depth, seconds, warming_up=warming_up))
    took = time.monotonic() - began
    spent = [after - first for first, after in zip(before, cpu_ns(cluster.pids()), strict=True)]
    by_node = tuple(each / 1000 / count for each in spent)
    return Cost(sum(by_node), by_node, count / took)


def main(
    partitions: Annotated[int, typer.Option(min=1)] = 20,
    acks: Annotated[int, typer.Option(min=-1, max=1)] = -1,
    depth: Annotated[int, typer.Option(min=1)] = 32,
    record_bytes: Annotated[int, typer.Option(min=0)] = 100,
    idempotent: bool = False,
    seconds: Annotated[float, typer.Option(help="Of one round.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """CPU time of all nodes per produce request."""
    load = Load(acks, depth, record_bytes, idempotent)
    with tempfile.TemporaryDirectory(prefix="kraft-cost-") as scratch:
        cluster = KraftCluster(Path(scratch), {"min.insync.replicas": "2"})
        try:
            cluster.start()
            by_node = leaders(cluster.bootstrap, partitions)
            producer_id = new_producer_id(next(iter(by_node)))
            producers = [Producer(node, led, load, producer_id) for node, led in by_node.items()]
            measure(cluster, producers, load, seconds, warming_up=True)
            costs = [measure(cluster, producers, load, seconds) for _ in range(rounds)]
        finally:
            cluster.close()
    best = min(costs, key=lambda cost: cost.cpu_us)
    each = " ".join(f"{cost.cpu_us:.1f}" for cost in costs)
    typer.echo(
        f"{partitions} partitions, acks={acks}, {depth} in flight{', idempotent' if idempotent else ''}: "
        f"{best.cpu_us:.1f} us of all nodes per request (rounds: {each}; {best.per_s:.0f}/s)"
    )


if __name__ == "__main__":
    typer.run(main)
