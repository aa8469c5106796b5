"""A cluster as the connector sees it: leaders, where logs begin and end, fetches.

    cluster_client(properties) -> ClusterClient    one per process, thread and properties; kept

The connections are kraft's own (kraft/net/client.py), on an event loop that runs only while a caller waits
for a response: there is no thread beside Spark's, and what arrives in the meantime waits in the socket.
Requests to leaders are sent all at once, one to each. After an error from a former leader (a refusal, a
broken connection) the request is sent to the next one, with metadata from another broker, until the timeout.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from kraft.net.client import FOREVER, MAX_STRANGERS_RESPONSE_BYTES, Address, PeerClient, UnsupportedVersion
from kraft.net.connection_security import AuthenticationFailed, Tls, authenticate, tls_context
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Fields, MalformedMessage, Message
from kraft.wire.fast_fetch import (
    FIRST_FLEXIBLE,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    read_fetch_response,
)
from kraft.wire.fast_fetch_request import write_fetch_request
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import NO_LEADER, ZERO_UUID, TopicPartition
from spark_connector.broker_turns import BrokerTurns
from spark_connector.client_settings import ClientSettings, client_settings
from spark_connector.errors import Retry, SourceError
from spark_connector.fetched_data import FetchedDataPool
from spark_connector.fetching import Fetching
from spark_connector.leaders import RETRIABLE, UNKNOWN_TOPIC, KnownLeader, PartitionLeader
from spark_connector.offsets import EARLIEST, LATEST, Offsets

_FETCH_VERSIONS: Final = (FIRST_FLEXIBLE, 17)
_FETCH_VERSIONS_BY_NAME: Final = (FIRST_FLEXIBLE, FIRST_FLEXIBLE)
_LIST_OFFSETS_VERSIONS: Final = (4, 9)  # from 4 on with the leader epoch
_METADATA_VERSIONS: Final = (7, 12)  # from 7 on with the leader epoch, from 10 on with topic ids

CONNECT_TIMEOUT_S: Final = 3.0
METADATA_TIMEOUT_S: Final = 5.0
"""Then another broker is tried."""
FIRST_CONTACT_S: Final = 15.0
"""How long to look for a first broker that answers at all."""
UNKNOWN_TOPIC_PATIENCE_S: Final = 5.0
"""How long a topic may be unknown before it counts as deleted: metadata spreads with a delay."""
FIRST_BACKOFF_S: Final = 0.05
MAX_BACKOFF_S: Final = 1.0

FETCH_WAIT_MS: Final = 500
"""How long a leader keeps a fetch that it has nothing for."""

LARGE_ANSWER_BYTES: Final = 512 * 1024

Value = TypeVar("Value")


class ClusterClient:
    """Made by `cluster_client`. Not to be shared between threads."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._tls = _tls_context(settings.tls)
        self._loop = asyncio.new_event_loop()
        self._brokers: dict[int, Address] = {}
        self._clients: dict[Address, PeerClient] = {}
        self._dialling: dict[Address, asyncio.Lock] = {}
        self._turns = BrokerTurns()
        self._leaders: dict[TopicPartition, PartitionLeader] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._missing_since: dict[str, float] = {}
        self.fetched_data = FetchedDataPool()
        self.record_bytes: dict[TopicPartition, float] = {}
        """How large the records of the last answer were, on average."""

    # ---- requests of the driver

    def topic_names(self) -> list[str]:
        """The names of all topics except internal ones."""
        topics = self.run(self.within(self.settings.api_timeout_s, lambda: self._metadata(None)))
        return [topic.name for topic in topics if not topic.is_internal]

    def partitions_of(self, topics: Iterable[str]) -> set[TopicPartition]:
        """All partitions of those of the topics that exist. A topic that is missing is waited for once."""
        return self.run(self._partitions_of(sorted(set(topics))))

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """The ids of topics whose partitions were listed last; old brokers have none."""
        return {name: self._topic_ids[name] for name in topics if name in self._topic_ids}

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Partitions that do not exist are left out; here and below."""
        return self.offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """High watermarks, or last stable offsets for `read_committed`."""
        return self.offsets(dict.fromkeys(partitions, LATEST))

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        """First offsets as young as those times, -1 where there is none."""
        return self.offsets(times_ms)

    def offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool | None = None
    ) -> Offsets:
        """By time in milliseconds since 1970, or `EARLIEST`, or `LATEST`; from all leaders at once."""
        committed = self.settings.read_committed if read_committed is None else read_committed
        return self.run(self._offsets(timestamps, committed)) if timestamps else {}

    def known_leader(self, partition: TopicPartition) -> KnownLeader | None:
        """As the last answers had it: nothing is asked."""
        leader = self._leaders.get(partition)
        address = self._brokers.get(leader.node_id) if leader is not None else None
        if leader is None or address is None:
            return None
        return KnownLeader(leader, address.host, address.port)

    # ---- requests of a reader

    def learn_leader(self, partition: TopicPartition, planned: KnownLeader) -> PartitionLeader:
        """Take the leader that the driver planned with, unless a newer one is known here; the one to use."""
        known = self._leaders.get(partition)
        if known is None or known.topic_id != planned.leader.topic_id or known.epoch < planned.leader.epoch:
            known = self._leaders[partition] = planned.leader
            self._brokers[known.node_id] = Address(planned.host, planned.port)
        return known

    def leader_of(self, partition: TopicPartition, *, refresh: bool = False) -> PartitionLeader | None:
        """None where there is no such partition. Raises `Retry`."""
        if refresh or partition not in self._leaders:
            self.run(self._metadata([partition.topic]))
        leader = self._leaders.get(partition)
        if leader is not None and leader.node_id == NO_LEADER:
            raise Retry(f"{partition} has no leader at the moment")
        return leader

    def start_fetch(
        self, partition: TopicPartition, leader: PartitionLeader, offset: int, max_bytes: int
    ) -> Fetching:
        """Send a fetch for that one partition."""
        fetch_partition = FetchPartition(
            leader.topic_id, partition.topic, partition.partition, offset, max_bytes, leader.epoch
        )
        request = FetchRequest(
            [fetch_partition],
            max_wait_ms=FETCH_WAIT_MS,
            max_bytes=max_bytes,
            committed_only=self.settings.read_committed,
            rack_id=self.settings.rack,
        )
        fetching = Fetching(self._loop, self._fetch(leader, request), self.settings.request_timeout_s)
        self.pause(0)  # lets it leave
        return fetching

    def pause(self, seconds: float) -> None:
        """Wait, and let connections go on."""
        self.run(self.rest(seconds))

    async def rest(self, seconds: float) -> None:
        """Whoever tries again does so first."""
        await asyncio.sleep(seconds)

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return self._loop.time()

    def close(self) -> None:
        """End all connections; pending requests get no response any more."""
        unanswered = asyncio.all_tasks(self._loop)
        for task in unanswered:
            task.cancel()
        for client in self._clients.values():
            client.close()
        self.run(asyncio.wait([*unanswered, self._loop.create_task(asyncio.sleep(0))]))
        self._loop.close()

    # ---- metadata

    async def _partitions_of(self, topics: list[str]) -> set[TopicPartition]:
        asked_at = self.now()

        async def ask() -> set[TopicPartition]:
            answer = await self._metadata(topics)
            for topic in answer:
                is_missing = topic.error_code in UNKNOWN_TOPIC
                if topic.error_code and not (is_missing and self._is_deleted(topic.name, asked_at)):
                    raise Retry(f"topic '{topic.name}': {ErrorCode(topic.error_code).name}")
            return {
                TopicPartition(topic.name, each.partition_index)
                for topic in answer
                for each in topic.partitions
            }

        return await self.within(self.settings.api_timeout_s, ask) if topics else set()

    def _is_deleted(self, topic: str, asked_at: float) -> bool:
        """Whether a topic has been missing for so long, from every answer, that metadata has spread since:
        one may be that of a broker that is behind. `asked_at` counts where only a partition is missing."""
        return self.now() - self._missing_since.get(topic, asked_at) > UNKNOWN_TOPIC_PATIENCE_S

    async def _metadata(self, topics: list[str] | None) -> list[Message]:
        """Ask one broker; the answer's topics, whose leaders are noted. Raises `Retry`."""
        fields = {
            "topics": None if topics is None else [{"topic_id": ZERO_UUID, "name": name} for name in topics],
            "allow_auto_topic_creation": False,
        }
        answer = await self.ask_any_broker(ApiKey.METADATA, _METADATA_VERSIONS, fields)
        self._brokers = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
        for topic in answer.topics:
            code = ErrorCode(topic.error_code)
            if code not in RETRIABLE and code != ErrorCode.NONE:
                raise SourceError(code.name, f"topic '{topic.name}' cannot be read: {code.name}")
            if topic.error_code in UNKNOWN_TOPIC:
                self._missing_since.setdefault(topic.name, self.now())
            else:
                self._missing_since.pop(topic.name, None)
            if not topic.error_code and topic.topic_id != ZERO_UUID:
                self._topic_ids[topic.name] = topic.topic_id
            for each in topic.partitions:
                self._leaders[TopicPartition(topic.name, each.partition_index)] = PartitionLeader(
                    topic.topic_id, each.leader_id, each.leader_epoch
                )
        gone = set(topics or ()) - {topic.name for topic in answer.topics if not topic.error_code}
        for partition in [each for each in self._leaders if each.topic in gone]:
            del self._leaders[partition]
        return list(answer.topics)

    async def brokers(self) -> list[Address]:
        """All that are there now. Raises `Retry`."""
        await self._metadata([])
        return list(self._brokers.values())

    async def ask_any_broker(self, api_key: ApiKey, versions: tuple[int, int], fields: Fields) -> Message:
        """Raises `Retry` where none answers."""
        problem = ""
        for address in self._turns.among((*self._brokers.values(), *self.settings.bootstrap), self.now()):
            try:
                client = await self.connected(address)
                version = common_version(client, api_key, versions)
                return await client.request(api_key, version, fields, timeout_s=METADATA_TIMEOUT_S)
            except (OSError, MalformedMessage) as error:
                if isinstance(error, TimeoutError):
                    self._turns.waited_in_vain(address, self.now())
                problem = f"{address}: {problem_of(error)}"
        raise Retry(problem)

    # ---- offsets

    async def _offsets(self, timestamps: Mapping[TopicPartition, int], read_committed: bool) -> Offsets:
        asked_at = self.now()
        offsets: Offsets = {}
        deleted: set[TopicPartition] = set()

        async def ask() -> None:
            missing = [each for each in timestamps if each not in offsets and each not in deleted]
            if any(self._leaders.get(each, _NOBODY).node_id == NO_LEADER for each in missing):
                await self._metadata(sorted({each.topic for each in missing}))
            by_leader: dict[int, list[TopicPartition]] = {}
            for each in missing:
                if each in self._leaders:
                    by_leader.setdefault(self._leaders[each].node_id, []).append(each)
                elif self._is_deleted(each.topic, asked_at):
                    deleted.add(each)
            answers = await asyncio.gather(
                *(
                    self._ask_leader(node, each, timestamps, read_committed)
                    for node, each in by_leader.items()
                ),
                return_exceptions=True,
            )
            for answer in answers:
                if isinstance(answer, BaseException) and not isinstance(answer, Retry):
                    raise answer
                if not isinstance(answer, BaseException):
                    offsets.update(answer)
            if left := [each for each in missing if each not in offsets and each not in deleted]:
                for each in left:
                    self._leaders.pop(each, None)
                why = next((str(each) for each in answers if isinstance(each, Retry)), "no such partition")
                raise Retry(f"offset of {left[0]}: {why}")

        await self.within(self.settings.api_timeout_s, ask)
        return offsets

    async def _ask_leader(
        self,
        node: int,
        partitions: list[TopicPartition],
        timestamps: Mapping[TopicPartition, int],
        committed: bool,
    ) -> Offsets:
        topics: dict[str, list[dict[str, int]]] = {}
        for each in partitions:
            topics.setdefault(each.topic, []).append(
                {
                    "partition_index": each.partition,
                    "current_leader_epoch": self._leaders[each].epoch,
                    "timestamp": timestamps[each],
                }
            )
        fields = {
            "replica_id": -1,
            "isolation_level": int(committed),
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }
        try:
            client = await self.connected(self._address(node))
            version = common_version(client, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSIONS)
            answer = await client.request(
                ApiKey.LIST_OFFSETS, version, fields, timeout_s=self.settings.request_timeout_s
            )
        except (OSError, MalformedMessage) as error:
            raise Retry(f"broker {node}: {problem_of(error)}") from error
        offsets: Offsets = {}
        for topic in answer.topics:
            for each in topic.partitions:
                code = ErrorCode(each.error_code)
                if code == ErrorCode.NONE:
                    offsets[TopicPartition(topic.name, each.partition_index)] = each.offset
                elif code not in RETRIABLE:
                    raise SourceError(code.name, f"{topic.name}-{each.partition_index}: {code.name}")
        return offsets

    # ---- fetches and connections

    async def _fetch(self, leader: PartitionLeader, request: FetchRequest) -> FetchedPartition:
        client: PeerClient | None = None
        try:
            client = await self.connected(self._address(leader.node_id))
            version = common_version(
                client,
                ApiKey.FETCH,
                _FETCH_VERSIONS if leader.topic_id != ZERO_UUID else _FETCH_VERSIONS_BY_NAME,
            )
            body = (write_fetch_request(version, request),)
            answer = await client.ask(
                ApiKey.FETCH, version, body, partial(read_fetch_response, version), FOREVER
            )
        except asyncio.CancelledError:
            if client is not None:  # else it was still connecting
                client.close()  # a late response would be taken for the next one's
            raise
        except (OSError, MalformedMessage) as error:
            raise Retry(f"broker {leader.node_id}: {problem_of(error)}") from error
        if answer.error:
            raise Retry(f"broker {leader.node_id}: {answer.error.name}")
        if len(answer.partitions) != 1:
            raise Retry(f"broker {leader.node_id} answered for {len(answer.partitions)} partitions")
        return answer.partitions[0]

    def _address(self, node: int) -> Address:
        try:
            return self._brokers[node]
        except KeyError:
            raise Retry(f"broker {node} is not there") from None

    async def connected(self, address: Address) -> PeerClient:
        """Raises `OSError`, or `SourceError` where trying again is no use."""
        asked_at = self.now()
        async with self._dialling.setdefault(address, asyncio.Lock()):
            await asyncio.sleep(0)  # let the loop notice connections that ended while it did not run
            client = self._clients.get(address)
            if client is None or not client.connected:
                if self._turns.is_silent_since(asked_at, address):  # to who dialled while we waited
                    raise TimeoutError("no answer")
                try:
                    client = self._clients[address] = await self._connect(address)
                except TimeoutError:
                    self._turns.waited_in_vain(address, self.now())
                    raise
                except ssl.SSLCertVerificationError as error:
                    raise SourceError("TLS", f"{address} is not trusted: {error.verify_message}") from error
                except AuthenticationFailed as error:
                    raise SourceError("SASL_AUTHENTICATION_FAILED", f"{address}: {error}") from error
            return client

    async def _connect(self, address: Address) -> PeerClient:
        client = await PeerClient.connect(
            self._loop,
            address,
            self.settings.client_id,
            timeout_s=CONNECT_TIMEOUT_S,
            tls=self._tls,
            allocate=_buffer,
            max_response_bytes=MAX_STRANGERS_RESPONSE_BYTES,
        )
        try:
            await client.negotiate(timeout_s=METADATA_TIMEOUT_S)
            if self.settings.login is not None:
                await authenticate(client, self.settings.login, timeout_s=METADATA_TIMEOUT_S)
        except BaseException:
            client.close()
            raise
        return client

    # ---- trying again

    async def within(self, timeout_s: float, attempt: Callable[[], Awaitable[Value]]) -> Value:
        """Until it succeeds. Raises SourceError when time is up."""
        began = self.now()
        backoff_s = FIRST_BACKOFF_S
        while True:
            try:
                return await attempt()
            except Retry as reason:
                patience_s = timeout_s if self._brokers else min(timeout_s, FIRST_CONTACT_S)
                if self.now() - began > patience_s:
                    raise self.timed_out(patience_s, reason) from reason
            await self.rest(backoff_s)
            backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)

    def timed_out(self, patience_s: float, reason: Retry) -> SourceError:
        servers = ",".join(map(str, self.settings.bootstrap))
        if not self._brokers:
            return SourceError(
                "UNREACHABLE",
                f"no broker of 'kafka.bootstrap.servers' ({servers}) answered in {patience_s:g} s: {reason}",
            )
        return SourceError("TIMEOUT", f"no answer from {servers} within {patience_s:g} s: {reason}")

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        return self._loop.run_until_complete(work)


def _buffer(size: int) -> bytearray | memoryview:
    """A large one uninitialized: zeroing it first costs a tenth of what a reader does with its contents."""
    if size < LARGE_ANSWER_BYTES:
        return bytearray(size)
    import numpy as np

    return np.empty(size, np.uint8).data


def _tls_context(tls: Tls | None) -> ssl.SSLContext | None:
    try:
        return None if tls is None else tls_context(tls)
    except OSError as error:
        raise SourceError(
            "TLS", f"the certificates or the key of 'kafka.ssl.*' are no use: {error}"
        ) from error


def common_version(client: PeerClient, api_key: ApiKey, versions: tuple[int, int]) -> int:
    """Raises SourceError if there is none."""
    try:
        return client.version_of(api_key, *versions)
    except UnsupportedVersion as error:
        raise SourceError("UNSUPPORTED_VERSION", f"the cluster is too old, or too new: {error}") from error


def problem_of(error: Exception) -> str:
    return str(error) or type(error).__name__


_NOBODY: Final = PartitionLeader(ZERO_UUID, NO_LEADER, -1)

_open = threading.local()


def cluster_client(properties: Mapping[str, str]) -> ClusterClient:
    """The cluster that these client properties (without the prefix `kafka.`) name: it connects at its first
    request. Cached by process too: connections that a parent opened before a fork are not the child's."""
    settings = client_settings(properties)
    mine: dict[tuple[int, ClientSettings], ClusterClient] = vars(_open).setdefault("clusters", {})
    key = (os.getpid(), settings)
    if key not in mine:
        mine[key] = ClusterClient(settings)
    return mine[key]


@atexit.register
def close_clusters() -> None:
    """End all connections that this thread made."""
    mine = vars(_open).pop("clusters", {})
    for (pid, _), each in mine.items():
        if pid == os.getpid():
            each.close()
