"""Turns of transactional produces: who waits for whom, and what comes between question and answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.transactions.verification_guard import VerificationGuard, VerificationGuards
from data_plane.log.producers import ProducerStateManager
from kraft.api.long_work import LongWork
from kraft.api.produce_queue import PARTITIONS_PER_TURN, QueuedProduce
from kraft.net.connection_state import ConnectionState
from kraft.wire.fast_produce import ProducePartition, ProduceRequest
from metadata_quorum.foundation.batch import (
    Record,
    decode_batch,
    encode_batch,
    encode_end_txn_marker,
    read_header,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID, TopicPartition

T0 = TopicPartition("t", 0)
PRODUCER = ProducerIdAndEpoch(7, 0)


class Asked:
    """A coordinator that answers when its test says so."""

    def __init__(self) -> None:
        self.guards = VerificationGuards()
        self.verifies = True
        self.questions: list[bool] = []
        self.answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    async def ask(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        self.questions.append(add)
        return dict.fromkeys(partitions, await self.answer)


class CountedGuards(VerificationGuards):
    begun = 0

    def begin(self, tp: TopicPartition, producer_id: int) -> VerificationGuard:
        self.begun += 1
        return super().begin(tp, producer_id)


class Leader:
    """Of one partition, for one connection."""

    def __init__(self) -> None:
        self.transaction_verifier = Asked()
        self.producers = ProducerStateManager()
        self.partition = SimpleNamespace(
            tp=T0, leader=object(), leader_epoch=3, log=SimpleNamespace(producers=self.producers)
        )
        partitions = SimpleNamespace(get=lambda topic, number: self.partition)
        loop = asyncio.get_running_loop()
        self.broker: Any = SimpleNamespace(
            node=SimpleNamespace(loop=loop, now_ms=lambda: 0),
            transaction_verifier=self.transaction_verifier,
            replica_manager=partitions,
        )
        self.connection = SimpleNamespace(state=ConnectionState())

    def enqueue_if_needed(self, sequence: int, version: int = 11) -> QueuedProduce | None:
        batch = batch_of(sequence)
        request = ProduceRequest("x", -1, 1000, [ProducePartition("t", ZERO_UUID, 0, memoryview(batch))])
        ctx: Any = SimpleNamespace(version=version, connection=self.connection)
        return QueuedProduce.enqueue_if_needed(self.broker, ctx, request)

    def append(self, sequence: int) -> None:
        self.producers.update(read_header(batch_of(sequence)), sequence)


def batch_of(sequence: int) -> bytearray:
    record = Record(timestamp=1, key=None, value=b"v")
    return bytearray(
        encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
    )


def partition(number: int) -> SimpleNamespace:
    log = SimpleNamespace(producers=ProducerStateManager())
    return SimpleNamespace(tp=TopicPartition("t", number), leader=object(), leader_epoch=3, log=log)


def run(test: Callable[[Leader], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Leader())

    asyncio.run(main())


async def through(queued: QueuedProduce, partitions: int = 1) -> dict[int, BrokerError]:
    await queued.place.wait_for_predecessor()
    refused = await queued.verify({}, LongWork(asyncio.get_running_loop()).request())
    return {**queued.ended_meanwhile(range(partitions)), **refused}


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.row("P4", "P7")
def test_what_comes_behind_the_first_batch_waits_for_it_and_asks_nothing() -> None:
    async def test(leader: Leader) -> None:
        first, second = leader.enqueue_if_needed(0), leader.enqueue_if_needed(1)
        assert first is not None
        assert second is not None
        coming = [asyncio.ensure_future(through(first)), asyncio.ensure_future(through(second))]
        await settle()
        assert leader.transaction_verifier.questions == [False]
        leader.transaction_verifier.answer.set_result(ErrorCode.NONE)
        assert await coming[0] == {}
        await settle()
        assert not coming[1].done()
        leader.append(0)
        # Before the first one's turn ends a third one comes: its transaction is open, and yet it must wait.
        third = leader.enqueue_if_needed(2)
        assert third is not None
        first.end()
        assert await coming[1] == {}
        leader.append(1)
        second.end()
        assert await through(third) == {}
        leader.append(2)
        third.end()
        assert leader.enqueue_if_needed(3) is None
        assert leader.transaction_verifier.questions == [False]

    run(test)


@pytest.mark.row("P4")
@pytest.mark.parametrize("between", ["a marker", "another leader"])
def test_what_was_admitted_to_a_transaction_that_is_over_is_not_appended(between: str) -> None:
    async def test(leader: Leader) -> None:
        queued = leader.enqueue_if_needed(0)
        assert queued is not None
        coming = asyncio.ensure_future(through(queued))
        await settle()
        if between == "a marker":
            leader.transaction_verifier.guards.marker_written(T0, PRODUCER.producer_id)
        else:
            leader.partition.leader_epoch += 2
        leader.transaction_verifier.answer.set_result(ErrorCode.NONE)
        assert (await coming)[0].code is ErrorCode.NOT_ENOUGH_REPLICAS
        queued.end()

    run(test)


@pytest.mark.row("P4")
@pytest.mark.parametrize(
    ("said", "version", "expected"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NETWORK_EXCEPTION, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_refusals_have_the_error_codes_of_the_version(
    said: ErrorCode, version: int, expected: ErrorCode
) -> None:
    async def test(leader: Leader) -> None:
        queued = leader.enqueue_if_needed(0, version)
        assert queued is not None
        leader.transaction_verifier.answer.set_result(said)
        assert (await through(queued))[0].code is expected
        queued.end()
        assert leader.transaction_verifier.questions == [version >= 12]

    run(test)


@pytest.mark.row("P4")
@pytest.mark.parametrize("version", [11, 12])
def test_what_could_not_be_admitted_comes_first_when_it_is_sent_again(version: int) -> None:
    """Or the batch behind it would be appended, and the first one never: its sequence would be an old one."""

    async def test(leader: Leader) -> None:
        first, second = leader.enqueue_if_needed(0, version), leader.enqueue_if_needed(1, version)
        assert first is not None
        assert second is not None
        coming = [asyncio.ensure_future(through(first)), asyncio.ensure_future(through(second))]
        await settle()
        leader.transaction_verifier.answer.set_result(ErrorCode.NETWORK_EXCEPTION)
        leader.transaction_verifier.answer = asyncio.get_running_loop().create_future()
        assert (await coming[0])[0].code is ErrorCode.NOT_ENOUGH_REPLICAS
        first.end()
        leader.transaction_verifier.answer.set_result(ErrorCode.NONE)
        assert await coming[1] == {}
        with pytest.raises(BrokerError) as caught:
            leader.producers.check(read_header(batch_of(1)))
        assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        second.end()
        again = leader.enqueue_if_needed(0, version)
        assert again is not None
        assert await through(again) == {}
        leader.append(0)
        again.end()
        assert leader.producers.check(read_header(batch_of(1))) is None

    run(test)


@pytest.mark.row("P4")
@pytest.mark.parametrize(("version", "taken"), [(11, True), (12, False)])
def test_a_transaction_with_its_own_epoch_begins_at_zero(version: int, taken: bool) -> None:
    async def test(leader: Leader) -> None:
        queued = leader.enqueue_if_needed(10, version)
        assert queued is not None
        leader.transaction_verifier.answer.set_result(ErrorCode.NONE)
        assert await through(queued) == {}
        if taken:
            assert leader.producers.check(read_header(batch_of(10))) is None
        else:
            with pytest.raises(BrokerError) as caught:
                leader.producers.check(read_header(batch_of(10)))
            assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        queued.end()

    run(test)


@pytest.mark.row("P4")
def test_the_first_sequence_is_known_after_a_refusal_for_good() -> None:
    async def test(leader: Leader) -> None:
        queued = leader.enqueue_if_needed(0, 12)
        assert queued is not None
        leader.transaction_verifier.answer.set_result(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        assert (await through(queued))[0].code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        queued.end()
        with pytest.raises(BrokerError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            leader.producers.check(read_header(batch_of(10)))
        assert leader.producers.check(read_header(batch_of(0))) is None

    run(test)


@pytest.mark.row("P4")
@pytest.mark.parametrize("recreated", [False, True], ids=["a marker", "a topic made again"])
def test_a_batch_whose_transaction_ends_while_another_partition_is_asked_for_opens_none(
    recreated: bool,
) -> None:
    async def test(leader: Leader) -> None:
        parts = [partition(0), partition(1)]
        leader.broker.replica_manager = SimpleNamespace(get=lambda topic, number: parts[number])
        parts[0].log.producers.update(read_header(batch_of(0)), 0)
        batches = [
            ProducePartition("t", ZERO_UUID, number, memoryview(batch_of(sequence)))
            for number, sequence in enumerate((1, 0))
        ]
        ctx: Any = SimpleNamespace(version=11, connection=leader.connection)
        queued = QueuedProduce.enqueue_if_needed(leader.broker, ctx, ProduceRequest("x", -1, 1000, batches))
        assert queued is not None
        coming = asyncio.ensure_future(through(queued, 2))
        await settle()
        if recreated:
            parts[:] = [partition(0), partition(1)]
        else:
            marker = encode_end_txn_marker(
                commit=False, coordinator_epoch=1, producer_id=7, producer_epoch=0, timestamp=1
            )
            parts[0].log.producers.update_control(read_header(marker), decode_batch(marker)[0])
        leader.transaction_verifier.answer.set_result(ErrorCode.NONE)
        refused = await coming
        assert {place: error.code for place, error in refused.items()} == dict.fromkeys(
            (0, 1) if recreated else (0,), ErrorCode.NOT_ENOUGH_REPLICAS
        )
        queued.end()

    run(test)


@pytest.mark.row("P4")
def test_a_transaction_that_ends_between_two_pieces_of_a_request_is_not_opened_again() -> None:
    async def test(leader: Leader) -> None:
        queued = leader.enqueue_if_needed(0)
        assert queued is not None
        leader.transaction_verifier.answer.set_result(ErrorCode.NONE)
        assert await through(queued) == {}
        assert queued.ended_meanwhile(range(1)) == {}
        leader.transaction_verifier.guards.marker_written(T0, PRODUCER.producer_id)
        (refused,) = queued.ended_meanwhile(range(1)).values()
        assert refused.code == ErrorCode.NOT_ENOUGH_REPLICAS
        queued.end()

    run(test)


@pytest.mark.row("P4")
def test_very_many_first_batches_are_verified_in_several_turns() -> None:
    """What they were admitted to may end between two of the turns, before the coordinator is asked."""
    count = 2 * PARTITIONS_PER_TURN + 1

    async def test(leader: Leader) -> None:
        parts = [partition(number) for number in range(count)]
        leader.broker.replica_manager = SimpleNamespace(get=lambda topic, number: parts[number])
        batch = memoryview(batch_of(0))
        batches = [ProducePartition("t", ZERO_UUID, number, batch) for number in range(count)]
        ctx: Any = SimpleNamespace(version=12, connection=leader.connection)
        queued = QueuedProduce.enqueue_if_needed(leader.broker, ctx, ProduceRequest("x", -1, 1000, batches))
        assert queued is not None
        guards = leader.transaction_verifier.guards = CountedGuards()
        coming = asyncio.ensure_future(through(queued, count))
        begun = 0
        while not leader.transaction_verifier.questions:
            await asyncio.sleep(0)
            before, begun = begun, guards.begun
            assert begun - before <= PARTITIONS_PER_TURN
        assert begun == count
        guards.marker_written(parts[3].tp, PRODUCER.producer_id)
        leader.transaction_verifier.answer.set_result(ErrorCode.NONE)
        assert {place: error.code for place, error in (await coming).items()} == {
            3: ErrorCode.NOT_ENOUGH_REPLICAS
        }
        queued.end()

    run(test)
