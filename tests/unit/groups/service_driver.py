"""A group coordinator over a log in memory, and what tests ask of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from data_plane.coordinator.groups.classic.states import ClassicGroupConfig
from data_plane.coordinator.groups.group_metadata_manager import GroupLimits
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    FetchOffsets,
    JoinGroup,
    ListedGroup,
    MemberProtocol,
    OffsetToCommit,
)
from data_plane.coordinator.groups.service import GroupCoordinator, GroupCoordinatorConfig
from data_plane.coordinator.runtime import ShardLimits
from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.unit.groups.group_driver import EPOCH_MS
from tests.unit.groups.memory_log import MemoryLog

ORDERS_0 = TopicPartition("orders", 0)
CONFIG = GroupCoordinatorConfig(
    GroupLimits(rules=ClassicGroupConfig(initial_rebalance_delay=0.0), min_session_timeout_ms=10),
    ShardLimits(load_slice_bytes=2_000, load_turn_bytes=500),
)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


@asynccontextmanager
async def service(
    log: MemoryLog, *, epoch: int | None = 1, config: GroupCoordinatorConfig = CONFIG
) -> AsyncIterator[GroupCoordinator]:
    """Leading the partition of group `g`, loaded; nothing where `epoch` is None."""
    groups = GroupCoordinator(config, log, asyncio.get_running_loop(), random.Random(7), lambda: EPOCH_MS)
    try:
        if epoch is not None:
            groups.become_leader(groups.partition_for("g"), epoch)
            await groups.loaded()
        yield groups
    finally:
        groups.close()


def commit(offset: int) -> CommitOffsets:
    return CommitOffsets("g", (OffsetToCommit(ORDERS_0, offset),))


async def committed(groups: GroupCoordinator) -> int | None:
    kept = (await groups.fetch_offsets(FetchOffsets("g", (ORDERS_0,)))).offsets[ORDERS_0]
    return None if kept is None else kept.offset


async def refusal(asked: Awaitable[object]) -> ErrorCode:
    with pytest.raises(BrokerError) as refused:
        await asked
    return refused.value.code


def started(asked: Awaitable[object]) -> asyncio.Task[object]:
    async def wait() -> object:
        return await asked

    return asyncio.get_running_loop().create_task(wait())


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


JOIN = JoinGroup("g", "", "consumer", (MemberProtocol("range", b""),), 10_000, 60_000, client_id="app")


def transactional(offset: int, producer: ProducerIdAndEpoch) -> CommitOffsets:
    return CommitOffsets("g", (OffsetToCommit(ORDERS_0, offset),), producer=producer)


async def listed(groups: GroupCoordinator) -> list[ListedGroup]:
    return [group async for part in groups.list_groups() for group in part]


async def is_unstable(groups: GroupCoordinator) -> bool:
    return ORDERS_0 in (await groups.fetch_offsets(FetchOffsets("g", (ORDERS_0,), True))).unstable
