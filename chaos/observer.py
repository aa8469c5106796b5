"""An observer outside the cluster: leaders, in-sync replicas, high watermarks, the active controller.

    with Observer(addresses, topics, now_ns=now, path=directory / "cluster.jsonl") as observer:
        observer.wait_for(lambda: observer.leader("all-0") == 2, timeout_s=5)

Every node is queried about ten times a second, at its own address and on connections of its own, so that one
that hangs delays nothing but its own responses. Requests about the quorum have a second connection: a node
without a controller may let them wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, NoReturn, TextIO, TypeVar

from confluent_kafka.admin import AdminClient

from chaos.observed import (
    NO_NODE,
    Line,
    NodeState,
    ObservedCluster,
    ObservedController,
    ObservedPartition,
    PartitionSince,
)
from kraft.net.client import Address, PeerClient, UnsupportedVersion
from kraft.peers.blocking_client import ask
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage, Message
from kraft.wire.coordinator_type import CoordinatorType
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import METADATA_TOPIC
from metadata_quorum.foundation.offset_timestamps import LATEST_TIMESTAMP

LIST_OFFSETS_VERSIONS: Final = (1, 7)
METADATA_VERSIONS: Final = (7, 12)
FIND_COORDINATOR_VERSIONS: Final = (1, 3)
DESCRIBE_QUORUM_VERSIONS: Final = (0, 1)

PARTITIONS_EVERY_S: Final = 0.1
QUORUM_EVERY_S: Final = 0.25
CONNECT_RETRY_S: Final = 0.1
SILENCE_S: Final = 1.0
"""A node that answers nothing for so long is called paused."""
LOOK_S: Final = 0.05
CLIENT_ID: Final = "observer"

Value = TypeVar("Value")


class Coordinated(NamedTuple):
    """A group, or a transactional id."""

    key: str
    kind: CoordinatorType = CoordinatorType.GROUP


def addresses_of(bootstrap: str, timeout_s: float = 10.0) -> dict[int, Address]:
    """The nodes of any Kafka cluster. Raises `KafkaException` where none answers."""
    metadata = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=timeout_s)
    return {node: Address(str(broker.host), int(broker.port)) for node, broker in metadata.brokers.items()}


class Observer:
    def __init__(
        self,
        addresses: Mapping[int, Address],
        topics: Sequence[str],
        *,
        now_ns: Callable[[], int],
        path: Path | None = None,
    ) -> None:
        """`addresses`: where clients reach each node without any proxy. `path`: of cluster.jsonl."""
        self.nodes: Sequence[int] = tuple(sorted(addresses))
        self._addresses = dict(addresses)
        self._topics = tuple(topics)
        self._now_ns = now_ns
        self._file: TextIO | None = (
            path.open("w", buffering=1, encoding="utf-8") if path is not None else None
        )
        self._changed = threading.Condition()
        self._seen = ObservedCluster(self._write)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._failed: list[Exception] = []
        """What has ended a watch before its time."""

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Raises what has ended a watch before its time: nothing was seen of its node since."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        if self._file is not None:
            self._file.close()
        if self._failed:
            raise self._failed[0]

    def __enter__(self) -> Observer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- questions about now

    def partition(self, key: str) -> ObservedPartition | None:
        with self._changed:
            return self._seen.partition(key)

    def leader(self, key: str) -> int | None:
        partition = self.partition(key)
        return partition.leader if partition is not None and partition.leader != NO_NODE else None

    def isr(self, key: str) -> tuple[int, ...]:
        """In ascending order; empty as long as no node has answered."""
        partition = self.partition(key)
        return partition.isr if partition is not None else ()

    def replicas(self, key: str) -> tuple[int, ...]:
        """In the order of their assignment."""
        partition = self.partition(key)
        return partition.replicas if partition is not None else ()

    def high_watermark(self, key: str) -> int | None:
        """In the leader's last response."""
        partition = self.partition(key)
        return partition.high_watermark if partition is not None else None

    def said(self, key: str) -> dict[int, ObservedPartition]:
        """Each node's last response about it, whether it counts or not."""
        with self._changed:
            return self._seen.said(key)

    def controller(self) -> int | None:
        """The leader of the highest term that any node reports; it may have failed."""
        with self._changed:
            controller = self._seen.controller()
        return controller.id if controller is not None else None

    def state(self, node: int) -> NodeState | None:
        with self._changed:
            past = self._seen.nodes.get(node)
            return past[-1][1] if past else None

    def keys(self) -> tuple[str, ...]:
        with self._changed:
            return tuple(sorted(self._seen.partitions))

    def coordinator(self, of: Coordinated) -> int | None:
        """Asked of the nodes now, one after the other, until one knows."""
        fields = {"key": of.key, "key_type": int(of.kind)}
        for node in self.nodes:
            if self.state(node) != "up":
                continue
            address = self._addresses[node]
            try:
                answer = ask(
                    address.host,
                    address.port,
                    ApiKey.FIND_COORDINATOR,
                    FIND_COORDINATOR_VERSIONS,
                    fields,
                    SILENCE_S,
                )
            except OSError:
                continue
            if answer.error_code == ErrorCode.NONE:
                return int(answer.node_id)
        return None

    def address(self, node: int) -> Address:
        return self._addresses[node]

    # ---- questions about the past

    def history(self, key: str) -> tuple[PartitionSince, ...]:
        """Leader, epoch and ISR of a partition over time; entries differ in at least one of them."""
        with self._changed:
            return tuple(self._seen.partitions.get(key, ()))

    def wait_for(self, predicate: Callable[[], Value], timeout_s: float) -> Value:
        """Evaluate it after every change until it is true, or the timeout; returns its last value. It is also
        evaluated now and then without a change, so it may depend on other things."""
        deadline_ns = self._now_ns() + int(timeout_s * 1e9)
        while not (value := predicate()) and self._now_ns() < deadline_ns:
            with self._changed:
                self._changed.wait(LOOK_S)
        return value

    # ---- the thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        watching = [
            self._loop.create_task(watch)
            for node, address in self._addresses.items()
            for watch in (self._watch_partitions(node, address), self._watch_quorum(address))
        ]
        try:
            self._loop.run_forever()
        finally:
            for task in watching:
                task.cancel()
            ended = self._loop.run_until_complete(asyncio.gather(*watching, return_exceptions=True))
            self._failed = [each for each in ended if isinstance(each, Exception)]
            self._loop.close()

    async def _watch_partitions(self, node: int, address: Address) -> None:
        while True:
            try:
                async with self._connection(address) as client:
                    await _each(PARTITIONS_EVERY_S, lambda: self._ask_partitions(node, client))
            except TimeoutError:
                self._note_state(node, "paused")
            except (OSError, MalformedMessage):
                self._note_state(node, "down")
            await asyncio.sleep(CONNECT_RETRY_S)

    async def _watch_quorum(self, address: Address) -> None:
        while True:
            try:
                async with self._connection(address) as client:
                    await _each(QUORUM_EVERY_S, lambda: self._ask_quorum(client))
            except UnsupportedVersion:
                return  # a cluster without a quorum
            except (OSError, MalformedMessage):
                pass
            await asyncio.sleep(CONNECT_RETRY_S)

    @contextlib.asynccontextmanager
    async def _connection(self, address: Address) -> AsyncIterator[PeerClient]:
        client = await PeerClient.connect(self._loop, address, CLIENT_ID, timeout_s=SILENCE_S)
        try:
            await client.negotiate(timeout_s=SILENCE_S)
            yield client
        finally:
            client.close()

    async def _ask_partitions(self, node: int, client: PeerClient) -> None:
        topics = [{"name": name} for name in self._topics]
        answer = await _request(
            client, ApiKey.METADATA, METADATA_VERSIONS, {"topics": topics, "allow_auto_topic_creation": False}
        )
        reported = {
            f"{topic.name}-{each.partition_index}": each
            for topic in answer.topics
            for each in topic.partitions
        }
        with self._changed:
            self._seen.node_is(node, self._now_ns(), "up")
            self._seen.partitions_reported(
                node, self._now_ns(), {key: _partition(each) for key, each in reported.items()}
            )
            self._changed.notify_all()
        led = [
            {
                "name": topic.name,
                "partitions": [_latest(each) for each in topic.partitions if each.leader_id == node],
            }
            for topic in answer.topics
        ]
        if not any(topic["partitions"] for topic in led):
            return
        offsets = await _request(
            client,
            ApiKey.LIST_OFFSETS,
            LIST_OFFSETS_VERSIONS,
            {"replica_id": -1, "isolation_level": 0, "topics": led},
        )
        ends = {
            f"{topic.name}-{each.partition_index}": each.offset
            for topic in offsets.topics
            for each in topic.partitions
            if each.error_code == ErrorCode.NONE
        }
        with self._changed:
            self._seen.high_watermarks_reported(node, self._now_ns(), ends)
            self._changed.notify_all()

    async def _ask_quorum(self, client: PeerClient) -> None:
        topics = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
        answer = await _request(client, ApiKey.DESCRIBE_QUORUM, DESCRIBE_QUORUM_VERSIONS, {"topics": topics})
        for topic in answer.topics:
            for each in topic.partitions:
                with self._changed:
                    self._seen.controller_reported(
                        self._now_ns(), ObservedController(each.leader_id, each.leader_epoch)
                    )
                    self._changed.notify_all()

    def _note_state(self, node: int, state: NodeState) -> None:
        with self._changed:
            self._seen.node_is(node, self._now_ns(), state)
            self._changed.notify_all()

    def note_committed(self, group: str, key: str, offset: int) -> None:
        """As its coordinator says (chaos/committed.py)."""
        with self._changed:
            self._seen.committed_reported(self._now_ns(), group, key, offset)

    def _write(self, line: Line) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")


async def _each(seconds: float, question: Callable[[], Awaitable[None]]) -> NoReturn:
    """Ask again and again, so often, until that raises."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + seconds
        await question()
        await asyncio.sleep(max(0.0, due - loop.time()))


async def _request(
    client: PeerClient, api_key: ApiKey, versions: tuple[int, int], fields: Mapping[str, Any]
) -> Message:
    version = client.version_of(api_key, *versions)
    return await client.request(api_key, version, fields, timeout_s=SILENCE_S)


def _partition(reported: Message) -> ObservedPartition:
    return ObservedPartition(
        reported.leader_id,
        reported.leader_epoch,
        tuple(sorted(reported.isr_nodes)),
        tuple(reported.replica_nodes),
    )


def _latest(reported: Message) -> dict[str, int]:
    return {
        "partition_index": reported.partition_index,
        "current_leader_epoch": reported.leader_epoch,
        "timestamp": LATEST_TIMESTAMP,
    }
