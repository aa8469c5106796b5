"""The group coordinator when its partition moves: losing it, loading it, what a failover keeps."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from data_plane.coordinator.groups.group_metadata_manager import GroupMetadataManager
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    FetchOffsets,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    OffsetToCommit,
    SyncGroup,
)
from data_plane.coordinator.loading import FIRST_S, LAST_S
from data_plane.coordinator.runtime import CoordinatorState, ShardLimits
from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.virtual_loop import run_virtually
from tests.unit.groups.group_driver import EPOCH_MS
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import (
    CONFIG,
    JOIN,
    ORDERS_0,
    commit,
    committed,
    is_unstable,
    listed,
    refusal,
    run,
    service,
    settle,
    started,
    transactional,
)


def test_losing_the_partition_ends_every_wait() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            log.replicating = False
            waiting = [started(groups.commit_offsets(commit(n))) for n in range(3)]
            await settle()
            groups.resign(groups.partition_for("g"))
            for task in waiting:
                assert await refusal(task) is ErrorCode.NOT_COORDINATOR
            assert await refusal(groups.commit_offsets(commit(9))) is ErrorCode.NOT_COORDINATOR

    run(test)


def test_a_partition_that_moves_while_groups_are_listed_has_no_part_in_the_list() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            log.replicating = False
            committing = started(groups.commit_offsets(commit(1)))
            await settle()
            listing = started(listed(groups))
            await settle()
            groups.resign(groups.partition_for("g"))
            assert await listing == []
            assert await refusal(committing) is ErrorCode.NOT_COORDINATOR

    run(test)


@pytest.mark.row("G3")
def test_loading_yields_to_the_loop_and_refuses_requests_meanwhile() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            for n in range(200):
                await groups.commit_offsets(commit(n))
        async with service(log, epoch=None) as groups:
            groups.become_leader(groups.partition_for("g"), 2)
            turns = 0
            answers: set[ErrorCode] = set()
            beats: set[HeartbeatReply] = set()
            while True:
                await asyncio.sleep(0)
                turns += 1
                try:
                    offset = await committed(groups)
                    break
                except BrokerError as e:
                    answers.add(e.code)
                    beats.add(await groups.heartbeat(Heartbeat("g", "m", 1)))
            assert answers == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
            assert beats == {HeartbeatReply(ErrorCode.NONE)}
            assert offset == 199
            assert turns > 10
            assert log.reads > 5

    run(test)


@pytest.mark.row("G3")
def test_partitions_that_load_at_the_same_time_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred of them replayed a hundred pieces in every turn of the loop."""
    partitions = 10

    async def test() -> None:
        log = MemoryLog()
        async with service(log, epoch=None) as groups:
            for number in range(partitions):
                groups.become_leader(number, 1)
            await groups.loaded()
            names = {groups.partition_for(name): name for name in map(str, range(500))}
            for number in range(partitions):
                for offset in range(60):
                    wanted = (OffsetToCommit(ORDERS_0, offset),)
                    await groups.commit_offsets(CommitOffsets(names[number], wanted))
        replayed = [0]
        replay = GroupMetadataManager.replay

        def counted(*arguments: Any) -> Any:
            replayed[-1] += 1
            return replay(*arguments)

        monkeypatch.setattr(GroupMetadataManager, "replay", counted)
        async with service(log, epoch=None) as groups:
            for number in range(partitions):
                groups.become_leader(number, 2)
            while any(shard.state is CoordinatorState.LOADING for shard in groups.shards):
                await asyncio.sleep(0)
                replayed.append(0)
        assert sum(replayed) == 60 * partitions
        assert max(replayed) <= 500 // 60  # what is in a piece

    run(test)


@pytest.mark.row("G3")
def test_partitions_with_little_to_replay_are_loaded_in_few_turns() -> None:
    """Each took two turns of the loop at least, shared with none: half a second, on a busy broker."""
    config = replace(CONFIG, shards=ShardLimits())
    partitions = config.partitions

    async def test() -> None:
        log = MemoryLog()
        async with service(log, epoch=None, config=config) as groups:
            for number in range(partitions):
                groups.become_leader(number, 1)
            await groups.loaded()
            names = {groups.partition_for(name): name for name in map(str, range(1000))}
            for number in range(partitions):
                wanted = (OffsetToCommit(ORDERS_0, number),)
                await groups.commit_offsets(CommitOffsets(names[number], wanted))
        async with service(log, epoch=None, config=config) as groups:
            for number in range(partitions):
                groups.become_leader(number, 2)
            turns = 0
            while any(shard.state is CoordinatorState.LOADING for shard in groups.shards):
                await asyncio.sleep(0)
                turns += 1
            assert turns <= partitions // 2
            assert log.reads == partitions
            for number in range(partitions):
                [(_, kept)] = (await groups.fetch_offsets(FetchOffsets(names[number], None))).offsets.items()
                assert kept is not None
                assert kept.offset == number

    run(test)


def faulty(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, *, works: bool) -> None:
    """The next call fails, before or after it has done its work; the ones behind it do not."""
    call = getattr(owner, name)

    def fail(*arguments: object) -> object:
        monkeypatch.setattr(owner, name, call)
        if works:
            call(*arguments)
        raise RuntimeError("a bug")

    monkeypatch.setattr(owner, name, fail)


@pytest.mark.row("G3")
@pytest.mark.parametrize(
    ("fails", "works"),
    [("append", False), ("append", True), ("replay", False), ("replay", True), ("marker", False)],
)
def test_a_partition_that_fails_is_loaded_anew(
    monkeypatch: pytest.MonkeyPatch, fails: str, works: bool
) -> None:
    """It was served by nobody until its leader changed."""

    async def test() -> None:
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        log, producer = MemoryLog(), ProducerIdAndEpoch(7, 0)
        async with service(log) as groups:
            await groups.commit_offsets(commit(1))
            owner = GroupMetadataManager if fails == "replay" else log
            faulty(monkeypatch, owner, "replay" if fails == "replay" else "append", works=works)
            if fails == "marker":
                end = groups.end_transaction(groups.partition_for("g"), producer, 0, commit=True)
                assert await refusal(end) is ErrorCode.NOT_COORDINATOR
            else:
                assert await refusal(groups.commit_offsets(commit(2))) is ErrorCode.NOT_COORDINATOR
            assert await refusal(groups.commit_offsets(commit(3))) is ErrorCode.NOT_COORDINATOR
            await asyncio.sleep(FIRST_S)
            await groups.loaded()
            assert await committed(groups) == (2 if works or fails == "replay" else 1)
            await groups.commit_offsets(commit(4))
            assert await committed(groups) == 4
        assert len(faults) == 1

    run_virtually(test())


@pytest.mark.row("G3")
def test_a_partition_that_cannot_be_loaded_is_tried_again_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        log, tried_at = MemoryLog(), list[float]()
        async with service(log) as groups:
            await groups.commit_offsets(commit(1))

        async def unreadable(partition: int, offset: int, max_bytes: int) -> bytes:
            tried_at.append(loop.time())
            raise OSError("a bad sector")

        with monkeypatch.context() as patch:
            patch.setattr(log, "read", unreadable)
            groups_again = service(log, epoch=2)
            groups = await groups_again.__aenter__()
            await asyncio.sleep(5 * LAST_S)
        pauses = [after - before for before, after in pairwise(tried_at)]
        assert pauses[:6] == pytest.approx([1, 2, 4, 8, 16, 32])
        assert set(pauses[6:]) == {LAST_S}
        await asyncio.sleep(LAST_S)
        await groups.loaded()
        assert await committed(groups) == 1
        await groups_again.__aexit__(None, None, None)

    run_virtually(test())


@pytest.mark.row("G3")
def test_a_partition_that_has_failed_and_is_led_elsewhere_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        log = MemoryLog()
        async with service(log) as groups:
            faulty(monkeypatch, log, "append", works=False)
            assert await refusal(groups.commit_offsets(commit(1))) is ErrorCode.NOT_COORDINATOR
            groups.resign(groups.partition_for("g"))
            await asyncio.sleep(2 * LAST_S)
            assert groups.shards == []

    run_virtually(test())


def test_what_cannot_be_written_down_is_refused_and_no_more() -> None:
    async def test() -> None:
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        async with service(MemoryLog()) as groups:
            long = TopicPartition("n" * 40_000, 0)  # no record has room for such a name
            refused = groups.commit_offsets(CommitOffsets("g", (OffsetToCommit(long, 1),)))
            assert await refusal(refused) is ErrorCode.UNKNOWN_SERVER_ERROR
            await groups.commit_offsets(commit(1))
        assert len(faults) == 1

    run(test)


def test_a_log_that_cannot_be_read_gives_no_coordinator() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            number = groups.partition_for("g")
            await groups.commit_offsets(commit(1))
            log.partition(number).data[-6] ^= 0xFF  # inside the value, where its version promises more
            log.partition(number).data[61 + 8] = 9
        async with service(log, epoch=2) as groups:
            assert await refusal(groups.commit_offsets(commit(2))) is ErrorCode.NOT_COORDINATOR

    run(test)


@pytest.mark.row("G3")
def test_a_failover_keeps_what_was_acknowledged_and_only_that_is_promised() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as old, service(log, epoch=None) as new:
            number = old.partition_for("g")
            joined = await old.join(JOIN)
            assert joined.error is ErrorCode.MEMBER_ID_REQUIRED
            joined = await old.join(
                JoinGroup("g", joined.member_id, "consumer", JOIN.protocols, 10_000, 60_000)
            )
            member = joined.member_id
            assert member.startswith("app-")
            await old.sync(SyncGroup("g", member, 1, assignments={member: b"mine"}))
            of_member = CommitOffsets("g", (OffsetToCommit(ORDERS_0, 5),), member, 1)
            await old.commit_offsets(of_member)

            log.replicating = False
            unknown = started(
                old.commit_offsets(CommitOffsets("g", (OffsetToCommit(ORDERS_0, 6),), member, 1))
            )
            await settle()
            log.truncate_unreplicated(number)  # the old leader is gone with its tail
            log.replicating = True
            new.become_leader(number, 2)
            await new.loaded()
            assert await committed(new) == 5
            assert (await new.heartbeat(Heartbeat("g", member, 1))).error is ErrorCode.NONE
            assert (await new.sync(SyncGroup("g", member, 1))).assignment == b"mine"
            await new.commit_offsets(of_member)

            # The old one still believes: its appends are refused, its clients sent away.
            assert await refusal(old.commit_offsets(of_member)) is ErrorCode.NOT_COORDINATOR
            assert not unknown.done()
            old.resign(number)
            assert await refusal(unknown) is ErrorCode.NOT_COORDINATOR

    run(test)


def test_a_newer_epoch_reloads_and_an_older_one_changes_nothing() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log, epoch=5) as groups:
            number = groups.partition_for("g")
            reads = log.reads
            await groups.commit_offsets(commit(1))
            for epoch in (4, 5):
                groups.become_leader(number, epoch)
                assert await committed(groups) == 1
            assert log.reads == reads
            groups.become_leader(number, 6)
            assert await refusal(groups.commit_offsets(commit(2))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await groups.loaded()
            assert await committed(groups) == 1

    run(test)


@pytest.mark.row("P4", "G4")
@pytest.mark.parametrize("commit_it", [True, False])
@pytest.mark.parametrize("reloaded", ["never", "open", "ended"])
def test_offsets_of_a_transaction_count_when_it_commits(commit_it: bool, reloaded: str) -> None:
    async def test() -> None:
        log = MemoryLog()
        producer = ProducerIdAndEpoch(7, 3)
        async with service(log) as groups:
            number = groups.partition_for("g")
            await groups.commit_offsets(commit(5))
            await groups.commit_offsets(transactional(9, producer))
            assert await committed(groups) == 5
            if reloaded == "open":
                groups.become_leader(number, 2)
                await groups.loaded()
            assert await is_unstable(groups)
            await groups.end_transaction(number, producer, 1, commit=commit_it)
            if reloaded == "ended":
                groups.become_leader(number, 2)
                await groups.loaded()
            assert not await is_unstable(groups)
            assert await committed(groups) == (9 if commit_it else 5)

    run(test)


@pytest.mark.row("P4", "G4")
@pytest.mark.parametrize("reloaded", [False, True])
def test_of_two_offsets_the_later_one_counts_whichever_transaction_ends_first(reloaded: bool) -> None:
    async def test() -> None:
        log = MemoryLog()
        first, second, third = ProducerIdAndEpoch(1, 0), ProducerIdAndEpoch(2, 0), ProducerIdAndEpoch(3, 0)
        async with service(log) as groups:
            number = groups.partition_for("g")
            await groups.commit_offsets(transactional(10, first))
            await groups.commit_offsets(transactional(20, second))
            await groups.end_transaction(number, second, 1, commit=True)
            await groups.end_transaction(number, first, 1, commit=True)
            assert await committed(groups) == 20
            await groups.commit_offsets(transactional(30, third))
            await groups.commit_offsets(commit(25))
            await groups.end_transaction(number, third, 1, commit=True)
            if reloaded:
                groups.become_leader(number, 2)
                await groups.loaded()
            assert await committed(groups) == 25

    run(test)


def test_records_that_are_deleted_while_they_are_loaded_are_not_waited_for() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            for offset in range(200):
                await groups.commit_offsets(commit(offset))
        async with service(log, epoch=None) as groups:
            partition = groups.partition_for("g")
            groups.become_leader(partition, 2)
            await asyncio.sleep(0)
            assert await refusal(groups.commit_offsets(commit(1))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            log.partition(partition).start = log.partition(partition).end - 1
            await groups.loaded()
            assert await committed(groups) == 199

    run(test)


def test_a_partition_that_moves_while_groups_are_listed_leaves_no_error() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            first = groups.partition_for("g")
            groups.become_leader(first + 1, 1)
            await groups.loaded()
            await groups.commit_offsets(commit(1))
            log.replicating = False
            held = started(groups.commit_offsets(commit(2)))
            await settle()
            listing = started(listed(groups))
            await settle()
            groups.resign(first + 1)
            log.replicate(first)
            await held
            found = await listing
            assert isinstance(found, list)
            assert [group.group_id for group in found] == ["g"]

    run(test)


@pytest.mark.parametrize("value", [b"", b"\0\1\xff", b"\x7f\xff" + bytes(40)])
def test_a_record_that_somebody_else_has_written_is_passed_over(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            await groups.commit_offsets(commit(7))
            partition = groups.partition_for("g")
            foreign = encode_batch(
                [Record(-1, EPOCH_MS, b"\0\1\0\1g", value), Record(-1, EPOCH_MS, b"\0", b"")]
            )
            log.append(partition, 1, bytearray(foreign))
        async with service(log, epoch=2) as groups:
            assert await committed(groups) == 7
            await groups.commit_offsets(commit(8))
        where = f"in the coordinator's partition {partition} at offset"
        assert f"a record of kind 1 {where} 1 is passed over" in caplog.text
        assert f"a record of kind 0 {where} 2 is passed over" in caplog.text

    run(test)


def test_a_damaged_batch_is_not_taken_for_what_it_says() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            await groups.commit_offsets(commit(7))
            partition = groups.partition_for("g")
        log.partition(partition).data[-3] ^= 1
        async with service(log, epoch=2) as groups:
            assert await refusal(groups.commit_offsets(commit(8))) is ErrorCode.NOT_COORDINATOR

    run(test)
