"""A topic is deleted, in several turns, and another is made under its name: what that one has stays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from data_plane.coordinator.groups.group_metadata_manager import GroupLimits, GroupMetadataManager
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    CommittedOffset,
    FetchOffsets,
    OffsetToCommit,
)
from data_plane.coordinator.groups.offsets import OffsetMetadataManager, UnfinishedDeletion
from data_plane.coordinator.groups.records import OffsetRecord
from data_plane.coordinator.groups.service import GroupCoordinator, GroupCoordinatorConfig
from data_plane.coordinator.runtime import CoordinatorState
from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.bytecodes import cost
from tests.support.virtual_loop import run_virtually
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import ORDERS_0, commit, refusal, run, service
from tests.unit.groups.topics import Topics

FEW_IN_A_TURN = GroupCoordinatorConfig(groups=GroupLimits(max_records_per_sweep=10))
PLACES = [TopicPartition("orders", n) for n in range(3)]
PRODUCER = ProducerIdAndEpoch(7, 3)


async def commit_all(groups: GroupCoordinator, offset: int, group_ids: list[str]) -> None:
    for group_id in group_ids:
        offsets = tuple(OffsetToCommit(place, offset) for place in PLACES)
        await groups.commit_offsets(CommitOffsets(group_id, offsets))


async def all_committed(groups: GroupCoordinator, group_ids: list[str]) -> dict[str, list[int | None]]:
    found = {}
    for group_id in group_ids:
        offsets = (await groups.fetch_offsets(FetchOffsets(group_id, tuple(PLACES)))).offsets
        found[group_id] = [kept and kept.offset for kept in map(offsets.get, PLACES)]
    return found


@pytest.mark.row("G3")
def test_what_is_committed_for_a_recreated_topic_is_not_forgotten_with_the_old_one() -> None:
    async def test() -> None:
        async with service(MemoryLog(), epoch=None, config=FEW_IN_A_TURN) as groups:
            ids = [f"g{n}" for n in range(20)]
            groups.partitions = 1
            groups.become_leader(0, 1)
            await groups.loaded()
            await commit_all(groups, 1, ids)
            groups.topics_deleted(["orders"])
            await commit_all(groups, 4711, ["g15"])
            for _ in range(100):
                await asyncio.sleep(0)
            found = await all_committed(groups, ids)
            assert found.pop("g15") == [4711] * 3
            assert all(offsets == [None] * 3 for offsets in found.values())

    run(test)


@pytest.mark.row("G3")
def test_a_partition_that_is_being_loaded_hears_of_a_deleted_topic_too() -> None:
    async def test() -> None:
        log = MemoryLog()
        ids = [f"g{n}" for n in range(20)]
        async with service(log, epoch=None, config=FEW_IN_A_TURN) as groups:
            groups.partitions = 1
            groups.become_leader(0, 1)
            await groups.loaded()
            await commit_all(groups, 1, ids)
        async with service(log, epoch=None, config=FEW_IN_A_TURN) as groups:
            groups.partitions = 1
            groups.become_leader(0, 2)
            groups.topics_deleted(["orders"])
            await groups.loaded()
            await commit_all(groups, 4711, ["g15"])
            for _ in range(100):
                await asyncio.sleep(0)
            found = await all_committed(groups, ids)
            assert found.pop("g15") == [4711] * 3
            assert all(offsets == [None] * 3 for offsets in found.values())

    run(test)


@pytest.mark.row("G3")
@pytest.mark.parametrize("state", [CoordinatorState.LOADING, CoordinatorState.FAILED])
def test_who_loads_it_anew_has_not_forgotten_that_the_topic_was_deleted(state: CoordinatorState) -> None:
    """The load failed, or the leader epoch changed meanwhile. One of the same name is there by now."""

    async def test() -> None:
        log, ids, topics = MemoryLog(), [f"g{n}" for n in range(20)], Topics()
        topics.create("__consumer_offsets", 1)
        topics.create("orders", 3)
        async with service(log, epoch=None, config=FEW_IN_A_TURN) as groups:
            groups.partitions, groups.view = 1, topics.view
            groups.become_leader(0, 1)
            await groups.loaded()
            await commit_all(groups, 1, ids)
        async with service(log, epoch=None, config=FEW_IN_A_TURN) as groups:
            groups.partitions, groups.view = 1, topics.view
            log.is_broken = state is CoordinatorState.FAILED
            groups.become_leader(0, 2)
            if log.is_broken:
                await groups.loaded()
            log.is_broken = False
            assert groups.shards[0].state is state
            groups.topics_deleted(["orders"])
            if state is CoordinatorState.LOADING:
                groups.become_leader(0, 3)
            await asyncio.sleep(10)
            found = await all_committed(groups, ids)
            assert all(offsets == [None] * 3 for offsets in found.values())

    run_virtually(test())


@pytest.mark.row("G3", "P4")
@pytest.mark.parametrize("loads", [1, 2])
@pytest.mark.parametrize("commit_it", [True, False])
def test_who_loads_it_anew_goes_on_with_what_was_half_done(loads: int, commit_it: bool) -> None:
    """A topic of the name is there again. What it has by then stays, and what a transaction would commit."""

    async def test() -> None:
        log, ids, topics = MemoryLog(), [f"g{n}" for n in range(20)], Topics()
        topics.create("__consumer_offsets", 1)
        topics.create("orders", 3)
        async with service(log, epoch=None, config=FEW_IN_A_TURN) as groups:
            groups.partitions, groups.view = 1, topics.view
            groups.become_leader(0, 1)
            await groups.loaded()
            await commit_all(groups, 1, ids)
            groups.topics_deleted(["orders"])
            await commit_all(groups, 4711, ["g15"])
            offsets = tuple(OffsetToCommit(place, 12) for place in PLACES)
            await groups.commit_offsets(CommitOffsets("g16", offsets, producer=PRODUCER))
            for load in range(loads):
                groups.become_leader(0, 2 + load)
            await asyncio.sleep(10)
            await groups.end_transaction(0, PRODUCER, 1, commit=commit_it)
            await asyncio.sleep(10)
            found = await all_committed(groups, ids)
            assert found.pop("g15") == [4711] * 3
            assert found.pop("g16") == [12 if commit_it else None] * 3
            assert all(offsets == [None] * 3 for offsets in found.values())

    run_virtually(test())


@pytest.mark.row("G3")
@pytest.mark.parametrize("there", [True, False], ids=["there", "deleted"])
def test_the_next_coordinator_forgets_what_the_last_one_did_not_come_to(there: bool) -> None:
    """Else a new topic of that name would be read from where its groups were in the old one."""

    async def test() -> None:
        log, ids, topics = MemoryLog(), [f"g{n}" for n in range(20)], Topics()
        topics.create("__consumer_offsets", 1)
        topics.create("orders", 3)
        for epoch in (1, 2):
            async with service(log, epoch=None, config=FEW_IN_A_TURN) as groups:
                groups.partitions = 1
                groups.view = topics.view
                groups.become_leader(0, epoch)
                await groups.loaded()
                if epoch == 1:
                    await commit_all(groups, 1, ids)
                    if not there:
                        topics.delete("orders")
                        groups.topics_deleted(["orders"])
                    continue  # it dies at once
                for _ in range(100):
                    await asyncio.sleep(0)
                found = await all_committed(groups, ids)
                assert found == dict.fromkeys(ids, [1 if there else None] * 3)

    run(test)


@pytest.mark.row("G3")
def test_what_could_not_be_forgotten_at_first_is_later() -> None:
    """The ISR was too small when the topic was deleted. One of the same name was made meanwhile."""

    async def test() -> None:
        log, ids = MemoryLog(), [f"g{n}" for n in range(20)]
        async with service(log, epoch=None, config=FEW_IN_A_TURN) as groups:
            groups.partitions = 1
            groups.become_leader(0, 1)
            await groups.loaded()
            await commit_all(groups, 1, ids)
            log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
            groups.topics_deleted(["orders"])
            await asyncio.sleep(10)
            log.refusal = None
            await commit_all(groups, 4711, ["g15"])
            await asyncio.sleep(10)
            found = await all_committed(groups, ids)
            assert found.pop("g15") == [4711] * 3
            assert all(offsets == [None] * 3 for offsets in found.values())

    run_virtually(test())


@pytest.mark.row("G3", "P4")
@pytest.mark.parametrize("commit_it", [True, False])
def test_what_a_new_transaction_holds_is_not_forgotten_either(commit_it: bool) -> None:
    offsets = OffsetMetadataManager()

    def record(offset: int) -> OffsetRecord:
        return OffsetRecord("g", ORDERS_0, CommittedOffset(offset, -1, "", 0, -1))

    offsets.replay(record(1))
    deletion = offsets.begin_topic_deletion(UnfinishedDeletion(["orders"]))
    offsets.hold(record(9), PRODUCER.producer_id)
    assert offsets.delete_some_offsets(deletion, 10) == []
    offsets.end_transaction(PRODUCER.producer_id, commit=commit_it)
    for tombstone in offsets.delete_some_offsets(deletion, 10):
        offsets.replay(tombstone)
    assert not deletion.left
    assert [kept.offset for kept in offsets.of("g").values()] == ([9] if commit_it else [])


@pytest.mark.row("G3", "P4")
def test_what_a_transaction_from_before_commits_meanwhile_is_forgotten() -> None:
    offsets = OffsetMetadataManager()
    offsets.hold(OffsetRecord("g", ORDERS_0, CommittedOffset(9, -1, "", 0, -1)), PRODUCER.producer_id)
    deletion = offsets.begin_topic_deletion(UnfinishedDeletion(["orders"]))
    offsets.end_transaction(PRODUCER.producer_id, commit=True)
    assert offsets.delete_some_offsets(deletion, 10) == [OffsetRecord("g", ORDERS_0, None)]
    assert deletion.done


@pytest.mark.row("G3", "P4")
@pytest.mark.parametrize("commit_the_new_one", [True, False])
def test_that_is_so_where_a_new_transaction_holds_the_place_too(commit_the_new_one: bool) -> None:
    offsets, (old, new) = OffsetMetadataManager(), (7, 8)
    offsets.hold(OffsetRecord("g", ORDERS_0, CommittedOffset(4711, -1, "", 0, -1)), old)
    deletion = offsets.begin_topic_deletion(UnfinishedDeletion(["orders"]))
    offsets.hold(OffsetRecord("g", ORDERS_0, CommittedOffset(1, -1, "", 0, -1)), new)
    assert offsets.delete_some_offsets(deletion, 10) == []
    assert deletion.waits
    offsets.end_transaction(old, commit=True)
    assert offsets.delete_some_offsets(deletion, 10) == []
    offsets.end_transaction(new, commit=commit_the_new_one)
    for tombstone in offsets.delete_some_offsets(deletion, 10):
        offsets.replay(tombstone)
    assert deletion.done
    assert [kept.offset for kept in offsets.of("g").values()] == ([1] if commit_the_new_one else [])


def test_it_is_known_for_which_topics_there_are_offsets() -> None:
    offsets = OffsetMetadataManager()
    kept, held = CommittedOffset(1, -1, "", 0, -1), TopicPartition("held", 0)
    for place in (*PLACES, *PLACES):
        offsets.replay(OffsetRecord("g", place, kept))
    offsets.hold(OffsetRecord("g", held, kept), PRODUCER.producer_id)
    assert offsets.topics() == {"orders", "held"}
    offsets.end_transaction(PRODUCER.producer_id, commit=False)
    for place in (*PLACES, *PLACES):
        assert offsets.topics() == ({"orders"} if place in offsets.of("g") else set())
        offsets.replay(OffsetRecord("g", place, None))
    assert offsets.topics() == set()


def test_a_topic_is_forgotten_in_its_readers_groups_however_many_others_there_are() -> None:
    """Each topic that went was looked for in all of them, and those that went one by one waited in line."""

    def cost_beside(others: int) -> int:
        offsets, kept = OffsetMetadataManager(), CommittedOffset(1, -1, "", 0, -1)
        for number in range(others):
            offsets.replay(OffsetRecord(f"g{number}", TopicPartition("stays", 0), kept))
        offsets.replay(OffsetRecord("g", ORDERS_0, kept))

        def forget() -> None:
            deletion = offsets.begin_topic_deletion(UnfinishedDeletion(["orders", "never-read"]))
            assert offsets.delete_some_offsets(deletion, 1000) == [OffsetRecord("g", ORDERS_0, None)]
            assert deletion.done

        return cost(forget)

    assert cost_beside(100) == cost_beside(1)


def test_one_group_with_very_many_offsets_is_forgotten_in_several_turns() -> None:
    offsets = OffsetMetadataManager()
    places = [TopicPartition("orders", n) for n in range(25)]
    for place in places:
        offsets.replay(OffsetRecord("g", place, CommittedOffset(1, -1, "", 0, -1)))
    deletion = offsets.begin_topic_deletion(UnfinishedDeletion(["orders"]))
    sizes = []
    while not deletion.done:
        tombstones = offsets.delete_some_offsets(deletion, 10)
        sizes.append(len(tombstones))
        for tombstone in tombstones:
            offsets.replay(tombstone)
        if len(sizes) == 1:  # of the new topic
            offsets.replay(OffsetRecord("g", places[24], CommittedOffset(7, -1, "", 0, -1)))
    assert max(sizes) <= 10
    assert {place: kept.offset for place, kept in offsets.of("g").items()} == {places[24]: 7}


@pytest.mark.parametrize("step", ["replay", "end_transaction"])
def test_a_machine_that_cannot_take_what_is_in_the_log_serves_no_longer(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise KeyError("a bug")

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        log = MemoryLog()
        async with service(log) as groups:
            await groups.commit_offsets(commit(5))
            partition = groups.partition_for("g")
            end = log.bounds(partition)[1]
            monkeypatch.setattr(GroupMetadataManager, step, fails)
            if step == "replay":
                asked = groups.commit_offsets(commit(6))
            else:
                asked = groups.end_transaction(partition, PRODUCER, 1, commit=True)
            assert await refusal(asked) is ErrorCode.NOT_COORDINATOR
            with pytest.raises(BrokerError):
                await groups.commit_offsets(commit(7))
            assert log.bounds(partition)[1] <= end + 1

    run(test)


def test_a_refused_deletion_of_which_nothing_is_left_has_ended() -> None:
    """A client has deleted the rest in between: nobody would come back to it."""
    offsets = OffsetMetadataManager()
    for place in PLACES:
        offsets.replay(OffsetRecord("g", place, CommittedOffset(1)))
    deletion = offsets.begin_topic_deletion(UnfinishedDeletion(["orders"]))
    offsets.delete_some_offsets(deletion, 1)
    for place in PLACES:
        offsets.replay(OffsetRecord("g", place, None))
    offsets.refuse_topic_deletion(deletion)
    assert deletion.done
    assert offsets.unfinished_deletions() == []
