"""The service over a log in memory: answers, markers, failover, timeouts."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from data_plane.coordinator.runtime import GRACE_S, ShardLimits
from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.transactions.records import (
    TransactionRecord,
    TransactionState,
    encode,
)
from data_plane.coordinator.transactions.service import (
    ENDED_PER_TURN,
    WRITTEN_PER_TURN,
    TransactionCoordinatorConfig,
    TransactionMarker,
)
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.transactions.driven_service import (
    CONFIG,
    T0,
    Clock,
    MarkerLog,
    begun,
    listed,
    refusal,
    run,
    run_virtually,
    service,
    settle,
    stand_still,
    until,
    until_state,
)
from tests.unit.transactions.transaction_driver import EPOCH_MS, TIMEOUT_MS


@pytest.mark.row("P4")
def test_the_answer_comes_before_the_markers_and_after_the_decision_is_replicated() -> None:
    async def test() -> None:
        log, markers = MemoryLog(), MarkerLog()
        async with service(log, markers, epoch=4) as transactions:
            producer = await begun(transactions)
            log.replicating = False
            markers.open.clear()
            ending = asyncio.ensure_future(transactions.end("x", producer, commit=True, client_version=0))
            await settle()
            assert not ending.done()
            assert markers.begun == []
            log.replicate(transactions.partition_for("x"))
            assert await ending == producer
            await settle()
            assert markers.begun == [TransactionMarker(producer, 4, True, frozenset({T0}))]
            again = transactions.add_partitions("x", producer, [T0], 0)
            assert await refusal(again) is ErrorCode.CONCURRENT_TRANSACTIONS
            log.replicating = True
            markers.open.set()
            await until_state(transactions, TransactionState.COMPLETE_COMMIT)

    run(test)


@pytest.mark.row("P4")
@pytest.mark.parametrize("version", [0, 2])
def test_a_marker_says_whether_its_epoch_is_above_its_transactions(version: int) -> None:
    """However that was begun: where its end does not raise the epoch, its own marker would be a late one."""

    async def test() -> None:
        markers = MarkerLog()
        async with service(MemoryLog(), markers) as transactions:
            producer = await transactions.init_producer_id("x", TIMEOUT_MS, None)
            await transactions.add_partitions("x", producer, [T0], 2)
            await transactions.end("x", producer, commit=True, client_version=version)
            await until_state(transactions, TransactionState.COMPLETE_COMMIT)
        [written] = markers.written
        assert (written.transaction_version, written.producer.epoch) == (version, version // 2)

    run(test)


@pytest.mark.row("P4")
def test_who_begins_the_next_transaction_waits_for_the_end_of_the_last_one() -> None:
    async def test() -> None:
        log, markers = MemoryLog(), MarkerLog()
        async with service(log, markers, config=replace(CONFIG, wait_for_end=60.0)) as transactions:
            producer = await begun(transactions)
            markers.open.clear()
            await transactions.end("x", producer, commit=True, client_version=0)
            beginning = asyncio.ensure_future(transactions.add_partitions("x", producer, [T0], 0))
            fenced = ProducerIdAndEpoch(producer.producer_id, producer.epoch - 1)
            refused = transactions.add_partitions("x", fenced, [T0], 0)
            assert await refusal(refused) is ErrorCode.PRODUCER_FENCED
            await settle()
            assert not beginning.done()
            markers.open.set()
            await beginning
            assert (await transactions.describe("x")).state is TransactionState.ONGOING
            assert len(markers.written) == 1

    run(test)


@pytest.mark.row("P4")
def test_who_waits_for_the_end_of_a_transaction_learns_that_its_coordinator_has_gone() -> None:
    async def test() -> None:
        markers = MarkerLog()
        async with service(MemoryLog(), markers, config=replace(CONFIG, wait_for_end=60.0)) as transactions:
            producer = await begun(transactions)
            markers.open.clear()
            await transactions.end("x", producer, commit=True, client_version=0)
            beginning = asyncio.ensure_future(transactions.add_partitions("x", producer, [T0], 0))
            await settle()
            transactions.resign(transactions.partition_for("x"))
            assert await refusal(beginning) is ErrorCode.NOT_COORDINATOR

    run(test)


@pytest.mark.row("P4")
def test_the_next_coordinator_ends_what_was_prepared() -> None:
    async def test() -> None:
        log, markers = MemoryLog(), MarkerLog()
        markers.open.clear()
        async with service(log, markers) as transactions:
            producer = await begun(transactions)
            await transactions.end("x", producer, commit=True, client_version=0)
        later = MarkerLog()
        async with service(log, later, epoch=2) as transactions:
            await until_state(transactions, TransactionState.COMPLETE_COMMIT)
            assert later.written == [TransactionMarker(producer, 2, True, frozenset({T0}))]
        assert markers.written == []

    run(test)


@pytest.mark.row("P4")
def test_a_decision_that_was_lost_with_its_coordinator_was_never_returned_nor_marked() -> None:
    async def test() -> None:
        log, markers = MemoryLog(), MarkerLog()
        async with service(log, markers) as transactions:
            producer = await begun(transactions)
            number = transactions.partition_for("x")
            log.replicating = False
            ending = asyncio.ensure_future(transactions.end("x", producer, commit=True, client_version=0))
            await settle()
            transactions.resign(number)
            assert await refusal(ending) is ErrorCode.NOT_COORDINATOR
        assert markers.begun == []
        log.truncate_unreplicated(number)
        log.replicating = True
        async with service(log, markers, epoch=2) as transactions:
            assert (await transactions.describe("x")).state is TransactionState.ONGOING
            await transactions.end("x", producer, commit=False, client_version=0)
            await until_state(transactions, TransactionState.COMPLETE_ABORT)
            assert markers.written == [TransactionMarker(producer, 2, False, frozenset({T0}))]

    run(test)


@pytest.mark.row("P4")
def test_what_is_open_for_too_long_is_aborted_and_idle_ids_are_forgotten() -> None:
    async def test() -> None:
        log, markers, clock = MemoryLog(), MarkerLog(), Clock()
        async with service(log, markers, clock=clock) as transactions:
            producer = await begun(transactions)
            stand_still(TIMEOUT_MS + 1)
            await until_state(transactions, TransactionState.COMPLETE_ABORT)
            fenced = ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
            assert markers.written == [TransactionMarker(fenced, 1, False, frozenset({T0}))]
            clock.now_ms += CONFIG.transactions.id_expiration_ms

            async def nothing_is_left() -> bool:
                return not await listed(transactions)

            await until(nothing_is_left)

    run_virtually(test)


@pytest.mark.row("P4")
def test_an_end_that_came_while_the_broker_stood_still_is_not_too_late() -> None:
    async def test() -> None:
        log, markers = MemoryLog(), MarkerLog()
        async with service(log, markers) as transactions:
            producer = await begun(transactions)
            stand_still(TIMEOUT_MS + 1)
            await asyncio.sleep(GRACE_S / 2)  # what clients sent meanwhile is read
            await transactions.end("x", producer, commit=True, client_version=0)
            await until_state(transactions, TransactionState.COMPLETE_COMMIT)

    run_virtually(test)


def test_a_partition_that_moves_while_transactions_are_listed_has_no_part_in_the_list() -> None:
    async def test() -> None:
        log, markers = MemoryLog(), MarkerLog()
        async with service(log, markers) as transactions:
            producer = await begun(transactions)
            log.replicating = False
            other = TopicPartition("t", 1)
            adding = asyncio.ensure_future(transactions.add_partitions("x", producer, [other], 0))
            await asyncio.sleep(0)
            listing = asyncio.ensure_future(listed(transactions))  # it waits for what it says
            await asyncio.sleep(0)
            transactions.resign(transactions.partition_for("x"))
            assert await listing == []
            with pytest.raises(BrokerError):
                await adding

    run(test)


def test_a_completion_that_cannot_be_written_is_tried_again_without_new_markers() -> None:
    async def test() -> None:
        log, markers = MemoryLog(), MarkerLog()
        config = TransactionCoordinatorConfig(shards=ShardLimits(commit_timeout=0.05))
        async with service(log, markers, config=config) as transactions:
            producer = await begun(transactions)
            markers.open.clear()
            await transactions.end("x", producer, commit=True, client_version=0)
            await settle()
            log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
            markers.open.set()
            await settle()
            assert (await transactions.describe("x")).state is TransactionState.PREPARE_COMMIT
            log.refusal = None
            await until_state(transactions, TransactionState.COMPLETE_COMMIT)
            assert len(markers.begun) == 1

    run(test)


def test_only_the_leader_of_the_partition_answers() -> None:
    async def test() -> None:
        async with service(MemoryLog(), MarkerLog()) as transactions:
            transactions.resign(transactions.partition_for("x"))
            assert await refusal(transactions.describe("x")) is ErrorCode.NOT_COORDINATOR
            assert await refusal(transactions.init_producer_id("x", 1, None)) is ErrorCode.NOT_COORDINATOR

    run(test)


def test_a_refused_timeout_uses_up_no_producer_id() -> None:
    async def test() -> None:
        async with service(MemoryLog(), MarkerLog()) as transactions:
            longest = CONFIG.transactions.max_timeout_ms
            for timeout_ms in (-1, 0, longest + 1):
                asked = transactions.init_producer_id("x", timeout_ms, None)
                assert await refusal(asked) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
            assert await transactions.init_producer_id("x", longest, None) == ProducerIdAndEpoch(1000, 0)

    run(test)


@pytest.mark.parametrize("version", [0, 2])
def test_no_broker_looks_for_the_coordinator_of_an_empty_id(version: int) -> None:
    async def test() -> None:
        nobody, partitions = ProducerIdAndEpoch(1, 0), [TopicPartition("t", 0)]
        async with service(MemoryLog(), MarkerLog()) as transactions:
            for leads in (True, False):
                if leads:
                    transactions.become_leader(transactions.partition_for(""), 1)
                    await transactions.loaded()
                else:
                    transactions.resign(transactions.partition_for(""))
                for asked in (
                    transactions.init_producer_id("", TIMEOUT_MS, None),
                    transactions.add_partitions("", nobody, partitions, version),
                    transactions.verify("", nobody, partitions),
                    transactions.end("", nobody, commit=True, client_version=version),
                ):
                    assert await refusal(asked) is ErrorCode.INVALID_REQUEST

    run(test)


@pytest.mark.row("P4")
def test_what_a_client_wrote_among_the_coordinators_records_keeps_nobody_from_loading() -> None:
    """No coordinator writes an epoch that falls back: it ends no node, and counts for nothing."""
    faults: list[object] = []

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        log = MemoryLog()
        async with service(log, MarkerLog()) as transactions:
            for _ in range(3):
                await transactions.init_producer_id("x", TIMEOUT_MS, None)
            known = await transactions.describe("x")
            partition = transactions.partition_for("x")
        key, value = encode(TransactionRecord("x", replace(known, producer_epoch=0)))
        log.append(partition, 1, bytearray(encode_batch([Record(0, EPOCH_MS, key, value)])))
        async with service(log, MarkerLog(), epoch=2) as transactions:
            assert (await transactions.describe("x")).producer_epoch == known.producer_epoch == 2

    run(test)
    assert faults == []


class CountedLog(MemoryLog):
    appended = 0

    def append(self, partition: int, leader_epoch: int, batch: bytearray) -> int:
        self.appended += 1
        return super().append(partition, leader_epoch, batch)


@pytest.mark.row("P4", "P7")
def test_producers_that_died_together_are_aborted_some_in_each_turn_of_the_loop() -> None:
    """Those of an application of a thousand of them: the broker did nothing else for a tenth of a second."""
    names = [f"x{number}" for number in range(8 * ENDED_PER_TURN)]

    async def test() -> None:
        log, markers = CountedLog(), MarkerLog()
        async with service(log, markers, config=replace(CONFIG, partitions=1)) as transactions:
            for name in names:
                producer = await transactions.init_producer_id(name, TIMEOUT_MS, None)
                await transactions.add_partitions(name, producer, [T0], 0)
            assert len(list(transactions.unfinished())) == len(names)
            stand_still(TIMEOUT_MS + 1)
            most = 0
            while any(transactions.unfinished()):
                log.appended = 0
                stand_still(10)
                await asyncio.sleep(0)
                most = max(most, log.appended)
            assert len(markers.written) == len(names)
            assert most <= 3 * ENDED_PER_TURN  # some begin to end, some have ended

    run_virtually(test)


class InterruptedMarkers(MarkerLog):
    """Knows how many of its writes were called off."""

    def __init__(self) -> None:
        super().__init__()
        self.open.clear()
        self.interrupted = 0

    async def write(self, marker: TransactionMarker) -> None:
        try:
            await super().write(marker)
        except asyncio.CancelledError:
            self.interrupted += 1
            raise


@pytest.mark.row("P4", "P7")
def test_markers_of_a_partition_that_is_led_elsewhere_are_called_off_some_in_each_turn_of_the_loop() -> None:
    names = [f"x{number}" for number in range(4 * ENDED_PER_TURN)]

    async def test() -> None:
        markers = InterruptedMarkers()
        async with service(MemoryLog(), markers, config=replace(CONFIG, partitions=1)) as transactions:
            for name in names:
                producer = await transactions.init_producer_id(name, TIMEOUT_MS, None)
                await transactions.add_partitions(name, producer, [T0], 0)
                await transactions.end(name, producer, commit=True, client_version=0)

            async def all_are_begun() -> bool:
                return len(markers.begun) == len(names)

            await until(all_are_begun)
            transactions.resign(0)
            most = 0
            while (before := markers.interrupted) < len(names):
                await asyncio.sleep(0)
                most = max(most, markers.interrupted - before)
            assert most <= ENDED_PER_TURN

    run(test)


@pytest.mark.parametrize("version", [0, 2])
def test_only_the_end_of_the_last_epoch_takes_a_producer_id(version: int) -> None:
    async def test() -> None:
        async with service(MemoryLog(), MarkerLog()) as transactions:
            unknown = ProducerIdAndEpoch(77, 0)
            for _ in range(3):
                ended = transactions.end("x", unknown, commit=True, client_version=version)
                assert await refusal(ended) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            assert (await transactions.init_producer_id("x", TIMEOUT_MS, None)).producer_id == 1000

    run(test)


@pytest.mark.row("P4", "P7")
@pytest.mark.parametrize(
    ("partitions", "decisions"), [(WRITTEN_PER_TURN + 1, 1), (WRITTEN_PER_TURN - 200, 2)]
)
def test_dozens_of_requests_of_a_large_transaction_take_turns_and_keep_their_order(
    partitions: int, decisions: int
) -> None:
    """Each writes all of its partitions: sixty-four small ones at once held the loop for a second."""

    async def test() -> None:
        log = MemoryLog()
        async with service(log, MarkerLog()) as transactions:
            number = transactions.partition_for("x")
            producer = await transactions.init_producer_id("x", 60_000, None)
            many = [TopicPartition("t", n) for n in range(partitions)]
            await transactions.add_partitions("x", producer, many, 0)
            added = [
                asyncio.ensure_future(transactions.add_partitions("x", producer, [TopicPartition("u", n)], 0))
                for n in range(64)
            ]
            ended = asyncio.ensure_future(transactions.end("x", producer, commit=True, client_version=0))
            most, before = 0, log.bounds(number)[1]
            while not ended.done():
                await asyncio.sleep(0)
                end = log.bounds(number)[1]
                most, before = max(most, end - before), end
            assert most <= decisions + 1  # the markers' record may be in the same turn
            await asyncio.gather(*added, ended)

    run(test)
