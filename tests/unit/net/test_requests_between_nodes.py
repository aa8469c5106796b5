"""What nodes ask each other is not throttled as clients are: what stands behind it would wait, too."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from data_plane.quotas.client_quotas import ClientQuotas
from data_plane.quotas.rates import QuotaWindow
from kraft.api.controller_mutation_quota import ControllerMutationQuota
from kraft.api.dispatch import Dispatcher
from kraft.api.request_context import RequestContext, Role
from kraft.api.table import ROWS
from kraft.net.peer import Peer
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import encode_request
from kraft.wire.header import request_header
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.security.authorizer import Authorizer
from tests.support.contexts import broker_context, controller_context, node_context
from tests.unit.net.harness import on_a_loop

pytestmark = pytest.mark.row("R12")

BROKER, CLIENT = "User:broker", "User:anna"
OFFSETS = {"isolation_level": 0, "topics": []}
EPOCHS = {"topics": []}
NEW_TOPICS = {"topics": [], "timeout_ms": 1000, "validate_only": False}


async def muted_for(
    key: ApiKey, version: int, fields: Any, *, principal: str = BROKER, role: Role = Role.BROKER
) -> list[float]:
    """Of a node whose quotas are used up, seconds."""

    def answer(*_: object) -> Any:
        return {"throttle_time_ms": 500}

    node = node_context(asyncio.get_running_loop(), authorizer=Authorizer(frozenset({BROKER}), False))
    node.quotas = ClientQuotas(QuotaWindow(), QuotaWindow())
    column = "broker" if ROWS[key].forwarded is None else "forwarded"
    rows = {key: replace(ROWS[key], authorization=(), **{column: answer})}
    dispatcher = Dispatcher(
        node, rows, {"L": role}, broker=broker_context(node), controller=controller_context(node)
    )
    muted: list[float] = []
    peer = Peer("L", "127.0.0.1", 1, principal, mute=muted.append)
    frame = request_header(key, version, 1, "c") + encode_request(key, version, fields)
    assert isinstance(dispatcher.serve(peer, memoryview(bytearray(frame))), tuple)
    await dispatcher.close()
    return muted


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (ApiKey.ADD_PARTITIONS_TO_TXN, 5, {"transactions": []}),
        (ApiKey.LIST_OFFSETS, 9, {"replica_id": 2, **OFFSETS}),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"replica_id": 2, **EPOCHS}),
    ],
)
@on_a_loop
async def test_what_brokers_ask_for_transactions_and_replication(key: ApiKey, version: int, fields: Any):
    assert not await muted_for(key, version, fields)
    assert await muted_for(key, version, fields, principal=CLIENT) == [0.5]  # it only says so


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            {
                "v3_and_below_transactional_id": "t",
                "v3_and_below_producer_id": 1,
                "v3_and_below_producer_epoch": 0,
                "v3_and_below_topics": [],
            },
        ),
        (ApiKey.LIST_OFFSETS, 9, {"replica_id": -1, **OFFSETS}),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"replica_id": -1, **EPOCHS}),
    ],
)
@on_a_loop
async def test_the_same_of_clients_is_throttled(key: ApiKey, version: int, fields: Any):
    assert await muted_for(key, version, fields) == [0.5]


@on_a_loop
async def test_a_topic_that_a_broker_creates_on_demand_counts_for_nobody():
    node = node_context(asyncio.get_running_loop(), authorizer=Authorizer(frozenset({BROKER}), False))
    node.quotas = ClientQuotas(QuotaWindow(), QuotaWindow())
    node.quotas.take({(("user", None),): {"controller_mutation_rate": 0.01}})

    def create(principal: str) -> None:
        peer = Peer("L", "127.0.0.1", 1, principal)
        ctx = RequestContext(ApiKey.CREATE_TOPICS, 7, 1, "c", Role.CONTROLLER, peer, principal, ())
        for _ in range(3):
            ControllerMutationQuota(node, ctx).count(50)

    create(BROKER)
    with pytest.raises(BrokerError, match="quota"):
        create(CLIENT)


@on_a_loop
async def test_a_topic_that_a_broker_has_created_holds_up_none_of_its_heartbeats():
    key, role = ApiKey.CREATE_TOPICS, Role.CONTROLLER
    assert not await muted_for(key, 7, NEW_TOPICS, role=role)
    assert await muted_for(key, 7, NEW_TOPICS, role=role, principal=CLIENT) == [0.5]
