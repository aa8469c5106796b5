"""Sixty-four requests begin in one turn of the loop, and each does a little before it waits for its turn.
What is heavy by itself, such as one topic of very many partitions, is none of that little."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

import pytest

from kraft.api import (
    config_validation,
    configs,
    consumer_groups,
    group_admin,
    group_offsets,
    groups,
    metadata,
    topics,
)
from kraft.api.context import NodeContext
from kraft.api.long_work import AT_ONCE, LongWork
from kraft.api.slices import FIRST_SHARE, ITEMS_PER_COMMAND, in_batches, in_slices
from kraft.broker.failover_metadata import FailoverMetadata
from kraft.net.connection_state import ConnectionState
from kraft.net.turn_budget import SHARE
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.features import GROUP_VERSION
from metadata_quorum.foundation.model import PartitionRegistration, ResourceType
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from tests.support.contexts import broker_context, controller_context, node_context
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
    monkeypatch.setattr(NodeContext, "computing", called)
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


async def called(_: NodeContext, work: Callable[[], Any]) -> Any:
    """In the place of a thread."""
    return work()


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


@on_a_loop
async def test_heavy_commands_share_a_turn() -> None:
    """One that only validates is judged at once, before the controller is heard."""
    turns, work = Turns(), LongWork(asyncio.get_running_loop())

    async def ask(items: Any) -> Any:
        turns.add(sum(items))
        return items

    heavy = [ITEMS_PER_COMMAND // 4] * 2
    await turns.all_at_once(lambda: in_batches(work, heavy, ask, lambda each: each))
    assert turns.most <= 2 * ITEMS_PER_COMMAND


@on_a_loop
async def test_groups_of_very_many_empty_partitions_are_asked_for_in_turns() -> None:
    turns, parts = Turns(), 50

    async def list_groups() -> Any:
        for _ in range(parts):
            turns.add(1)
            yield ()

    coordinator = SimpleNamespace(list_groups=list_groups)
    broker = broker_context(node_context(asyncio.get_running_loop()), group_coordinator=coordinator)
    request: Any = SimpleNamespace(states_filter=None, types_filter=None)
    unused: Any = None
    await turns.all_at_once(lambda: group_admin.handle_list(broker, unused, request))
    assert turns.most <= (SHARE + 1) * group_admin.PARTS_PER_TURN < SHARE * parts


class Groups:
    """Takes every offset."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.committed: list[int] = []

    async def commit_offsets(self, commit: Any) -> Any:
        self.turns.add(len(commit.offsets))
        self.committed.append(commit.offsets[0].offset)
        return SimpleNamespace(errors=dict.fromkeys((each.partition for each in commit.offsets), 0))

    def commit(self, broker: Any, ctx: Any, partitions: int, offset: int) -> Awaitable[Any]:
        wanted = [
            SimpleNamespace(
                partition_index=n, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
            )
            for n in range(partitions)
        ]
        request: Any = SimpleNamespace(
            topics=[SimpleNamespace(name="t", partitions=wanted)],
            group_id="g",
            member_id="",
            generation_id_or_member_epoch=-1,
            group_instance_id=None,
            retention_time_ms=-1,
        )
        return group_offsets.handle_commit(broker, ctx, request)


def committing(groups: Groups) -> Any:
    topics = {"t": TopicImage("t", UUID(int=1), Partitions(groups.turns))}
    image = MetadataImage(topics_by_name=topics, features={GROUP_VERSION: 1})
    return broker_context(node_context(asyncio.get_running_loop(), image=image), group_coordinator=groups)


def connection() -> Any:
    return SimpleNamespace(version=8, connection=SimpleNamespace(state=ConnectionState(), gone=False))


@on_a_loop
async def test_many_offsets_of_many_clients_are_committed_in_turns() -> None:
    groups = Groups()
    broker = committing(groups)
    await groups.turns.all_at_once(lambda: groups.commit(broker, connection(), 200, 1))
    assert len(groups.committed) == SHARE
    assert groups.turns.most <= 2 * group_offsets.COMMITTED_PER_SLICE


@on_a_loop
async def test_the_offsets_of_one_connection_are_committed_in_their_order() -> None:
    """Few behind many, when others have filled the turn."""
    groups = Groups()
    broker, ctx = committing(groups), connection()
    few = group_offsets.COMMITTED_PER_SLICE // FIRST_SHARE - 2
    others = [asyncio.ensure_future(groups.commit(broker, connection(), 200, 0)) for _ in range(9)]
    asked = [
        asyncio.ensure_future(groups.commit(broker, ctx, partitions, number))
        for number, partitions in enumerate((few, 200, few, 200, few), 1)
    ]
    await asyncio.gather(*others, *asked)
    assert [each for each in groups.committed if each] == [1, 2, 3, 4, 5]


def of_a_member(**fields: Any) -> Any:
    """The request of one, in which everything else is empty."""
    names = ("member_id", "instance_id", "group_instance_id", "subscribed_topic_names")
    names += ("subscribed_topic_regex", "server_assignor", "topic_partitions", "rack_id", "protocol_type")
    empty = dict.fromkeys(names, None) | {"group_id": "g", "protocols": (), "members": (), "topics": None}
    return SimpleNamespace(**empty | fields)


BEHIND: Final[dict[str, tuple[Any, int, Any]]] = {
    "join": (groups.handle_join, 5, of_a_member(session_timeout_ms=1, rebalance_timeout_ms=1)),
    "leave": (groups.handle_leave, 2, of_a_member()),
    "fetch_offsets": (group_offsets.handle_fetch, 7, of_a_member(require_stable=False)),
    "consumer_heartbeat": (consumer_groups.handle_heartbeat, 0, of_a_member(
        member_id="m", member_epoch=-1, rebalance_timeout_ms=-1, topic_partitions=(),
    )),
    "delete_offsets": (group_offsets.handle_delete, 0, of_a_member(topics=())),
    "delete_group": (group_admin.handle_delete, 2, of_a_member(groups_names=["g"])),
}  # fmt: skip
"""What one connection sends behind its commit, and the coordinator's name for it."""


@on_a_loop
@pytest.mark.parametrize("name", BEHIND)
async def test_what_comes_behind_a_commit_finds_it_committed(name: str) -> None:
    """One that has left is no member; a group that was deleted would be there again."""
    coordinator, order = Groups(), list[str]()
    handler, version, request = BEHIND[name]

    async def asked(*_: Any) -> Any:
        order.append(name)
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)

    async def committed(commit: Any) -> Any:
        order.append("committed")
        return await Groups.commit_offsets(coordinator, commit)

    setattr(coordinator, name, asked)
    broker, ctx = committing(coordinator), connection()
    broker.node.config.group_coordinator_rebalance_protocols = ("consumer",)
    broker.node.config.group_consumer_assignors = ()
    coordinator.commit_offsets = committed  # type: ignore[method-assign]
    sent = [asyncio.ensure_future(broker.node.long_work.first(1.0)) for _ in range(3)]  # others
    sent.append(asyncio.ensure_future(coordinator.commit(broker, ctx, 200, 1)))
    ctx = SimpleNamespace(connection=ctx.connection, version=version, client_id="", client_host="")
    sent.append(asyncio.ensure_future(handler(broker, ctx, request)))
    await asyncio.gather(*sent, return_exceptions=True)
    assert order == ["committed", name]


class Judge:
    """Of topics: how many partitions are judged in the busiest turn of the loop."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.image = MetadataImage(topics_by_name={"t": TopicImage("t", UUID(int=1), Partitions(Turns()))})

    async def create_topics(self, wanted: Any, **_: Any) -> Any:
        self.turns.add(sum(each.num_partitions for each in wanted))
        refused = ErrorCode.POLICY_VIOLATION
        return [SimpleNamespace(name=each.name, error=refused, message="") for each in wanted]

    async def create_partitions(self, wanted: Any, **_: Any) -> Any:
        self.turns.add(sum(each.count for each in wanted))
        return [SimpleNamespace(error=ErrorCode.NONE, message="") for _ in wanted]


@on_a_loop
@pytest.mark.parametrize("handler", [topics.handle_create_topics, topics.handle_create_partitions])
async def test_wide_topics_of_many_clients_are_judged_in_turns(handler: Any) -> None:
    judge: Any = Judge()
    node = node_context(asyncio.get_running_loop(), quotas=None, config=SimpleNamespace(num_partitions=1))
    monitored = controller_context(node, quorum_controller=judge)
    is_new = handler is topics.handle_create_topics
    wanted = SimpleNamespace(
        name="new" if is_new else "t", num_partitions=PARTITIONS + 100, count=PARTITIONS + 100,
        replication_factor=1, configs=[], assignments=[] if is_new else None,
    )  # fmt: skip
    request: Any = SimpleNamespace(topics=[wanted], validate_only=True, timeout_ms=0)
    ctx: Any = SimpleNamespace(version=3, api_key=0)
    if is_new:
        node.config.topic_defaults, node.config.given = {}, {}
    await judge.turns.all_at_once(lambda: handler(monitored, ctx, request))
    assert 0 < judge.turns.most <= 2 * PARTITIONS_PER_COMMAND


@on_a_loop
async def test_new_topics_of_many_clients_are_described_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """All were created in one turn, and each has thirty settings."""
    turns, created = Turns(), asyncio.Barrier(SHARE)

    async def create_topics(wanted: Any, **_: Any) -> Any:
        await created.wait()
        return [
            SimpleNamespace(
                error=ErrorCode.NONE, name=each.name, topic_id=UUID(int=1), partitions=1, replication_factor=1
            )
            for each in wanted
        ]

    def described(node: Any, own: Any) -> Any:
        turns.add(1)
        return iter(())

    monkeypatch.setattr(topics, "topic_configs", described)
    judge: Any = SimpleNamespace(image=MetadataImage(), create_topics=create_topics)
    node = node_context(asyncio.get_running_loop(), quotas=None, config=SimpleNamespace(num_partitions=1))
    wanted = SimpleNamespace(name="new", num_partitions=1, replication_factor=1, configs=[], assignments=[])
    request: Any = SimpleNamespace(topics=[wanted], validate_only=False, timeout_ms=0)
    ctx: Any = SimpleNamespace(version=7, api_key=0)
    answers = await turns.all_at_once(
        lambda: topics.handle_create_topics(controller_context(node, quorum_controller=judge), ctx, request)
    )
    assert all(each["topics"][0]["configs"] == [] for each in answers)
    assert 0 < turns.most <= 2 * topics.CREATED_PER_SLICE


PARTITIONS_PER_COMMAND: Final = topics.PARTITIONS_AS_ONE * ITEMS_PER_COMMAND


@on_a_loop
@pytest.mark.parametrize("handler", [topics.handle_create_topics, config_validation.outcomes])
async def test_long_values_are_checked_few_in_one_turn(handler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four hundred topics with a list of 32 KiB each, all took one turn."""
    turns, long = Turns(), "x" * 32_000

    def check(values: dict[str, str]) -> None:
        turns.add(sum(map(len, values.values())))
        raise BrokerError(ErrorCode.INVALID_CONFIG, "not this time")

    monkeypatch.setattr(topics, "check_topic_values", check)
    monkeypatch.setattr(config_validation, "check_topic_values", check)
    config = SimpleNamespace(num_partitions=1, topic_defaults={}, given={})
    node = node_context(asyncio.get_running_loop(), quotas=None, config=config)
    each = [SimpleNamespace(name="cleanup.policy", value=long, config_operation=0)]

    def ask() -> Any:
        if handler is config_validation.outcomes:
            altered: Any = [
                SimpleNamespace(resource_type=ResourceType.TOPIC, resource_name=f"t{n}", configs=each)
                for n in range(40)
            ]
            return handler(node, altered, incremental=True)
        wanted = [
            SimpleNamespace(
                name=f"t{n}", num_partitions=1, replication_factor=1, configs=each, assignments=[]
            )
            for n in range(40)
        ]
        request: Any = SimpleNamespace(topics=wanted, validate_only=True, timeout_ms=0)
        ctx: Any = SimpleNamespace(version=7, api_key=0)
        return handler(controller_context(node, quorum_controller=judge), ctx, request)

    async def nothing(wanted: Any, **_: Any) -> Any:
        return []

    judge: Any = SimpleNamespace(image=MetadataImage(), create_topics=nothing)
    await turns.all_at_once(ask)
    slice_chars = config_validation.CHARS_AS_ONE * topics.NAMED_PER_SLICE
    assert 0 < turns.most <= 3 * slice_chars
