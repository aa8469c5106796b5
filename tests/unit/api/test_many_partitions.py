"""How many partitions one request makes is bounded, however many topics it names: its command is decided by
every voter, and again whenever one starts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.api import topics
from kraft.api.context import ControllerContext
from metadata_quorum.decisions import topics as decisions
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.protocol.requests import CreatableTopic
from tests.support.contexts import controller_context, node_context
from tests.unit.metadata.controller_node import Node, virtual

pytestmark = pytest.mark.row("P7")

MOST = 10


def told(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


CTX = told(version=5, api_key=0)


@pytest.fixture(autouse=True)
def few_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MAX_PARTITIONS_PER_COMMAND", MOST)


async def controller(*names: str) -> ControllerContext:
    """With topics of these names, of two partitions each."""
    node = Node()
    await node.lead()
    await node.brokers(1)
    await node.controller.create_topics([CreatableTopic(name, 2, 1) for name in names])
    config = told(num_partitions=1, given={}, topic_defaults={})
    context = node_context(asyncio.get_running_loop(), config=config, quotas=None)
    return controller_context(context, quorum_controller=node.controller)


def by_name(answers: list[dict[str, Any]]) -> dict[str, ErrorCode]:
    return {each["name"]: ErrorCode(each["error_code"]) for each in answers}


@virtual
async def test_topics_grow_by_so_many_partitions_together() -> None:
    active = await controller("a", "b", "c", "d")
    wishes = [told(name=name, count=count, assignments=None) for name, count in
              (("a", 8), ("b", 7), ("c", 6), ("nope", 9), ("d", 2))]  # fmt: skip
    request = told(topics=wishes, validate_only=False, timeout_ms=1000)
    answer = await topics.handle_create_partitions(active, CTX, request)
    assert by_name(answer["results"]) == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.POLICY_VIOLATION,
        "c": ErrorCode.NONE,
        "d": ErrorCode.INVALID_PARTITIONS,
        "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    found = active.quorum_controller.image.topics_by_name
    assert {name: len(topic.partitions) for name, topic in found.items()} == {"a": 8, "b": 2, "c": 6, "d": 2}


def wish(name: str, partitions: int, *assigned: int) -> Any:
    return told(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=[told(partition_index=number, broker_ids=[1]) for number in assigned],
        configs=[],
    )


@virtual
async def test_partitions_that_are_assigned_by_hand_count_too() -> None:
    active = await controller()
    wishes = [wish("t", -1, *range(MOST + 1)), wish("u", MOST + 1), wish("v", -1, 0, 0)]
    request = told(topics=wishes, validate_only=False, timeout_ms=1000)
    answer = await topics.handle_create_topics(active, CTX, request)
    assert by_name(answer["topics"]) == {
        "t": ErrorCode.POLICY_VIOLATION,
        "u": ErrorCode.POLICY_VIOLATION,
        "v": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
    assert not active.quorum_controller.image.topics_by_name
