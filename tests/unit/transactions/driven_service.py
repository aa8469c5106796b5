"""The service of transactions over a log in memory, loaded and ready to be asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

import pytest

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.transactions.records import TransactionMetadata, TransactionState
from data_plane.coordinator.transactions.service import (
    TransactionCoordinator,
    TransactionCoordinatorConfig,
    TransactionMarker,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.virtual_loop import VirtualLoop
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.transactions.transaction_driver import EPOCH_MS, TIMEOUT_MS

T0 = TopicPartition("t", 0)
CONFIG = TransactionCoordinatorConfig(timeout_check_interval=0.01, expiry_check_interval=0.01)


class MarkerLog:
    """A marker channel that writes at once, or (`held`) when its test says so."""

    def __init__(self) -> None:
        self.written: list[TransactionMarker] = []
        self.begun: list[TransactionMarker] = []
        self.open = asyncio.Event()
        self.open.set()

    async def write(self, marker: TransactionMarker) -> None:
        self.begun.append(marker)
        await self.open.wait()
        self.written.append(marker)


class Clock:
    now_ms = EPOCH_MS


@asynccontextmanager
async def service(
    log: MemoryLog,
    markers: MarkerLog,
    *,
    epoch: int = 1,
    clock: Clock | None = None,
    config: TransactionCoordinatorConfig = CONFIG,
) -> AsyncIterator[TransactionCoordinator]:
    """Leading the partition of `x`, loaded."""
    ids = count(1000)
    time = clock or Clock()

    async def next_id() -> int:
        await asyncio.sleep(0)
        return next(ids)

    transactions = TransactionCoordinator(
        config, log, markers, next_id, asyncio.get_running_loop(), lambda: time.now_ms
    )
    try:
        transactions.become_leader(transactions.partition_for("x"), epoch)
        await transactions.loaded()
        yield transactions
    finally:
        transactions.close()


def stand_still(ms: int) -> None:
    """Of a virtual loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.stand_still(ms / 1000)


def run_virtually(test: Callable[[], Awaitable[None]]) -> None:
    """What is under way at its end is called off."""

    async def main() -> None:
        await test()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


async def refusal(asked: Awaitable[object]) -> ErrorCode:
    with pytest.raises(BrokerError) as refused:
        await asked
    return refused.value.code


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(1_000):
        if await holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("waited in vain")


async def until_state(transactions: TransactionCoordinator, state: TransactionState) -> None:
    async def reached() -> bool:
        return (await transactions.describe("x")).state is state

    await until(reached)


async def listed(transactions: TransactionCoordinator) -> list[tuple[str, TransactionMetadata]]:
    return [each async for part in transactions.list() for each in part]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def begun(transactions: TransactionCoordinator) -> ProducerIdAndEpoch:
    producer = await transactions.init_producer_id("x", TIMEOUT_MS, None)
    await transactions.add_partitions("x", producer, [T0], 0)
    return producer
