"""A coordinator of groups on a log in memory, for tests that lead it from one epoch to the next."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat
from data_plane.coordinator.groups.service import GroupCoordinator
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import CONFIG


@asynccontextmanager
async def coordinator(log: MemoryLog, epoch: int) -> AsyncIterator[GroupCoordinator]:
    """Of all groups, in one partition."""
    loop = asyncio.get_running_loop()
    groups = GroupCoordinator(CONFIG, log, loop, random.Random(7), lambda: round(loop.time() * 1000))
    groups.partitions = 1
    groups.become_leader(0, epoch)
    await groups.loaded()
    try:
        yield groups
    finally:
        groups.close()


async def joined(groups: GroupCoordinator, group_id: str, member_id: str) -> None:
    await groups.consumer_heartbeat(
        ConsumerHeartbeat(
            group_id,
            member_id,
            0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("t",),
            owned={},
        )
    )


def members(groups: GroupCoordinator) -> dict[str, int]:
    return {each.listed.group_id: len(each.members) for each in groups.summaries()}
