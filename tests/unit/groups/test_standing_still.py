"""A coordinator whose process stood still: its timers ring before it reads what was sent to it meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat
from data_plane.coordinator.groups.messages import Heartbeat, SyncGroup
from data_plane.coordinator.groups.service import GroupCoordinator
from data_plane.coordinator.runtime import GRACE_S
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.virtual_loop import VirtualLoop, run_virtually
from tests.unit.groups.coordinator_driver import coordinator, joined, members
from tests.unit.groups.group_driver import join
from tests.unit.groups.memory_log import MemoryLog


async def stand_still(seconds: float) -> None:
    """And let the timers ring that were due meanwhile."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.stand_still(seconds)
    for _ in range(5):
        await asyncio.sleep(0)


async def begun(groups: GroupCoordinator) -> str:
    """A member of a classic group `g`, which is stable, and one of a group `h` of the consumer protocol."""
    first = await groups.join(join())
    await groups.sync(SyncGroup("g", first.member_id, 1, assignments={first.member_id: b"all"}))
    await joined(groups, "h", "m")
    return first.member_id


@pytest.mark.row("G1")
def test_whose_heartbeat_has_come_while_the_coordinator_stood_still_stays() -> None:
    async def test() -> None:
        async with coordinator(MemoryLog(), 1) as groups:
            member_id = await begun(groups)
            for _ in range(2):
                await stand_still(100.0)
                assert (await groups.heartbeat(Heartbeat("g", member_id, 1))).error is ErrorCode.NONE
                await groups.consumer_heartbeat(ConsumerHeartbeat("h", "m", 1))
                await asyncio.sleep(2 * GRACE_S)
                assert members(groups) == {"g": 1, "h": 1}

    run_virtually(test())


@pytest.mark.row("G1")
def test_who_was_silent_before_is_out_when_all_is_read() -> None:
    async def test() -> None:
        async with coordinator(MemoryLog(), 1) as groups:
            await begun(groups)
            await stand_still(100.0)
            await joined(groups, "others", "n")  # requests of others neither hasten nor delay it
            assert members(groups) == {"g": 1, "h": 1, "others": 1}
            await asyncio.sleep(GRACE_S / 2)
            await joined(groups, "others", "o")
            await stand_still(GRACE_S)
            assert members(groups) == {"g": 0, "h": 0, "others": 2}

    run_virtually(test())
