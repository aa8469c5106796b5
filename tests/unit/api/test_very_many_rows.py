"""Answers with very many rows: however many there are, a handler looks at so many in one turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

import pytest

from data_plane.coordinator.groups.consumer.messages import DescribedConsumerGroup, DescribedConsumerMember
from data_plane.coordinator.groups.consumer.state import ConsumerGroupMember
from data_plane.coordinator.groups.consumer_records import MemberMetadata
from data_plane.coordinator.groups.messages import (
    CommittedOffset,
    DescribedGroup,
    DescribedMember,
    FetchOffsets,
    ListedGroup,
    OffsetsReply,
)
from data_plane.coordinator.transactions.records import TransactionMetadata, TransactionState
from data_plane.log.producers import ProducerStateEntry
from kraft.api import config_resources, consumer_groups, group_admin, group_offsets, transactions
from kraft.net.connection_state import ConnectionState
from metadata_quorum.foundation.features import GROUP_VERSION
from metadata_quorum.foundation.model import ResourceType, TopicPartition
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from tests.support.contexts import broker_context, node_context

pytestmark = pytest.mark.row("P7")

MANY: Final = 12_000
IN_A_TURN: Final = 2_001
"""The largest slice, and the item that the loop over it has in hand."""


class Turns:
    """How much was looked at in the busiest turn of the loop."""

    def __init__(self) -> None:
        self.most = self.now = 0

    def each(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.now += 1
            self.most = max(self.most, self.now)
            yield item

    async def watched(self, asked: Coroutine[Any, Any, Any]) -> Any:
        answering = asyncio.ensure_future(asked)
        while not answering.done():
            await asyncio.sleep(0)
            self.now = 0
        return await answering


def test_very_many_groups_are_listed_in_slices() -> None:
    """A hundred thousand of them took a fifth of a second of the loop."""
    turns = Turns()

    async def list_groups() -> AsyncIterator[Sequence[ListedGroup]]:
        for part in range(10):
            yield TurnList(turns, [ListedGroup(f"{part}-{n}", "consumer", "Stable") for n in range(MANY)])

    async def ask() -> Any:
        node = node_context(asyncio.get_running_loop())
        groups: Any = SimpleNamespace(list_groups=list_groups)
        broker = broker_context(node, group_coordinator=groups)
        ctx: Any = SimpleNamespace(version=5)
        request = SimpleNamespace(states_filter=["stable"], types_filter=None)
        return await turns.watched(group_admin.handle_list(broker, ctx, request))

    assert len(asyncio.run(ask())["groups"]) == 10 * MANY
    assert turns.most <= IN_A_TURN


class TurnList(list[Any]):
    def __init__(self, turns: Turns, items: Iterable[Any]) -> None:
        super().__init__(items)
        self._turns = turns

    def __iter__(self) -> Iterator[Any]:
        return self._turns.each(super().__iter__())


def test_very_many_resources_with_configurations_are_listed_in_slices() -> None:
    turns = Turns()

    class Configs(dict[Any, Any]):
        def __iter__(self) -> Iterator[Any]:
            return turns.each(super().__iter__())

    async def ask() -> Any:
        of_topics = {(ResourceType.TOPIC, f"t{n}"): {} for n in range(MANY)}
        of_groups = {(ResourceType.GROUP, f"g{n}"): {} for n in range(MANY)}
        image = MetadataImage(configs=Configs({**of_topics, **of_groups}))
        node = node_context(asyncio.get_running_loop(), image=image)
        ctx: Any = SimpleNamespace(version=1, listener="CLIENTS")
        request = SimpleNamespace(resource_types=[int(ResourceType.GROUP)])
        return await turns.watched(config_resources.handle(broker_context(node), ctx, request))

    answer = asyncio.run(ask())["config_resources"]
    assert {each["resource_name"] for each in answer} == {f"g{n}" for n in range(MANY)}
    assert turns.most <= IN_A_TURN


def test_members_of_very_many_groups_are_described_in_slices() -> None:
    """However few groups they are in: a hundred of five hundred members each took a tenth of a second."""
    turns = Turns()
    member = DescribedMember("m", None, "c", "/h", b"", b"")

    async def describe_group(group_id: str) -> DescribedGroup:
        members: Any = TurnList(turns, [member] * 500)
        return DescribedGroup(group_id, "Stable", members=members)

    async def ask() -> Any:
        node = node_context(asyncio.get_running_loop())
        groups: Any = SimpleNamespace(describe_group=describe_group, size_of=lambda _: 500)
        request = SimpleNamespace(groups=[f"g{n}" for n in range(50)], include_authorized_operations=False)
        ctx: Any = SimpleNamespace(version=6)
        broker = broker_context(node, group_coordinator=groups)
        return await turns.watched(group_admin.handle_describe(broker, ctx, request))

    answer = asyncio.run(ask())["groups"]
    assert [len(each["members"]) for each in answer] == [500] * 50
    assert turns.most <= IN_A_TURN


def test_members_of_the_consumer_protocol_are_described_in_slices() -> None:
    turns = Turns()
    metadata = MemberMetadata(subscribed_topic_names=("t",))
    member = DescribedConsumerMember(ConsumerGroupMember("m", metadata), {})

    async def describe_consumer_group(group_id: str) -> DescribedConsumerGroup:
        members: Any = TurnList(turns, [member] * MANY)
        return DescribedConsumerGroup(group_id, "Stable", 1, 1, "uniform", members)

    async def ask() -> Any:
        config = SimpleNamespace(group_coordinator_rebalance_protocols=["consumer"])
        image = MetadataImage(features={GROUP_VERSION: 1})
        node = node_context(asyncio.get_running_loop(), config=config, image=image)
        groups: Any = SimpleNamespace(describe_consumer_group=describe_consumer_group, size_of=lambda _: MANY)
        request = SimpleNamespace(group_ids=["g"], include_authorized_operations=False)
        broker = broker_context(node, group_coordinator=groups)
        ctx: Any = None
        return await turns.watched(consumer_groups.handle_describe(broker, ctx, request))

    (answer,) = asyncio.run(ask())["groups"]
    assert len(answer["members"]) == MANY
    assert turns.most <= IN_A_TURN


@pytest.mark.parametrize("version", [9, 10])
def test_all_offsets_of_a_group_are_answered_in_slices(version: int) -> None:
    turns = Turns()

    class Offsets(dict[Any, Any]):
        def __getitem__(self, place: Any) -> Any:
            turns.now += 1
            turns.most = max(turns.most, turns.now)
            return super().__getitem__(place)

    places = [TopicPartition(f"t{n % 100:02}", n // 100) for n in range(MANY)]
    kept: Any = Offsets({place: CommittedOffset(n) for n, place in enumerate(reversed(places))})

    async def fetch_offsets(wanted: FetchOffsets) -> OffsetsReply:
        return OffsetsReply(kept)

    async def ask() -> Any:
        topics = {f"t{n:02}": TopicImage(f"t{n:02}", UUID(int=n + 1), {}) for n in range(100)}
        node = node_context(asyncio.get_running_loop(), image=MetadataImage(topics_by_name=topics))
        groups: Any = SimpleNamespace(fetch_offsets=fetch_offsets)
        group = SimpleNamespace(group_id="g", member_id=None, member_epoch=-1, topics=None)
        request = SimpleNamespace(groups=[group], require_stable=False)
        ctx: Any = SimpleNamespace(version=version, connection=SimpleNamespace(state=ConnectionState()))
        broker = broker_context(node, group_coordinator=groups)
        return await turns.watched(group_offsets.handle_fetch(broker, ctx, request))

    (answer,) = asyncio.run(ask())["groups"]
    assert len(answer["topics"]) == 100
    assert turns.most <= IN_A_TURN
    found = [place["committed_offset"] for topic in answer["topics"] for place in topic["partitions"]]
    assert found == [kept[place].offset for place in sorted(places)]


def test_very_many_producers_of_a_partition_are_described_in_slices() -> None:
    """A hundred thousand took a tenth of a second of the loop, and a client may have them made up."""
    turns = Turns()

    class States(dict[Any, Any]):
        def get(self, producer_id: Any, default: Any = None) -> Any:
            turns.now += 1
            turns.most = max(turns.most, turns.now)
            return super().get(producer_id, default)

    states = States({n: ProducerStateEntry(n % 7) for n in reversed(range(MANY))})
    log = SimpleNamespace(producers=SimpleNamespace(states=states))
    partition = SimpleNamespace(log=log, check_epoch=lambda *_, **__: None)

    async def ask() -> Any:
        replicas = SimpleNamespace(get=lambda *_: partition)
        broker = broker_context(node_context(asyncio.get_running_loop()), replica_manager=replicas)
        request = SimpleNamespace(topics=[SimpleNamespace(name="t", partition_indexes=[0, 0])])
        ctx: Any = None
        asked = asyncio.ensure_future(transactions.handle_producers(broker, ctx, request))
        await asyncio.sleep(0)
        states.pop(MANY - 1)
        return await turns.watched(_waited(asked))

    ((partition_answer,),) = [each["partitions"] for each in asyncio.run(ask())["topics"]]
    found = [(each["producer_id"], each["producer_epoch"]) for each in partition_answer["active_producers"]]
    assert found == [(n, n % 7) for n in range(MANY - 1)]
    assert turns.most <= IN_A_TURN


async def _waited(asked: asyncio.Future[Any]) -> Any:
    return await asked


def test_very_many_partitions_of_a_transaction_are_described_in_slices() -> None:
    turns = Turns()

    class Partitions(frozenset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return turns.each(super().__iter__())

    named = [TopicPartition(f"t{n % 10}", n // 10) for n in range(MANY)]
    known = TransactionMetadata(
        producer_id=1, producer_epoch=0, timeout_ms=1, state=TransactionState.ONGOING,
        partitions=Partitions(named),
    )  # fmt: skip

    async def describe(_: str) -> TransactionMetadata:
        return known

    async def ask() -> Any:
        coordinator = SimpleNamespace(describe=describe)
        broker = broker_context(node_context(asyncio.get_running_loop()), transaction_coordinator=coordinator)
        ctx: Any = None
        request = SimpleNamespace(transactional_ids=["x"])
        return await turns.watched(transactions.handle_describe(broker, ctx, request))

    (answer,) = asyncio.run(ask())["transaction_states"]
    assert answer["topics"] == [{"topic": f"t{n}", "partitions": list(range(MANY // 10))} for n in range(10)]
    assert turns.most <= IN_A_TURN
