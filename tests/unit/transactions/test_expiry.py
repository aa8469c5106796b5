"""Ids that are idle for long are forgotten, partition by partition."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from data_plane.coordinator.state_machine import Instant
from data_plane.coordinator.transactions.records import encode
from data_plane.coordinator.transactions.service import (
    TransactionCoordinator,
    TransactionCoordinatorConfig,
    TransactionMarker,
)
from data_plane.coordinator.transactions.transaction_state_manager import (
    TransactionResult,
    TransactionStateManager,
)
from tests.support.virtual_loop import run_virtually
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.transactions.transaction_driver import EPOCH_MS, TIMEOUT_MS, TransactionDriver

CONFIG = TransactionCoordinatorConfig()


class NoMarkers:
    async def write(self, marker: TransactionMarker) -> None:
        raise AssertionError


async def first_id() -> int:
    return 1000


def test_ids_of_32_kb_are_forgotten_some_in_each_turn() -> None:
    """Each is the key of a record: a thousand were 32 MB in one turn of the loop."""
    driver, many = TransactionDriver(), 100
    for number in range(many):
        driver.init(f"{number}-" + 30_000 * "x")
    driver.now_ms += driver.limits.id_expiration_ms
    sizes = []
    while records := driver.manager.expire(driver.at).records:
        sizes.append(sum(len(encode(each)[0]) for each in records))
        for each in records:
            driver.manager.replay(each, driver.at)
    assert max(sizes) <= 160 * 1024
    assert 1 < len(sizes) < many


def test_what_fails_in_one_partition_keeps_no_other_ones_ids_from_being_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expire, calls = TransactionStateManager.expire, count()

    def fails_first(manager: TransactionStateManager, at: Instant) -> TransactionResult:
        if not next(calls):
            raise ValueError
        return expire(manager, at)

    monkeypatch.setattr(TransactionStateManager, "expire", fails_first)

    async def test() -> None:
        loop, faults, now_ms = asyncio.get_running_loop(), list[str](), [EPOCH_MS]
        loop.set_exception_handler(lambda _, context: faults.append(context["message"]))
        transactions = TransactionCoordinator(
            CONFIG, MemoryLog(), NoMarkers(), first_id, loop, lambda: now_ms[0]
        )
        partition = transactions.partition_for("x")
        for number in (partition - 1, partition):
            transactions.become_leader(number, 1)
        await transactions.loaded()
        await transactions.init_producer_id("x", TIMEOUT_MS, None)
        now_ms[0] += CONFIG.transactions.id_expiration_ms
        await asyncio.sleep(CONFIG.expiry_check_interval + 1)
        assert faults
        assert [each async for part in transactions.list() for each in part] == []
        transactions.close()

    run_virtually(test())
