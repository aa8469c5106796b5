"""Requests that name very much, or the same thing very often: they cost what they say, not its square."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraft.api import auto_topic_creation, quorum, scram_credentials
from kraft.api.add_partitions import (
    ADDED_AT_ONCE,
    TRANSACTIONS_AT_ONCE,
    add_partitions_error,
    handle_add_partitions,
)
from kraft.api.authz.group_checks import add_partitions, offset_fetch
from kraft.api.group_offsets import fetch_error
from kraft.api.groups import COORDINATORS_PER_SLICE, handle_find_coordinator
from kraft.api.long_work import LongWork
from kraft.api.metadata import TOPICS_PER_SLICE, handle_describe_topic_partitions
from kraft.api.offsets import PARTITIONS_PER_SLICE, handle_list_offsets
from kraft.api.slices import ITEMS_PER_COMMAND, in_batches, is_long
from kraft.api.slices import MANY as MANY_STRUCTS
from kraft.api.transactions import MARKERS_PER_SLICE, handle_write_markers
from kraft.net.connection_state import ConnectionState
from kraft.wire.api_keys import ApiKey
from metadata_quorum.decisions import client_quotas
from metadata_quorum.decisions import topics as decisions
from metadata_quorum.decisions.scram import alter_user_scram
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import PartitionRecord, QuotaEntity, TopicRecord
from metadata_quorum.protocol.commands import (
    AlterClientQuotas,
    AlterUserScram,
    CreateTopics,
    NewTopic,
    QuotaAlteration,
    QuotaOperation,
)
from metadata_quorum.protocol.replies import ElectionResult
from tests.support.contexts import broker_context, controller_context, node_context
from tests.support.virtual_loop import run_virtually

MANY = 10_000


class Counted:
    """Counts how often anything of it is compared."""

    compared = 0

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return self is other

    __hash__ = None  # type: ignore[assignment]


def topic(**fields: Any) -> Any:
    return Counted(**fields)


class NoReplicas:
    """The replica manager of a broker that has none."""

    def get(self, topic: str, partition: int) -> Any:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_offsets_of_one_partition_asked_for_ten_thousand_times_are_refused_each_time() -> None:
    wanted = [SimpleNamespace(partition_index=0, timestamp=-1, current_leader_epoch=-1)] * MANY
    request: Any = SimpleNamespace(
        topics=[SimpleNamespace(name="t", partitions=wanted)], replica_id=-1, isolation_level=0
    )
    ctx: Any = SimpleNamespace(version=10)
    turns = 0

    async def ask() -> None:
        nonlocal turns
        broker = broker_context(node_context(asyncio.get_running_loop()), replica_manager=NoReplicas())
        asked = asyncio.ensure_future(handle_list_offsets(broker, ctx, request))
        while not asked.done():
            turns += 1
            await asyncio.sleep(0)
        (found,) = asked.result()["topics"]
        assert {each["error_code"] for each in found["partitions"]} == {ErrorCode.INVALID_REQUEST}

    run_virtually(ask())
    assert turns >= MANY / PARTITIONS_PER_SLICE


def test_who_may_see_no_topic_costs_no_comparisons() -> None:
    """Messages have no hash, and to compare them compares all that is in them."""
    Counted.compared = 0
    named = [topic(name=f"t{n}", topic_id=UUID(int=0), partition_indexes=[0]) for n in range(100)]
    group: Any = SimpleNamespace(group_id="g", topics=named)
    ctx: Any = SimpleNamespace(version=8)
    allowed: Any = SimpleNamespace(
        is_authorized=lambda operation, resource, name="": name == "g", log_denied=lambda *_: None
    )
    request: Any = SimpleNamespace(groups=[group])
    node: Any = SimpleNamespace()
    authorized: Any = offset_fetch(fetch_error)(allowed, node, ctx, request)
    assert [each.topics for each in authorized.request.groups] == [[]]
    assert group.topics is named
    assert Counted.compared == 0


def test_partitions_of_topics_that_may_not_be_written_cost_no_comparisons() -> None:
    Counted.compared = 0

    class Request:
        def __init__(self) -> None:
            self.v3_and_below_transactional_id = "mine"
            self.v3_and_below_topics = [topic(name=f"t{n}", partitions=[0]) for n in range(100)]

    allowed: Any = SimpleNamespace(
        is_authorized=lambda operation, resource, name="": name == "t0", require_authorized=lambda *_: None
    )
    ctx: Any = SimpleNamespace(version=3)
    request: Any = Request()
    node: Any = SimpleNamespace()
    answer: Any = add_partitions(add_partitions_error)(allowed, node, ctx, request)
    assert len(answer["results_by_topic_v3_and_below"]) == 100
    assert Counted.compared == 0


def test_names_that_look_alike_are_searched_once_per_request(monkeypatch: Any) -> None:
    """A request for many topics beside many others: each of those is looked at once."""
    delta = MetadataDelta(EMPTY_IMAGE)
    for n in range(1000):
        delta.replay(TopicRecord(name=f"there.{n}", topic_id=UUID(int=n + 1)))
    image = delta.apply()
    blurred: Callable[[str], str] = decisions.blurred_name
    looked: list[str] = []
    monkeypatch.setattr(decisions, "blurred_name", lambda name: looked.append(name) or blurred(name))
    wanted = [f"new.{n}" for n in range(500)] + ["there_7", "new_3"]
    decision = decisions.create_topics(
        image,
        CreateTopics(
            topics=tuple(
                NewTopic(name=name, topic_id=UUID(int=10_000 + n), partitions=0, replication_factor=1)
                for n, name in enumerate(wanted)
            )
        ),
    )
    results: Any = decision.reply
    assert "collides with existing topic: there.7" in results[-2].message
    assert len(looked) < 3000


def test_topics_on_demand_are_created_so_many_at_a_time() -> None:
    async def asked() -> None:
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def ask(*_: object) -> Any:
            return await never

        channel = SimpleNamespace(request=ask)
        config = SimpleNamespace(num_partitions=1, default_replication_factor=1)
        loop = asyncio.get_running_loop()
        broker = broker_context(node_context(loop, config=config, controller_channel=channel))
        begun = [auto_topic_creation.request_creation(broker, f"t{n}") for n in range(MANY)]
        assert sum(begun) == auto_topic_creation.MOST_AT_ONCE
        assert not auto_topic_creation.request_creation(broker, "no/name")
        assert len(broker.creating_topics) == auto_topic_creation.MOST_AT_ONCE
        for task in broker.creating_topics.values():
            task.cancel()

    run_virtually(asked())


def test_long_answers_are_known_by_their_structs() -> None:
    def answer(topics: int, partitions: int) -> Any:
        return {"topics": [{"name": "t", "partitions": [{"index": 0}] * partitions}] * topics}

    assert not is_long(answer(10, 10))
    assert is_long(answer(MANY_STRUCTS, 0))
    assert is_long(answer(2, MANY_STRUCTS))
    assert not is_long({"error_code": 0, "members": [b"x"] * MANY_STRUCTS, "text": "x" * MANY_STRUCTS})


def test_quotas_of_many_entities_are_each_looked_at_once(monkeypatch: Any) -> None:
    looked: list[QuotaAlteration] = []
    entity_key = client_quotas.entity_key
    monkeypatch.setattr(client_quotas, "entity_key", lambda each: looked.append(each) or entity_key(each))
    alterations = tuple(
        QuotaAlteration(
            entity=(QuotaEntity(entity_type="user", entity_name=f"u{n}"),),
            operations=(QuotaOperation(key="producer_byte_rate", value=1.0, remove=False),),
        )
        for n in range(500)
    )
    twice = AlterClientQuotas(alterations=(*alterations, alterations[7]))
    decision = client_quotas.alter_client_quotas(EMPTY_IMAGE, twice)
    results: Any = decision.reply
    assert [each.entity for each in results if each.error] == [(("user", "u7"),)]
    assert len(decision.records) == 499
    assert len(looked) < 3 * 500


def test_a_controller_is_asked_so_many_at_a_time_and_at_least_once() -> None:
    asked: list[int] = []

    async def ask(items: Sequence[int]) -> list[int]:
        asked.append(len(items))
        return [item * 2 for item in items]

    async def test() -> None:
        work = LongWork(asyncio.get_running_loop())
        assert await in_batches(work, range(2 * ITEMS_PER_COMMAND + 1), ask) == [
            2 * item for item in range(2 * ITEMS_PER_COMMAND + 1)
        ]
        assert await in_batches(work, [], ask) == []

    run_virtually(test())
    assert asked == [ITEMS_PER_COMMAND, ITEMS_PER_COMMAND, 1, 0]


def test_leaders_are_elected_so_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []

    async def elect(kind: int, wanted: Sequence[TopicPartition] | None, **_: object) -> list[ElectionResult]:
        asked.append(None if wanted is None else len(wanted))
        return [ElectionResult(tp.topic, tp.partition) for tp in wanted or ()]

    topics = [SimpleNamespace(topic="t", partitions=list(range(ITEMS_PER_COMMAND + 1)))]

    async def test() -> None:
        node = node_context(asyncio.get_running_loop())
        controller = controller_context(node, quorum_controller=SimpleNamespace(elect_leaders=elect))
        for wanted in (topics, None):
            request: Any = SimpleNamespace(election_type=0, topic_partitions=wanted, timeout_ms=1000)
            answer: Any = await quorum.handle_elect_leaders(controller, SimpleNamespace(), request)  # type: ignore[arg-type]
            elected = [len(each["partition_result"]) for each in answer["replica_election_results"]]
            assert elected == ([ITEMS_PER_COMMAND + 1] if wanted else [])

    run_virtually(test())
    assert asked == [ITEMS_PER_COMMAND, 1, None]


def _turns(asked: Callable[[LongWork], Coroutine[Any, Any, Any]]) -> int:
    """How many turns of the loop it takes."""
    turns = 0

    async def ask() -> None:
        nonlocal turns
        task = asyncio.ensure_future(asked(LongWork(asyncio.get_running_loop())))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert len(next(iter(task.result().values()))) == MANY

    run_virtually(ask())
    return turns


def test_very_many_coordinators_are_found_in_slices() -> None:
    request: Any = SimpleNamespace(key_type=9, coordinator_keys=[str(n) for n in range(MANY)])
    ctx: Any = SimpleNamespace(version=4)

    def ask(work: LongWork) -> Coroutine[Any, Any, Any]:
        broker: Any = SimpleNamespace(node=SimpleNamespace(long_work=work), client_image=EMPTY_IMAGE)
        return handle_find_coordinator(broker, ctx, request)

    assert _turns(ask) >= MANY / COORDINATORS_PER_SLICE


def test_very_many_topics_are_described_in_slices() -> None:
    async def computing(work: Callable[[], Any]) -> Any:
        return work()

    topics = [SimpleNamespace(name=f"t{n}") for n in range(MANY)]
    request: Any = SimpleNamespace(topics=topics, response_partition_limit=2000, cursor=None)
    ctx: Any = SimpleNamespace(version=0, listener="CLIENTS")
    config = SimpleNamespace(max_request_partition_size_limit=2000)

    def ask(work: LongWork) -> Coroutine[Any, Any, Any]:
        node: Any = SimpleNamespace(
            image=EMPTY_IMAGE, config=config, computing=computing, long_work=work, authorizer=None
        )
        return handle_describe_topic_partitions(broker_context(node), ctx, request)

    assert _turns(ask) >= MANY / TOPICS_PER_SLICE


@pytest.mark.parametrize(("markers", "partitions"), [(1, 1000), (1000, 1), (3, 120)])
def test_very_many_markers_are_written_in_slices(markers: int, partitions: int) -> None:
    at_once: list[int] = [0]

    class Writer:
        async def write(
            self, producer: Any, epoch: int, wanted: list[TopicPartition], **_: Any
        ) -> dict[TopicPartition, ErrorCode]:
            at_once[-1] += len(wanted)
            return dict.fromkeys(wanted, ErrorCode.NONE)

    async def ask() -> None:
        topic = SimpleNamespace(name="t", partition_indexes=list(range(partitions)))
        marker = SimpleNamespace(
            producer_id=1,
            producer_epoch=0,
            coordinator_epoch=0,
            topics=[topic],
            transaction_result=True,
            transaction_version=0,
        )
        broker = broker_context(node_context(asyncio.get_running_loop()), marker_writer=Writer())
        request: Any = SimpleNamespace(markers=[marker] * markers)
        asked = asyncio.ensure_future(handle_write_markers(broker, SimpleNamespace(), request))  # type: ignore[arg-type]
        while not asked.done():
            at_once.append(0)
            await asyncio.sleep(0)
        answers = asked.result()["markers"]
        assert len(answers) == markers
        assert all(len(each["topics"][0]["partitions"]) == partitions for each in answers)

    run_virtually(ask())
    assert sum(at_once) == markers * partitions
    assert max(at_once) <= 2 * MARKERS_PER_SLICE


class Transactions:
    """The transaction coordinator; which partitions it was asked for at once."""

    def __init__(self) -> None:
        self.added: list[int] = []
        self.at_once = self.most_at_once = 0

    async def add_partitions(self, name: str, producer: Any, partitions: Any, version: int) -> None:
        self.added.append(len(partitions))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1


def there(partitions: int) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(TopicRecord(name="t", topic_id=UUID(int=1)))
    for number in range(partitions):
        delta.replay(PartitionRecord(topic_id=UUID(int=1), partition_id=number, replicas=(1,), isr=(1,)))
    return delta.apply()


def add_partitions_answered(
    version: int, request: Any, *, gone: bool = False
) -> tuple[Transactions, Mapping[str, Any], int]:
    """What was added, the answer, and the turns of the loop that it took."""
    coordinator, turns, answers = Transactions(), 0, []

    async def ask() -> None:
        nonlocal turns
        node = node_context(asyncio.get_running_loop(), image=there(partitions=3))
        broker = broker_context(node, transaction_coordinator=coordinator)
        ctx: Any = SimpleNamespace(
            version=version,
            api_key=ApiKey.ADD_PARTITIONS_TO_TXN,
            connection=SimpleNamespace(gone=gone, state=ConnectionState()),
        )
        asked = asyncio.ensure_future(handle_add_partitions(broker, ctx, request))
        while not asked.done():
            turns += 1
            await asyncio.sleep(0)
        answers.append(asked.result())

    run_virtually(ask())
    return coordinator, answers[0], turns


def adding(partitions: Sequence[int]) -> Any:
    return SimpleNamespace(
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=0,
        v3_and_below_transactional_id="x",
        v3_and_below_topics=[SimpleNamespace(name="t", partitions=partitions)],
    )


def test_very_many_partitions_are_added_to_a_transaction_at_once_or_not_at_all() -> None:
    """They are looked up in many turns of the loop, and the record has all of them."""
    coordinator, answer, turns = add_partitions_answered(3, adding([0, 1, 2] * MANY))
    assert turns >= 3 * MANY / ADDED_AT_ONCE
    assert coordinator.added == [3]
    rows = answer["results_by_topic_v3_and_below"][0]["results_by_partition"]
    assert [each["partition_error_code"] for each in rows] == [0] * 3 * MANY
    coordinator, answer, _ = add_partitions_answered(3, adding([*range(3)] * MANY + [3]))
    assert coordinator.added == []
    rows = answer["results_by_topic_v3_and_below"][0]["results_by_partition"]
    codes = [each["partition_error_code"] for each in rows]
    assert codes[-1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(codes[:-1]) == {ErrorCode.OPERATION_NOT_ATTEMPTED}


def test_a_producer_that_has_gone_begins_no_transaction() -> None:
    """Over another connection it may have ended the one that it meant."""
    assert add_partitions_answered(3, adding([0, 1, 2]), gone=True)[0].added == []


def test_of_very_many_transactions_some_are_looked_after_at_once() -> None:
    each = SimpleNamespace(
        transactional_id="x",
        producer_id=7,
        producer_epoch=0,
        verify_only=False,
        topics=[SimpleNamespace(name="t", partitions=[0])],
    )
    coordinator, answer, _ = add_partitions_answered(5, SimpleNamespace(transactions=[each] * 1050))
    assert coordinator.added == [1] * 1050
    assert coordinator.most_at_once == TRANSACTIONS_AT_ONCE
    assert len(answer["results_by_transaction"]) == 1050


def test_very_many_scram_users_are_several_commands_and_each_user_is_judged_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twice the same mechanism is refused however many users stand between; two mechanisms are not."""
    commands: list[AlterUserScram] = []

    class Controller:
        async def propose(self, command: AlterUserScram) -> Any:
            commands.append(command)
            return alter_user_scram(EMPTY_IMAGE, command).reply

    def wanted(name: str, mechanism: int) -> Any:
        return SimpleNamespace(
            name=name, mechanism=mechanism, salt=b"s", salted_password=b"p", iterations=4096
        )

    names = [f"user{number}" for number in range(3 * ITEMS_PER_COMMAND)]
    upsertions = [wanted(name, 1) for name in names]
    upsertions += [wanted("user0", 2), *[wanted("user1", 1)] * MANY]
    request: Any = SimpleNamespace(deletions=[], upsertions=upsertions)
    turns = 0

    async def ask() -> None:
        nonlocal turns
        node = node_context(asyncio.get_running_loop())
        controller = controller_context(node, quorum_controller=Controller())
        asked = asyncio.ensure_future(
            scram_credentials.handle_alter(controller, SimpleNamespace(), request)  # type: ignore[arg-type]
        )
        while not asked.done():
            turns += 1
            await asyncio.sleep(0)
        codes = {each["user"]: each["error_code"] for each in asked.result()["results"]}
        assert list(codes) == names
        assert {name for name, code in codes.items() if code} == {"user1"}
        assert codes["user1"] == ErrorCode.DUPLICATE_RESOURCE

    asyncio.run(ask())
    assert turns > len(upsertions) // scram_credentials.CREDENTIALS_PER_SLICE
    assert len(commands) == 3
    assert max(len(command.upsertions) for command in commands) < 2 * ITEMS_PER_COMMAND
