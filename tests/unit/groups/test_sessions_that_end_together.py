"""After a failover all sessions begin at once, and those of the dead end at once, in many batches."""

from __future__ import annotations

import asyncio

import pytest

from data_plane.coordinator.groups.classic.group import ENDED_AT_ONCE, ClassicGroup
from data_plane.coordinator.groups.classic.states import ClassicGroupConfig
from data_plane.coordinator.groups.records import StoredGroup, StoredMember
from data_plane.coordinator.state_machine import Instant
from tests.support.virtual_loop import run_virtually
from tests.unit.groups.coordinator_driver import coordinator, joined, members
from tests.unit.groups.memory_log import MemoryLog

LONG = "l" * 20_000
"""Part of a name; clients choose them."""
AFTER_ALL_SESSIONS_S = 60.0


@pytest.mark.row("G6")
def test_members_whose_end_takes_more_than_one_batch_are_out_all_the_same() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with coordinator(log, 1) as groups:
            for number in range(12):
                await joined(groups, LONG, f"{number}{LONG}")
            await joined(groups, "bystanders", "m")
            assert members(groups) == {LONG: 12, "bystanders": 1}
        async with coordinator(log, 2) as groups:
            await asyncio.sleep(AFTER_ALL_SESSIONS_S)
            assert members(groups) == {LONG: 0, "bystanders": 0}
        async with coordinator(log, 3) as groups:
            assert members(groups) == {LONG: 0, "bystanders": 0}

    run_virtually(test())


@pytest.mark.row("G6")
def test_a_group_that_cannot_be_stored_keeps_no_other_one_waiting() -> None:
    """Both are due at one time. What could not be stored of the one was refused to the other too, and their
    next attempts came together again."""

    async def test() -> None:
        log = MemoryLog()
        async with coordinator(log, 1) as groups:
            await joined(groups, LONG, f"m{LONG}")
            await joined(groups, "bystanders", "m")
        log.max_bytes = 10_000  # was made smaller
        async with coordinator(log, 2) as groups:
            await asyncio.sleep(AFTER_ALL_SESSIONS_S)
            assert members(groups) == {LONG: 1, "bystanders": 0}

    run_virtually(test())


@pytest.mark.row("P7")
def test_of_very_many_classic_members_some_are_out_at_once() -> None:
    start = Instant(0.0, 0)
    group = ClassicGroup("g", ClassicGroupConfig(), start)
    names = [f"m{n}" for n in range(2 * ENDED_AT_ONCE + 1)]
    stored = tuple(StoredMember(name, None, "", "", 60_000, 10_000, b"", b"") for name in names)
    group.replay(StoredGroup("consumer", 1, "range", names[0], 0, stored), start)
    group.loaded(start)
    left = []
    while group.next_deadline() <= 10.0:
        group.tick(Instant(10.0, 10_000))
        left.append(len(group.metadata.roster))
    assert left == [ENDED_AT_ONCE + 1, 1, 0]
    assert group.is_empty
