"""Offsets of open transactions when their group, topic or they themselves are deleted: they never come."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from data_plane.coordinator.groups import offsets
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    CommittedOffset,
    ListedGroup,
    OffsetToCommit,
)
from data_plane.coordinator.groups.offsets import OffsetMetadataManager
from data_plane.coordinator.groups.records import OffsetRecord
from data_plane.coordinator.groups.service import GroupCoordinator
from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.bytecodes import cost
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import (
    ORDERS_0,
    commit,
    committed,
    is_unstable,
    listed,
    run,
    service,
    settle,
    transactional,
)

PRODUCER = ProducerIdAndEpoch(7, 3)
Deletion = Callable[[GroupCoordinator], Awaitable[None]]


async def delete_group(groups: GroupCoordinator) -> None:
    assert await groups.delete_group("g") is ErrorCode.NONE


async def delete_topic(groups: GroupCoordinator) -> None:
    groups.topics_deleted(["orders"])
    await settle()


async def delete_offset(groups: GroupCoordinator) -> None:
    assert (await groups.delete_offsets("g", [ORDERS_0])).errors == {ORDERS_0: ErrorCode.NONE}


@pytest.mark.row("P4", "G3")
@pytest.mark.parametrize("delete", [delete_group, delete_topic, delete_offset])
@pytest.mark.parametrize("had_one", [True, False])
@pytest.mark.parametrize("reloaded", [True, False])
def test_what_was_deleted_in_the_meantime_is_not_committed(
    delete: Deletion, had_one: bool, reloaded: bool
) -> None:
    async def test() -> None:
        async with service(MemoryLog()) as groups:
            number = groups.partition_for("g")
            if had_one:
                await groups.commit_offsets(commit(5))
            await groups.commit_offsets(transactional(9, PRODUCER))
            assert await listed(groups) == [ListedGroup("g", "", "Empty")]
            await delete(groups)
            assert not await is_unstable(groups)
            assert await listed(groups) == []
            await groups.end_transaction(number, PRODUCER, 1, commit=True)
            if reloaded:
                groups.become_leader(number, 2)
                await groups.loaded()
            assert await committed(groups) is None
            assert await listed(groups) == []

    run(test)


def test_what_the_transaction_commits_after_the_deletion_counts() -> None:
    async def test() -> None:
        async with service(MemoryLog()) as groups:
            await groups.commit_offsets(transactional(9, PRODUCER))
            await delete_group(groups)
            await groups.commit_offsets(transactional(10, PRODUCER))
            await groups.end_transaction(groups.partition_for("g"), PRODUCER, 1, commit=True)
            assert await committed(groups) == 10

    run(test)


@pytest.mark.row("P4", "G3")
def test_the_offsets_of_an_aborted_transaction_never_come() -> None:
    async def test() -> None:
        async with service(MemoryLog()) as groups:
            number = groups.partition_for("g")
            await groups.commit_offsets(commit(5))
            await groups.commit_offsets(transactional(9, PRODUCER))
            assert await is_unstable(groups)
            await groups.end_transaction(number, PRODUCER, 1, commit=False)
            assert await committed(groups) == 5
            groups.become_leader(number, 2)
            await groups.loaded()
            assert await committed(groups) == 5

    run(test)


def test_a_group_is_looked_up_whatever_transactions_hold_for_others() -> None:
    """The first commit of a group without members looked at every offset that is held."""

    def cost_beside(held: int) -> int:
        offsets = OffsetMetadataManager()
        for number in range(held):
            offsets.hold(OffsetRecord(f"g{number}", ORDERS_0, CommittedOffset(1)), 7)
        assert offsets.groups() == [f"g{number}" for number in range(held)]
        return cost(lambda: "another" in offsets or list(offsets.tombstones("another")))

    assert cost_beside(100) == cost_beside(1)


@pytest.mark.row("P4", "P7")
def test_a_transaction_holds_no_more_offsets_than_its_end_can_make_count_in_a_turn_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred thousand, of hundreds of groups, held the loop for more than a tenth of a second."""
    most = 100
    monkeypatch.setattr(offsets, "MOST_HELD", most)

    async def test() -> None:
        async with service(MemoryLog()) as groups:

            async def committed_by(producer: ProducerIdAndEpoch, first: int, count: int) -> set[ErrorCode]:
                many = range(first, first + count)
                wanted = tuple(OffsetToCommit(TopicPartition("orders", n), 1) for n in many)
                request = CommitOffsets("g", wanted, producer=producer)
                return set((await groups.commit_offsets(request)).errors.values())

            for first in range(0, most, 10):
                assert await committed_by(PRODUCER, first, 10) == {ErrorCode.NONE}
            assert await committed_by(PRODUCER, most, 1) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
            assert await committed_by(PRODUCER, most - 1, 1) == {ErrorCode.NONE}
            other = ProducerIdAndEpoch(8, 0)
            assert await committed_by(other, most, 1) == {ErrorCode.NONE}

    run(test)
