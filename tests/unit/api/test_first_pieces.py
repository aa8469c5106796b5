"""Sixty-four requests begin in one turn of the loop, and each does a little before it waits for its turn.
What is heavy by itself, such as one topic of very many partitions, is none of that little."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

import pytest

from kraft.api import configs, metadata
from kraft.api.context import NodeContext
from kraft.api.long_work import AT_ONCE, LongWork
from kraft.api.slices import in_slices
from kraft.broker.failover_metadata import FailoverMetadata
from kraft.net.turn_budget import SHARE
from metadata_quorum.foundation.model import PartitionRegistration, ResourceType
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from tests.support.contexts import broker_context, node_context
from tests.unit.net.harness import on_a_loop

pytestmark = pytest.mark.row("P7")

PARTITIONS: Final = 2000


class Turns:
    """How much was done in the busiest turn of the loop."""

    def __init__(self) -> None:
        self.most = self.now = 0

    def add(self, much: int) -> None:
        self.now += much
        self.most = max(self.most, self.now)

    async def all_at_once(self, ask: Callable[[], Awaitable[Any]]) -> list[Any]:
        asked = asyncio.gather(*(ask() for _ in range(SHARE)))
        while not asked.done():
            await asyncio.sleep(0)
            self.now = 0
        return await asked


@on_a_loop
async def test_few_heavy_items_are_first_in_one_turn_and_behind_no_long_request() -> None:
    turns, work = Turns(), LongWork(asyncio.get_running_loop())

    async def ask() -> None:
        async for _ in in_slices(work, iter(["one"]), 4, lambda _: 2):
            turns.add(1)

    for _ in range(AT_ONCE):
        work.in_a_thread().__enter__()
    await turns.all_at_once(ask)
    assert turns.most <= 4, "two slices"


@on_a_loop
async def test_one_that_is_called_off_takes_nobodys_room() -> None:
    work = LongWork(asyncio.get_running_loop())
    begun = []

    async def ask(number: int) -> None:
        await work.first(1.0)
        begun.append(number)

    asked = [asyncio.ensure_future(ask(number)) for number in range(6)]
    await asyncio.sleep(0)
    for each in asked[1:5]:
        each.cancel()
    await asyncio.wait(asked)
    assert begun == [0, 5]


@on_a_loop
async def test_a_second_item_that_is_heavy_waits_for_a_turn() -> None:
    turns, work = Turns(), LongWork(asyncio.get_running_loop())

    async def ask() -> None:
        async for weight in in_slices(work, iter([1, 500]), 500, lambda weight: weight):
            turns.add(weight)

    await turns.all_at_once(ask)
    assert turns.most <= 500 + SHARE


class Partitions(dict[int, PartitionRegistration]):
    def __init__(self, turns: Turns) -> None:
        super().__init__(dict.fromkeys(range(PARTITIONS), PartitionRegistration((1,), (1,), 1, 0, 0)))
        self._turns = turns

    def __getitem__(self, number: int) -> PartitionRegistration:
        self._turns.add(1)
        return super().__getitem__(number)


@on_a_loop
@pytest.mark.parametrize("handler", [metadata.handle_metadata, metadata.handle_describe_topic_partitions])
@pytest.mark.parametrize("named", [True, False])
async def test_a_wide_topic_is_described_to_few_in_one_turn(
    monkeypatch: pytest.MonkeyPatch, handler: Any, named: bool
) -> None:
    """All clients ask again when its leaders have changed."""
    turns, loop = Turns(), asyncio.get_running_loop()
    image = MetadataImage(topics_by_name={"t": TopicImage("t", UUID(int=1), Partitions(turns))})
    config = SimpleNamespace(auto_create_topics_enable=False, max_request_partition_size_limit=PARTITIONS)
    node = node_context(loop, image=image, config=config)
    monkeypatch.setattr(NodeContext, "blocking", called)
    broker = broker_context(node, failover_metadata=FailoverMetadata(loop, session_timeout_s=9.0))
    ctx: Any = SimpleNamespace(version=12, listener="CLIENTS")
    request: Any = SimpleNamespace(
        topics=[SimpleNamespace(name="t", topic_id=UUID(int=0))] if named else None,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
        include_cluster_authorized_operations=False,
        response_partition_limit=PARTITIONS,
        cursor=None,
    )
    if handler is metadata.handle_describe_topic_partitions:
        request.topics = request.topics or []
    answers = await turns.all_at_once(lambda: handler(broker, ctx, request))
    assert {len(each["topics"][0]["partitions"]) for each in answers} == {PARTITIONS}
    assert turns.most <= 4 * PARTITIONS


async def called(_: NodeContext, work: Callable[[Any], Any]) -> Any:
    """In the place of a thread."""
    return work(None)


class Given(dict[str, str]):
    """What server.properties has; looked into once for each key of a broker that is described."""

    def __init__(self, turns: Turns) -> None:
        super().__init__({"node.id": "1"})
        self._turns = turns

    def __contains__(self, key: object) -> bool:
        self._turns.add(key == "node.id")
        return super().__contains__(key)


@on_a_loop
async def test_brokers_are_described_to_few_in_one_turn() -> None:
    """Each has two hundred keys."""
    turns = Turns()
    config = SimpleNamespace(given=Given(turns), topic_defaults={})
    node = node_context(asyncio.get_running_loop(), config=config)
    resource = SimpleNamespace(
        resource_type=ResourceType.BROKER, resource_name="1", configuration_keys=["node.id"]
    )
    request: Any = SimpleNamespace(resources=[resource], include_synonyms=True, include_documentation=False)
    unused: Any = None
    answers = await turns.all_at_once(lambda: configs.handle_describe(node, unused, request))
    assert all(each["results"][0]["configs"][0]["value"] == "1" for each in answers)
    assert turns.most <= 3 * configs.RESOURCES_PER_SLICE
