"""What every simulated client needs of a cluster: leaders, coordinators, and a connection to each broker.

leader(key) -> Metadata, where it is not known -> connection(broker) -> request -> the response
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Final
from uuid import UUID

from chaos.history import topic_of
from chaos.simulator.clients.answers import OF_REPEATED, accusations_in
from chaos.simulator.process_loop import ProcessLoop
from kraft.net.client import Address, PeerClient
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Fields, Message, encode_request
from kraft.wire.coordinator_type import CoordinatorType
from kraft.wire.header import request_header

CONNECT_S: Final = 1.0
REQUEST_S: Final = 5.0
VERSIONS: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.METADATA: 12,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.UPDATE_FEATURES: 1,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.END_TXN: 3,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 0,
}
"""Of the requests that clients send, unless they choose others."""


class NoLeader(OSError):
    """The partition has no leader, or the key no coordinator, as far as the cluster says."""


class ClusterClient:
    """One client's view of the cluster."""

    def __init__(self, loop: ProcessLoop, brokers: dict[int, Address], random: Random) -> None:
        self.loop = loop
        self.random = random
        self.is_stopping = False
        """It begins no new operation."""
        self.last_ok_s = 0.0
        """When an operation last succeeded, by its own clock."""
        self.is_deposed: Callable[[str, int], bool] = lambda key, broker: False
        """Whether another broker leads a partition by now."""
        self.report: Callable[[str, str], None] = lambda rule, what: None
        """Told of the rules that an answer breaks."""
        self.versions: Mapping[ApiKey, int] = VERSIONS
        """Of the requests that it sends."""
        self._brokers = brokers
        self.connections: dict[int, PeerClient] = {}
        """By broker."""
        self.leaders: dict[str, int] = {}
        """By partition, as far as it knows them."""
        self.leader_epochs: dict[str, int] = {}
        """Of the same leaders, and of those that are forgotten."""
        self._topic_ids: dict[str, UUID] = {}
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}

    def with_own_connections(self) -> ClusterClient:
        """The same client, on connections of their own: what it sends there may overtake, or come late."""
        other = ClusterClient(self.loop, self._brokers, self.random)
        other.is_deposed, other.report = self.is_deposed, self.report
        return other

    async def connection(self, broker: int) -> PeerClient:
        """Raises OSError."""
        found = self.connections.get(broker)
        if found is None or not found.connected:
            address = self._brokers[broker]
            found = await PeerClient.connect(self.loop, address, self.loop.name, timeout_s=CONNECT_S)
            self.connections[broker] = found
        return found

    async def request(
        self, broker: int, api_key: ApiKey, fields: Fields, timeout_s: float = REQUEST_S
    ) -> Message:
        """Raises OSError."""
        connection = await self.connection(broker)
        answer = await connection.request(api_key, self.versions[api_key], fields, timeout_s=timeout_s)
        for code in accusations_in(answer):
            if (api_key, code) in OF_REPEATED:
                continue
            self.report("accused", f"{self.loop.name} by {broker}, of {api_key.name}: {code.name}")
        return answer

    async def send(self, broker: int, api_key: ApiKey, fields: Fields) -> None:
        """A request that gets no response (acks=0). Raises OSError."""
        connection = await self.connection(broker)
        version = self.versions[api_key]
        frame = request_header(api_key, version, 0, self.loop.name) + encode_request(api_key, version, fields)
        connection.transport.write(len(frame).to_bytes(4, "big") + frame)

    async def request_any(self, api_key: ApiKey, fields: Fields) -> Message:
        """To a random broker. Raises OSError."""
        return await self.request(self.random.choice(list(self._brokers)), api_key, fields)

    async def leader(self, key: str) -> int:
        """Of a partition, from the metadata. Raises OSError where it has none."""
        if key not in self.leaders:
            await self._learn(topic_of(key))
        found = self.leaders.get(key, -1)
        if found not in self._brokers:
            self.leaders.pop(key, None)
            raise NoLeader(f"{key} has no leader")
        return found

    def forget_leader(self, key: str) -> None:
        """It has refused, or does not answer."""
        self.leaders.pop(key, None)

    async def _learn(self, topic: str) -> None:
        fields = {
            "topics": [{"topic_id": None, "name": topic}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        answer = await self.request_any(ApiKey.METADATA, fields)
        for found in answer.topics:
            for partition in found.partitions:
                key = f"{topic}-{partition.partition_index}"
                self.leaders[key], self.leader_epochs[key] = partition.leader_id, partition.leader_epoch

    async def topic_ids(self) -> dict[str, UUID]:
        """Of every topic that exists. Raises OSError."""
        if not self._topic_ids:
            fields = {
                "topics": None,
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": False,
            }
            answer = await self.request_any(ApiKey.METADATA, fields)
            self._topic_ids = {topic.name: topic.topic_id for topic in answer.topics}
        return self._topic_ids

    async def coordinator(self, kind: CoordinatorType, name: str) -> int:
        """Of a group or a transactional id. Raises OSError where there is none at present."""
        found = self._coordinators.get((kind, name))
        if found is None:
            fields = {"key_type": kind, "coordinator_keys": [name]}
            answer = await self.request_any(ApiKey.FIND_COORDINATOR, fields)
            (row,) = answer.coordinators
            if row.error_code or row.node_id not in self._brokers:
                raise NoLeader(f"{name} has no coordinator")
            found = self._coordinators[kind, name] = row.node_id
        return found

    def forget_coordinator(self, kind: CoordinatorType, name: str) -> None:
        self._coordinators.pop((kind, name), None)

    def drop(self, broker: int) -> None:
        """End the connection: what is under way on it may still be carried out."""
        found = self.connections.pop(broker, None)
        if found is not None:
            found.close()

    async def pause(self, most_s: float) -> None:
        await asyncio.sleep(self.random.uniform(0.2, 1.0) * most_s)
