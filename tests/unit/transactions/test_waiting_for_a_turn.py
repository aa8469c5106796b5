"""What is decided about a transactional id while others wait for their turns to decide about it."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.transactions.records import TransactionMetadata, TransactionRecord, encode
from data_plane.coordinator.transactions.service import (
    WRITTEN_PER_TURN,
    TransactionCoordinator,
    TransactionCoordinatorConfig,
    TransactionMarker,
)
from data_plane.coordinator.transactions.transaction_state_manager import LAST_EPOCH
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.foundation.model import TopicPartition
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.transactions.transaction_driver import EPOCH_MS, TIMEOUT_MS

FORMER = ProducerIdAndEpoch(7, LAST_EPOCH - 2)
FIRST_FRESH_ID = 1000


class NoMarkers:
    async def write(self, marker: TransactionMarker) -> None:
        raise AssertionError


async def coordinator(producer: ProducerIdAndEpoch) -> TransactionCoordinator:
    """It coordinates "x", whose producer is known."""
    log, loop, ids = MemoryLog(), asyncio.get_running_loop(), count(FIRST_FRESH_ID)

    async def next_id() -> int:
        await asyncio.sleep(0)
        return next(ids)

    config = TransactionCoordinatorConfig()
    transactions = TransactionCoordinator(config, log, NoMarkers(), next_id, loop, lambda: EPOCH_MS)
    partition = transactions.partition_for("x")
    known = TransactionMetadata(producer.producer_id, producer.epoch, TIMEOUT_MS, updated_ms=EPOCH_MS)
    key, value = encode(TransactionRecord("x", known))
    log.append(partition, 1, bytearray(encode_batch([Record(0, EPOCH_MS, key, value)])))
    transactions.become_leader(partition, 2)
    await transactions.loaded()
    return transactions


@pytest.mark.row("P4")
def test_who_finds_the_epochs_used_up_then_gets_a_new_producer_id() -> None:
    """It was given none, -1, because there was an epoch left before the wait."""

    async def test() -> None:
        transactions = await coordinator(ProducerIdAndEpoch(FORMER.producer_id, LAST_EPOCH - 1))
        many = [TopicPartition("t", n) for n in range(WRITTEN_PER_TURN + 1)]
        fenced, *producers = await asyncio.gather(
            transactions.add_partitions("x", FORMER, many, 0),  # which waits for its turn
            *(transactions.init_producer_id("x", TIMEOUT_MS, None) for _ in range(2)),
            return_exceptions=True,
        )
        assert isinstance(fenced, BrokerError)
        assert producers == [
            ProducerIdAndEpoch(FORMER.producer_id, LAST_EPOCH),
            ProducerIdAndEpoch(FIRST_FRESH_ID, 0),
        ]
        transactions.close()

    asyncio.run(test())


@pytest.mark.row("P4")
def test_what_is_decided_about_one_id_is_decided_in_order() -> None:
    """The second one weighs less, and would have its turn before the first."""

    async def test() -> None:
        transactions = await coordinator(FORMER)
        done: list[int] = []

        async def add(number: int) -> None:
            await transactions.add_partitions(
                "x", FORMER, [TopicPartition(f"of-{number}", n) for n in range(number)], 0
            )
            done.append(number)

        await asyncio.gather(*(add(number) for number in (WRITTEN_PER_TURN + 1, 10, 1)))
        assert done == [WRITTEN_PER_TURN + 1, 10, 1]
        transactions.close()

    asyncio.run(test())
