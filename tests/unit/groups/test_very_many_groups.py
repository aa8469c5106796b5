"""Very many groups of one partition are listed some at a time; what comes and goes makes no holes."""

from __future__ import annotations

import pytest

from data_plane.coordinator.groups import group_metadata_manager
from data_plane.coordinator.groups.messages import CommitOffsets, MemberProtocol, OffsetToCommit
from data_plane.coordinator.groups.offsets import BYTES_AS_ONE
from data_plane.coordinator.groups.records import GroupRecord, StoredGroup
from data_plane.coordinator.runtime import CoordinatorState
from metadata_quorum.foundation.errors import ErrorCode
from tests.unit.groups.group_driver import NO_DELAY, GroupDriver, join
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import ORDERS_0, listed, refusal, run, service

pytestmark = pytest.mark.row("G7", "P7")

GROUPS = 25


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_metadata_manager, "LOOKED_AT", 10)


def test_groups_are_listed_some_at_a_time() -> None:
    async def test() -> None:
        async with service(MemoryLog(), epoch=None) as groups:
            groups.partitions = 1
            groups.become_leader(0, 1)
            await groups.loaded()
            for number in range(GROUPS):
                await groups.commit_offsets(CommitOffsets(f"g{number}", (OffsetToCommit(ORDERS_0, 1),)))
            parts = []
            async for part in groups.list_groups():
                parts.append([each.group_id for each in part])
                if len(parts) == 1:
                    await groups.delete_group("g15")
                    await groups.commit_offsets(CommitOffsets("later", (OffsetToCommit(ORDERS_0, 1),)))
            assert list(map(len, parts)) == [10, 9, 5]
            assert {name for part in parts for name in part} == {f"g{n}" for n in range(GROUPS)} - {"g15"}

    run(test)


def test_groups_are_seen_one_by_one_while_others_go() -> None:
    async def test() -> None:
        async with service(MemoryLog(), epoch=None) as groups:
            groups.partitions = 1
            groups.become_leader(0, 1)
            await groups.loaded()
            for number in range(3):
                await groups.commit_offsets(CommitOffsets(f"g{number}", (OffsetToCommit(ORDERS_0, 1),)))
            seen = groups.summaries()
            assert next(seen).listed.group_id == "g0"
            await groups.delete_group("g1")
            assert next(seen).listed.group_id == "g2"
            groups.resign(0)
            assert list(seen) == list(groups.summaries()) == []

    run(test)


def test_a_partition_without_groups_that_is_being_loaded_is_told_of_too() -> None:
    async def test() -> None:
        async with service(MemoryLog(), epoch=None) as groups:
            groups.become_leader(groups.partition_for("g"), 1)
            assert await refusal(anext(groups.list_groups())) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(test)


def test_a_partition_that_cannot_be_loaded_keeps_no_other_ones_groups_from_being_listed() -> None:
    """As with Kafka; whoever asks for one of its own groups is told."""

    async def test() -> None:
        log = MemoryLog()
        async with service(log, epoch=None) as groups:
            partition = groups.partition_for("g")
            groups.become_leader(partition, 1)
            await groups.loaded()
            await groups.commit_offsets(CommitOffsets("g", (OffsetToCommit(ORDERS_0, 1),)))
            broken = next(n for n in range(groups.partitions) if n != partition)
            log.partition(broken).end, log.is_broken = 1, True
            groups.become_leader(broken, 1)
            await groups.loaded()
            assert [each.state for each in groups.shards].count(CoordinatorState.FAILED) == 1
            assert [each.group_id for each in await listed(groups)] == ["g"]

    run(test)


def test_groups_with_members_and_offsets_are_listed_and_expire_once() -> None:
    """To look for each in both places before the first is listed or expired held the loop for a tenth of a
    second, where there are a hundred thousand."""
    driver = GroupDriver()
    for number in range(GROUPS):
        wanted = OffsetToCommit(ORDERS_0, 1)
        driver.answer("commit", CommitOffsets(f"g{number}", (wanted,)))
        if number % 2:
            driver.manager.replay(GroupRecord(f"g{number}", StoredGroup("", 1, None, None, 1, ())), driver.at)
    listed = driver.listed()
    assert isinstance(listed, tuple)
    assert sorted(each.group_id for each in listed) == sorted(f"g{n}" for n in range(GROUPS))
    driver.advance(NO_DELAY.offsets_retention_ms / 1000 + 1)
    assert driver.expire() == GROUPS + GROUPS // 2
    assert driver.listed() == ()


def test_few_groups_that_say_much_are_looked_at_in_one_part_of_a_sweep() -> None:
    """What its members say is read where an offset of theirs may expire."""
    groups, says = 10, MemberProtocol("range", bytes(BYTES_AS_ONE * group_metadata_manager.LOOKED_AT // 2))
    driver = GroupDriver(NO_DELAY)
    for number in range(groups):
        driver.ask("join", join(group_id=f"g{number}", protocols=(says,), new="m"))
        driver.advance(0.1)
    left = driver.manager.groups_to_expire()
    driver.run("expire", left)
    assert len(left) == groups - 2
