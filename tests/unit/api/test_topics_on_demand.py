"""Topics that are created because a client asked for them: as which."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.api import auto_topic_creation
from kraft.wire.api_keys import ApiKey
from tests.support.contexts import broker_context, node_context
from tests.support.node_config import config, mapped


@pytest.mark.row("P6")
def test_a_topic_on_demand_has_as_many_partitions_as_the_asked_broker_gives_it() -> None:
    """Controllers of their own are often without these keys."""
    asked: list[dict[str, Any]] = []

    async def request(api_key: ApiKey, version: int, fields: Any) -> Any:
        asked.extend(fields["topics"])
        return SimpleNamespace(topics=[])

    async def create() -> None:
        values = config(
            listener_security_protocol_map=mapped("PLAINTEXT"),
            num_partitions="12",
            default_replication_factor="3",
        )
        node = node_context(
            asyncio.get_running_loop(), config=values, controller_channel=SimpleNamespace(request=request)
        )
        broker = broker_context(node)
        assert auto_topic_creation.request_creation(broker, "t")
        await broker.creating_topics["t"]

    asyncio.run(create())
    assert asked == [{"name": "t", "num_partitions": 12, "replication_factor": 3}]
