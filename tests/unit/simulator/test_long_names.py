"""What clients name, in whatever request, is not remembered when they have gone: no table whose size is
counted in entries keeps names of 20 KB."""

from __future__ import annotations

import asyncio
import gc
import sys
import types
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, Final

import pytest

from chaos.simulator.cluster import BROKER_PORT, host_of
from kraft.net.client import Address, PeerClient
from kraft.node.node import Node
from kraft.testing import simulated
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import encode_request
from kraft.wire.header import request_header
from kraft.wire.schemas import REQUEST, FieldPlan, MessageId, StructPlan, plan_for, versions_of
from metadata_quorum.raft.journal import RaftJournal
from metadata_quorum.security.acls import AclOperation, AclPermissionType, AclResourceType, PatternType

pytestmark = pytest.mark.heavy

LONG: Final = 20_000
PACKAGES: Final = ("kraft.", "data_plane.", "fetch.", "metadata_quorum.")
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "5000",
    "transactional.id.expiration.ms": "30000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
}
RATES: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
_numbers: Final = count()


def name() -> str:
    return f"name-{next(_numbers)}-" + "x" * LONG


def filled(plan: StructPlan) -> dict[str, Any]:
    """A message with a name in every place where there may be one."""
    return {field.name: _value(field) for field in plan.fields}


def _value(field: FieldPlan) -> Any:
    if field.struct is not None:
        value: Any = filled(field.struct)
    elif field.kafka_type == "string":
        value = name()
    elif field.kafka_type == "bytes":
        value = name().encode()
    elif field.kafka_type.startswith("int"):
        value = int(field.name == "acks")  # else a Produce is not answered
    else:
        return [] if field.is_array else field.default
    return [value] if field.is_array else value


async def ask_everything() -> None:
    loop = asyncio.get_running_loop()
    address = Address(host_of(1), BROKER_PORT)
    client = await PeerClient.connect(loop, address, "admin", timeout_s=5)
    denied = {
        "resource_type": AclResourceType.TOPIC, "resource_name": "name",
        "resource_pattern_type": PatternType.PREFIXED, "principal": "User:other", "host": "*",
        "operation": AclOperation.WRITE, "permission_type": AclPermissionType.ALLOW,
    }  # fmt: skip
    await client.request(ApiKey.CREATE_ACLS, 3, {"creations": [denied]}, timeout_s=5)
    limits = [{"key": each, "value": 1e9, "remove": False} for each in RATES]
    entry = {"entity": [{"entity_type": "client-id", "entity_name": None}], "ops": limits}
    quotas = {"entries": [entry], "validate_only": False}
    await client.request(ApiKey.ALTER_CLIENT_QUOTAS, 1, quotas, timeout_s=5)
    for kind in (0, 1):
        sought = {"key_type": kind, "coordinator_keys": ["any"]}
        await client.request(ApiKey.FIND_COORDINATOR, 4, sought, timeout_s=5)
    await asyncio.sleep(5)
    client.close()
    for api_key in ApiKey:
        versions = versions_of(api_key)
        for version in {*versions[:1], *versions[-2:]}:  # ids have taken the place of some names
            body = encode_request(api_key, version, filled(plan_for(MessageId(api_key, REQUEST), version)))
            frame = request_header(api_key, version, 0, name()) + body
            stranger = await PeerClient.connect(loop, address, "stranger", timeout_s=5)
            stranger.transport.write(len(frame).to_bytes(4, "big") + frame)
            await asyncio.sleep(0.1)
            stranger.close()
    await asyncio.sleep(200)


def reachable(roots: Iterable[object]) -> Iterator[object]:
    """Without the simulation, and what is written to the metadata: that is no table of a node's own."""
    seen, left = set[int](), list(roots)
    while left:
        found = left.pop()
        if id(found) in seen or isinstance(found, type | types.ModuleType | RaftJournal):
            continue
        seen.add(id(found))
        if type(found).__module__.startswith("chaos."):
            continue
        yield found
        left += found.__closure__ or () if isinstance(found, types.FunctionType) else gc.get_referents(found)


def test_no_table_keeps_the_long_names_of_clients_that_have_gone() -> None:
    with simulated(seed=1, nodes=1, settings=SETTINGS) as kafka:
        kafka.run(ask_everything())
        nodes = [each for each in gc.get_objects() if isinstance(each, Node)]
        modules = [vars(each) for name, each in list(sys.modules.items()) if name.startswith(PACKAGES)]
        kept = [
            each[:20]
            for each in reachable([*nodes, *modules])  # caches of functions, too
            if isinstance(each, str | bytes) and len(each) >= LONG and each[:5] in ("name-", b"name-")
        ]
        assert kept == []
