"""Every API in every version that the table promises, on a real cluster; and the promise is Kafka's own."""

from __future__ import annotations

import asyncio
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kraft.api.request_context import Role
from kraft.api.row import ApiRow
from kraft.api.table import ROWS
from kraft.local.local_cluster import LocalCluster
from kraft.net.client import Address, PeerClient
from kraft.wire.api_keys import ApiKey

PUBLIC = [row for row in ROWS.values() if not row.internal]

ODD_REQUESTS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.PRODUCE: {"acks": 1},  # with acks=0 there is no answer
    ApiKey.API_VERSIONS: {"client_software_name": "test", "client_software_version": "1"},
    ApiKey.DESCRIBE_CLUSTER: {"endpoint_type": 1},
}


NEWER: dict[int, tuple[int, int, list[str]]] = {
    ApiKey.WRITE_TXN_MARKERS: (1, 2, ["broker"]),  # 4.2's, which says the transaction version (KIP-1228)
}
"""What the jars of 4.1 do not have yet."""


async def answers(address: Address, row: ApiRow) -> None:
    loop = asyncio.get_running_loop()
    for version in range(row.min_version, row.max_version + 1):
        client = await PeerClient.connect(loop, address, "test")
        await client.request(row.key, version, ODD_REQUESTS.get(row.key, {}), timeout_s=60)
        client.close()


@pytest.mark.parametrize("row", PUBLIC, ids=lambda row: row.name)
def test_every_version_is_answered(shared_cluster: LocalCluster, row: ApiRow) -> None:
    host, _, port = shared_cluster.bootstrap.split(",")[0].rpartition(":")
    if Role.BROKER in row.listeners:
        asyncio.run(answers(Address(host, int(port)), row))
    if Role.CONTROLLER in row.listeners:
        asyncio.run(answers(Address(host, shared_cluster.nodes[1].controller_port), row))


@pytest.mark.kafka
def test_the_ranges_are_kafkas(kafka_jars: Path) -> None:
    [jar] = kafka_jars.glob("kafka-clients-*.jar")
    kafkas = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+Request\.json", name):
                schema = json.loads(_without_comments(archive.read(name).decode()))
                if schema["validVersions"] != "none":
                    kafkas[schema["apiKey"]] = _promise(schema)
    ours = {
        row.key: (row.min_version, row.max_version, sorted(role.value for role in row.listeners))
        for row in PUBLIC
    }
    assert ours == {key: kafkas[key] for key in ours} | NEWER


def _without_comments(text: str) -> str:
    return re.sub(r"(?m)^\s*//.*$", "", text)


def _promise(schema: dict[str, Any]) -> tuple[int, int, list[str]]:
    low, _, high = schema["validVersions"].partition("-")
    newest = int(high or low) - int(bool(schema.get("latestVersionUnstable")))
    return int(low), newest, sorted(schema["listeners"])
