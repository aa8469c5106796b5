"""Offsets in a transaction: what happens between the question to its coordinator and the commit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.topics import OFFSETS_TOPIC
from data_plane.coordinator.transactions.verification_guard import VerificationGuard, VerificationGuards
from data_plane.log.producers import ProducerStateManager
from kraft.api import group_offsets
from kraft.api.transactions import handle_end
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import decode_request, encode_request
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.unit.groups.api_driver import ROWS, Broker, context, image, run

REQUEST = {
    "transactional_id": "x",
    "group_id": "g",
    "producer_id": 7,
    "producer_epoch": 0,
    "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 5}]}],
}


class Verifier:
    """Of a transaction that is open."""

    def __init__(self) -> None:
        self.guards = VerificationGuards()
        self.verifies = True
        self.answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    async def ask(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        guarded: Mapping[TopicPartition, VerificationGuard],
        *,
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        return dict.fromkeys(guarded, await self.answer)


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_producers_of_before_version_2_are_not_told_of_a_load(version: int, code: ErrorCode) -> None:
    """They take it for the end of their transaction (KAFKA-7296)."""

    async def test(broker: Broker) -> None:
        verifier = Verifier()
        verifier.answer.set_result(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        used: Any = broker.context
        used.transaction_verifier = verifier
        partition = SimpleNamespace(leader_epoch=3, log=SimpleNamespace(producers=ProducerStateManager()))
        used.replica_manager = SimpleNamespace(get=lambda topic, number: partition)
        answer = await broker.ask(ApiKey.TXN_OFFSET_COMMIT, version, REQUEST)
        assert answer.topics[0].partitions[0].error_code == code

    run(test)


@pytest.mark.row("P4", "G4")
@pytest.mark.parametrize(
    ("between", "expected"),
    [
        ("nothing", ErrorCode.NONE),
        ("a marker", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ("another leader", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ("the topic is deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("another one has its name", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_offsets_that_are_of_nothing_any_more_when_the_answer_comes_are_not_stored(
    between: str, expected: ErrorCode
) -> None:
    """They would open a transaction that no coordinator ends: another leader may have written its marker, and
    have handed the partition back. Or the next topic of the name would be read from there."""

    async def test(broker: Broker) -> None:
        verifier, log = Verifier(), SimpleNamespace(producers=ProducerStateManager())
        partition = SimpleNamespace(leader_epoch=3, log=log)
        used: Any = broker.context
        used.transaction_verifier = verifier
        used.replica_manager = SimpleNamespace(get=lambda topic, number: partition)
        asked = asyncio.ensure_future(broker.ask(ApiKey.TXN_OFFSET_COMMIT, 3, REQUEST))
        for _ in range(10):
            await asyncio.sleep(0)
        match between:
            case "a marker":
                place = TopicPartition(OFFSETS_TOPIC, broker.service.partition_for("g"))
                verifier.guards.marker_written(place, 7)
            case "another leader":
                partition.leader_epoch += 2
            case "the topic is deleted":
                broker.node.metadata_cache.image = image(OFFSETS_TOPIC)
            case "another one has its name":
                there = image("orders", OFFSETS_TOPIC, orders_id=UUID(int=78))
                broker.node.metadata_cache.image = there
        verifier.answer.set_result(ErrorCode.NONE)
        assert (await asked).topics[0].partitions[0].error_code == expected
        kept = broker.service.summaries()
        assert any(each.listed.group_id == "g" for each in kept) is (expected is ErrorCode.NONE)

    run(test)


@pytest.mark.parametrize("version", [3, 5])
def test_the_end_of_a_transaction_comes_behind_offsets_that_are_being_verified(version: int) -> None:
    """Of one connection: before them it would end a transaction without them."""

    async def test(broker: Broker) -> None:
        verifier, ended = Verifier(), list[bool]()
        partition = SimpleNamespace(leader_epoch=3, log=SimpleNamespace(producers=ProducerStateManager()))

        async def end(name: str, producer: ProducerIdAndEpoch, *, commit: bool, **_: Any) -> Any:
            ended.append(commit)
            return producer

        used: Any = broker.context
        used.transaction_verifier = verifier
        used.replica_manager = SimpleNamespace(get=lambda topic, number: partition)
        used.transaction_coordinator = SimpleNamespace(end=end)
        commits = context(ROWS[ApiKey.TXN_OFFSET_COMMIT], version)
        ends = replace(commits, api_key=ApiKey.END_TXN, version=4)
        key = ApiKey.TXN_OFFSET_COMMIT
        offsets = decode_request(key, version, encode_request(key, version, REQUEST))
        its_end: Any = SimpleNamespace(transactional_id="x", producer_id=7, producer_epoch=0, committed=True)
        first = asyncio.ensure_future(group_offsets.handle_transactional_commit(used, commits, offsets))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(handle_end(used, ends, its_end))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not ended
        verifier.answer.set_result(ErrorCode.NONE)
        answers = await first, await second
        assert ended == [True]
        assert answers[0]["topics"][0]["partitions"][0]["error_code"] == 0

    run(test)


@pytest.mark.parametrize("version", [3, 5])
def test_the_end_of_a_transaction_that_waits_for_nothing_is_carried_out_though_its_client_has_gone(
    version: int,
) -> None:
    """It has asked for the end, and closed its connection: nobody else will ask for it."""

    async def test(broker: Broker) -> None:
        verifier, ended = Verifier(), list[bool]()
        verifier.answer.set_result(ErrorCode.NONE)
        partition = SimpleNamespace(leader_epoch=3, log=SimpleNamespace(producers=ProducerStateManager()))

        async def end(name: str, producer: ProducerIdAndEpoch, *, commit: bool, **_: Any) -> Any:
            ended.append(commit)
            return producer

        used: Any = broker.context
        used.transaction_verifier = verifier
        used.replica_manager = SimpleNamespace(get=lambda topic, number: partition)
        used.transaction_coordinator = SimpleNamespace(end=end)
        commits = context(ROWS[ApiKey.TXN_OFFSET_COMMIT], version)
        ends = replace(commits, api_key=ApiKey.END_TXN, version=4)
        key = ApiKey.TXN_OFFSET_COMMIT
        offsets = decode_request(key, version, encode_request(key, version, REQUEST))
        its_end: Any = SimpleNamespace(transactional_id="x", producer_id=7, producer_epoch=0, committed=True)
        commits.connection.gone = True
        answer: Any = await group_offsets.handle_transactional_commit(used, commits, offsets)
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0
        await handle_end(used, ends, its_end)
        assert ended == [True]

    run(test)
