"""A broker in memory that is asked through the group APIs: request bytes in, response bytes out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from data_plane.coordinator.groups.classic.states import ClassicGroupConfig
from data_plane.coordinator.groups.group_metadata_manager import GroupLimits
from data_plane.coordinator.groups.service import GroupCoordinator, GroupCoordinatorConfig
from data_plane.coordinator.topics import OFFSETS_TOPIC
from kraft.api import group_admin, group_offsets, groups
from kraft.api.request_context import RequestContext, Role
from kraft.api.row import ApiRow
from kraft.broker.failover_metadata import FailoverMetadata
from kraft.net.connection_state import ConnectionState
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, decode_request, decode_response, encode_request, encode_response
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import BrokerRegistration, Endpoint, PartitionRegistration
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from tests.support.contexts import broker_context, node_context
from tests.unit.groups.group_driver import EPOCH_MS
from tests.unit.groups.memory_log import MemoryLog

ROWS = {row.key: row for row in (*groups.ROWS, *group_offsets.ROWS, *group_admin.ROWS)}
ORDERS_ID = UUID(int=77)
WITH_TOPIC_IDS = 10


def versions(key: int, *, unstable: int = 0) -> list[int]:
    return list(range(ROWS[key].min_version, ROWS[key].max_version + 1 + unstable))


def image(*names: str, orders: int = 3, orders_id: UUID = ORDERS_ID) -> MetadataImage:
    ids = {"orders": orders_id, OFFSETS_TOPIC: UUID(int=50)}
    sizes = {"orders": orders, OFFSETS_TOPIC: 50}
    partition = PartitionRegistration((1,), (1,), 1, 0, 0)
    topics = [TopicImage(name, ids[name], dict.fromkeys(range(sizes[name]), partition)) for name in names]
    broker = BrokerRegistration(1, 5, UUID(int=1), (Endpoint("CLIENTS", "host", 9092),), fenced=False)
    return MetadataImage(
        brokers={1: broker},
        topics_by_name={topic.name: topic for topic in topics},
        topics_by_id={topic.id: topic for topic in topics},
    )


class Broker:
    """One broker that leads every partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        config = GroupCoordinatorConfig(GroupLimits(rules=ClassicGroupConfig(initial_rebalance_delay=0.0)))
        self.service = GroupCoordinator(config, MemoryLog(), loop, random.Random(1), lambda: EPOCH_MS)
        self.node = node_context(loop, now_ms=EPOCH_MS, image=image("orders", OFFSETS_TOPIC))
        self.context = broker_context(
            self.node,
            group_coordinator=self.service,
            failover_metadata=FailoverMetadata(loop, session_timeout_s=9.0),
        )

    async def lead(self) -> None:
        for partition in range(50):
            self.service.become_leader(partition, 1)
        await self.service.loaded()

    async def ask(self, key: int, version: int, fields: Mapping[str, Any]) -> Message:
        row = ROWS[key]
        request = decode_request(key, version, encode_request(key, version, fields))
        assert row.broker is not None
        assert row.on_error is not None
        try:
            answer = row.broker(self.context, context(row, version), request)
            response = await answer if isinstance(answer, Awaitable) else answer
        except BrokerError as error:
            response = row.on_error(request, error.code, error.message)
        assert response is not None
        return decode_response(key, version, encode_response(key, version, response))

    async def join(self, group: str = "g", version: int = 9, **fields: Any) -> Message:
        request: dict[str, Any] = {
            "group_id": group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"mine"}],
        }
        answer = await self.ask(ApiKey.JOIN_GROUP, version, request | fields)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            fields["member_id"] = answer.member_id
            answer = await self.ask(ApiKey.JOIN_GROUP, version, request | fields)
        return answer


def context(row: ApiRow, version: int) -> RequestContext:
    peer: Any = SimpleNamespace(
        listener="CLIENTS", client_host="10.0.0.9", state=ConnectionState(), gone=False
    )
    return RequestContext(row.key, version, 1, "app", Role.BROKER, peer, "User:me", ())


def run(test: Callable[[Broker], Awaitable[None]], *, leads: bool = True) -> None:
    async def main() -> None:
        broker = Broker()
        try:
            if leads:
                await broker.lead()
            await test(broker)
        finally:
            broker.service.close()

    asyncio.run(main())
