"""What one produce request costs the cluster in CPU time: `python -m benchmarks.request_cost`.

Requests of one record for each of their partitions are sent over one connection to each node, a fixed number
of them in flight all the time, in any version, by plain, idempotent and transactional producers (of one
transaction that stays open). What is measured is not how fast they are answered, which depends on whatever
else the machine does, but the CPU time that all three nodes spend on them: the leader's part, both followers'
fetches, and the kernel's part. The client is as plain as it can be (blocking sockets, frames made in advance
where they carry no sequence numbers): it shares the machine.
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
from typing import Annotated, Any, Final
from uuid import UUID

import typer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.cluster import NODES
from benchmarks.ours import KraftCluster
from kraft.peers.blocking_client import ask
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import encode_request
from kraft.wire.coordinator_type import CoordinatorType
from kraft.wire.header import request_header
from metadata_quorum.foundation.batch import Record, encode_batch

TOPIC: Final = "cost"
FIRST_FLEXIBLE: Final = 9
FIRST_WITH_IDS: Final = 13
CLIENT_ID: Final = "request-cost"
PATIENCE_S: Final = 60.0
_LENGTH: Final = struct.Struct(">i")
_ERROR: Final = struct.Struct(">h")
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
    transactional_id: str | None
    version: int
    width: int
    """Partitions of a request."""

    @property
    def first_error_at(self) -> int:
        """Where a response has the error code of its first partition, from its correlation id on."""
        if self.version < FIRST_FLEXIBLE:
            return 4 + 4 + 2 + len(TOPIC) + 4 + 4
        return 5 + 1 + (16 if self.version >= FIRST_WITH_IDS else 1 + len(TOPIC)) + 1 + 4


@dataclass(frozen=True)
class Topic:
    """What requests name."""

    id: UUID
    led: Mapping[tuple[str, int], list[int]]
    """Partitions by the address of the node that leads them."""


@dataclass(frozen=True)
class Cost:
    """Of one request, on all nodes together."""

    cpu_us: float
    per_s: float


class Producer:
    """One connection to one node, with batches for the partitions that it leads."""

    def __init__(self, address: tuple[str, int], topic: Topic, load: Load, producer_id: int) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._load = load
        self._topic = topic
        self._producer_id = producer_id
        partitions = topic.led[address]
        width = min(load.width, len(partitions))
        self._groups = deque(tuple((partitions * 2)[i : i + width]) for i in range(0, len(partitions), width))
        self._sequences = dict.fromkeys(partitions, 0)
        self._frames = {} if load.idempotent else {group: self._frame(group) for group in self._groups}
        self._received = bytearray()

    def _batch(self, partition: int) -> bytes:
        record = Record(-1, int(time.time() * _MS_PER_S), None, b"x" * self._load.record_bytes)
        if not self._load.idempotent:
            return encode_batch([record])
        sequence = self._sequences[partition]
        self._sequences[partition] += 1
        return encode_batch(
            [record],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=self._load.transactional_id is not None,
        )

    def _frame(self, group: tuple[int, ...]) -> bytes:
        batches = [{"index": partition, "records": self._batch(partition)} for partition in group]
        with_ids = self._load.version >= FIRST_WITH_IDS
        topic = {"topic_id": self._topic.id} if with_ids else {"name": TOPIC}
        fields = {
            "transactional_id": self._load.transactional_id,
            "acks": self._load.acks,
            "timeout_ms": 30_000,
            "topic_data": [{**topic, "partition_data": batches}],
        }
        version = self._load.version
        return _framed(ApiKey.PRODUCE, version, encode_request(ApiKey.PRODUCE, version, fields))

    def send(self, count: int) -> None:
        frames = []
        for _ in range(count):
            group = self._groups[0]
            self._groups.rotate(-1)
            frames.append(self._frame(group) if self._load.idempotent else self._frames[group])
        if frames:
            self.socket.sendall(b"".join(frames))

    def received(self, *, warming_up: bool) -> int:
        """How many responses have arrived; raises `ValueError` where one has an error. While warming up they
        may: new partitions have no leader yet."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionResetError("the node has ended the connection")
        self._received += data
        count = pos = 0
        while pos + 4 <= len(self._received):
            (size,) = _LENGTH.unpack_from(self._received, pos)
            if pos + 4 + size > len(self._received):
                break
            (error,) = _ERROR.unpack_from(self._received, pos + 4 + self._load.first_error_at)
            if error and not warming_up:
                raise ValueError(f"a produce was answered with error {error}")
            pos += 4 + size
            count += 1
        del self._received[:pos]
        return count


def _framed(api_key: ApiKey, version: int, body: bytes) -> bytes:
    header = request_header(api_key, version, 1, CLIENT_ID)
    return _LENGTH.pack(len(header) + len(body)) + header + body


def new_producer_id(topic: Topic, transactional_id: str | None) -> int:
    """With a transaction of all partitions begun, where there is a transactional id."""
    address = next(iter(topic.led))
    if transactional_id is not None:
        fields: dict[str, Any] = {
            "key_type": int(CoordinatorType.TRANSACTION),
            "coordinator_keys": [transactional_id],
        }
        deadline = time.monotonic() + PATIENCE_S
        while (found := ask(*address, ApiKey.FIND_COORDINATOR, (4, 4), fields).coordinators[0]).error_code:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        address = found.host, found.port
    fields = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    while (made := ask(*address, ApiKey.INIT_PRODUCER_ID, (4, 4), fields)).error_code:
        time.sleep(0.1)
    if transactional_id is not None:
        fields = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": made.producer_id,
            "v3_and_below_producer_epoch": made.producer_epoch,
            "v3_and_below_topics": [
                {"name": TOPIC, "partitions": [number for led in topic.led.values() for number in led]}
            ],
        }
        ask(*address, ApiKey.ADD_PARTITIONS_TO_TXN, (3, 3), fields)
    return int(made.producer_id)


def create_topic(bootstrap: str, partitions: int) -> Topic:
    """Once every partition has a leader and a full ISR."""
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
    described = ask(*next(iter(by_node)), ApiKey.METADATA, (12, 12), {"topics": [{"name": TOPIC}]})
    return Topic(described.topics[0].topic_id, by_node)


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
    return Cost(sum(spent) / 1000 / count, count / took)


def main(
    partitions: Annotated[int, typer.Option(min=1)] = 20,
    acks: Annotated[int, typer.Option(min=-1, max=1)] = -1,
    depth: Annotated[int, typer.Option(min=1)] = 32,
    record_bytes: Annotated[int, typer.Option(min=0)] = 100,
    idempotent: bool = False,
    transactional: bool = False,
    version: Annotated[int, typer.Option(min=3, max=13, help="Of Produce.")] = 9,
    width: Annotated[int, typer.Option(min=1, help="Partitions of a request.")] = 1,
    seconds: Annotated[float, typer.Option(help="Of one round.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """CPU time of all nodes per produce request."""
    transactional_id = "cost" if transactional else None
    load = Load(acks, depth, record_bytes, idempotent or transactional, transactional_id, version, width)
    with tempfile.TemporaryDirectory(prefix="kraft-cost-") as scratch:
        cluster = KraftCluster(Path(scratch), {"min.insync.replicas": "2"})
        try:
            cluster.start()
            topic = create_topic(cluster.bootstrap, partitions)
            producer_id = new_producer_id(topic, transactional_id)
            producers = [Producer(node, topic, load, producer_id) for node in topic.led]
            measure(cluster, producers, load, seconds, warming_up=True)
            costs = [measure(cluster, producers, load, seconds) for _ in range(rounds)]
        finally:
            cluster.close()
    best = min(costs, key=lambda cost: cost.cpu_us)
    each = " ".join(f"{cost.cpu_us:.1f}" for cost in costs)
    typer.echo(
        f"{partitions} partitions, {width} a request, v{version}, acks={acks}, {depth} in flight"
        f"{', transactional' if transactional else ', idempotent' if idempotent else ''}: "
        f"{best.cpu_us:.1f} us of all nodes per request (rounds: {each}; {best.per_s:.0f}/s)"
    )


if __name__ == "__main__":
    typer.run(main)
