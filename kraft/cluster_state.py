"""What a node says about its cluster, asked with our own client from code that has no loop.

For `local_cluster.py` and those commands for which confluent-kafka has no call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from kraft.net.client import Address, PeerClient
from kraft.wire.bridge import Message
from metadata_quorum.errors import ErrorCode

METADATA: Final = 3
METADATA_VERSION: Final = 12
CLIENT_ID: Final = "kraft-cli"


async def _ask(
    address: Address, api_key: int, versions: tuple[int, int], fields: Mapping[str, Any], timeout_s: float
) -> Message:
    loop = asyncio.get_running_loop()
    client = await PeerClient.connect(loop, address, CLIENT_ID, timeout_s=timeout_s)
    try:
        await client.negotiate(timeout_s=timeout_s)
        version = client.version_of(api_key, *versions)
        return await client.request(api_key, version, fields, timeout_s=timeout_s)
    finally:
        client.close()


def ask(
    host: str,
    port: int,
    api_key: int,
    versions: tuple[int, int],
    fields: Mapping[str, Any],
    timeout_s: float = 10.0,
) -> Message:
    """One request on a connection of its own, in the newest version of that range both ends know.
    Raises `OSError`, `UnsupportedVersion` or `MalformedMessage`."""
    return asyncio.run(_ask(Address(host, port), api_key, versions, fields, timeout_s))


def live_brokers(host: str, port: int) -> set[int]:
    """The brokers that a node knows as registered and unfenced; none where it does not answer, or
    knows no controller yet."""
    fields = {"topics": [], "allow_auto_topic_creation": False}
    try:
        answer = ask(host, port, METADATA, (METADATA_VERSION, METADATA_VERSION), fields, timeout_s=2.0)
    except OSError:
        return set()
    if answer.error_code != ErrorCode.NONE or answer.controller_id < 0:
        return set()
    return {broker.node_id for broker in answer.brokers}
