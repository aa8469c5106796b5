"""The service over a log in memory: loading, parking until replicated, losing leadership, failover."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from data_plane.coordinator.groups.classic.states import ClassicGroupConfig
from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat
from data_plane.coordinator.groups.consumer.topic_patterns import NAMES_PER_STEP
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    CommitReply,
    FetchOffsets,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    LeaveGroup,
    ListedGroup,
    MemberIdentity,
    MemberProtocol,
    OffsetToCommit,
    SyncGroup,
)
from data_plane.coordinator.groups.service import GroupCoordinator, GroupCoordinatorConfig, java_string_hash
from data_plane.coordinator.groups.table import GroupLimits
from data_plane.coordinator.machine import ProducerIdAndEpoch
from data_plane.coordinator.runtime import ShardLimits
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.table_driver import EPOCH_MS
from tests.unit.groups.topics import Topics

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


@pytest.mark.row("G3")
@pytest.mark.parametrize(
    ("group_id", "value", "partition"),  # as java.lang.String.hashCode and Kafka's partitionFor give them
    [
        ("", 0, 0),
        ("g1", 3242, 42),
        ("my-consumer-group", 1513705513, 13),
        ("größe", 98762257, 7),
        ("😀 group", -1570619006, 6),
        ("console-consumer-12345", 158455506, 6),
        ("a-very-long-group-name-that-overflows", 894705465, 15),
    ],
)
def test_groups_are_spread_by_javas_string_hash(group_id: str, value: int, partition: int) -> None:
    async def test() -> None:
        assert java_string_hash(group_id) == value
        async with service(MemoryLog(), epoch=None) as groups:
            assert groups.partition_for(group_id) == partition

    run(test)


def test_only_the_leader_of_the_partition_answers() -> None:
    async def test() -> None:
        async with service(MemoryLog(), epoch=None) as groups:
            assert await refusal(groups.join(JOIN)) is ErrorCode.NOT_COORDINATOR
            assert await refusal(groups.heartbeat(Heartbeat("", "m", 1))) is ErrorCode.INVALID_GROUP_ID

    run(test)


def test_a_reply_waits_until_what_it_says_is_replicated() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            log.replicating = False
            writing = started(groups.commit_offsets(commit(5)))
            await settle()
            reading = started(committed(groups))
            await settle()
            assert not writing.done()
            assert not reading.done()  # it would tell of an offset that may yet be lost
            log.replicate(groups.partition_for("g"))
            assert await writing == CommitReply({ORDERS_0: ErrorCode.NONE})
            assert await reading == 5

    run(test)


def test_replication_that_takes_too_long_is_told() -> None:
    async def test() -> None:
        log = MemoryLog()
        config = GroupCoordinatorConfig(shards=ShardLimits(commit_timeout=0.01))
        async with service(log, config=config) as groups:
            log.replicating = False
            assert await refusal(groups.commit_offsets(commit(5))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            held = log.partition(groups.partition_for("g"))
            held.waiting.clear()  # as when the ISR becomes too small: waits are broken off
            held.high_watermark = held.end
            assert await committed(groups) == 5  # unknown became true

    run(test)


def test_what_is_due_at_once_is_as_good_on_the_loop_that_nodes_use() -> None:
    """uvloop makes of a timer that is due a plain handle, which lacks `when`."""

    async def test() -> None:
        log = MemoryLog()
        async with service(
            log, config=GroupCoordinatorConfig(shards=ShardLimits(commit_timeout=0.0))
        ) as groups:
            log.replicating = False
            asked = [refusal(groups.commit_offsets(commit(offset))) for offset in (5, 6)]
            assert await asyncio.gather(*asked) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_append_that_fails_is_told_in_a_coordinators_words(refused: ErrorCode, told: ErrorCode) -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            log.refusal = refused
            assert await refusal(groups.commit_offsets(commit(5))) is told
            log.refusal = None
            assert await committed(groups) is None

    run(test)


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
            log.cut_unreplicated(number)  # the old leader is gone with its tail
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


def test_a_silent_member_goes_by_the_services_own_timer() -> None:
    async def test() -> None:
        async with service(MemoryLog()) as groups:
            quick = JoinGroup("g", "", "consumer", JOIN.protocols, 20, 20, requires_known_id=False)
            member = (await groups.join(quick)).member_id
            await groups.sync(SyncGroup("g", member, 1))
            assert (await groups.describe_group("g")).state == "Stable"
            while (await groups.describe_group("g")).state != "Empty":  # noqa: ASYNC110 - a real timer
                await asyncio.sleep(0.005)
            assert (await groups.heartbeat(Heartbeat("g", member, 1))).error is ErrorCode.UNKNOWN_MEMBER_ID

    run(test)


def test_whoever_gives_up_waiting_disturbs_nobody() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            log.replicating = False
            gone, stays = started(groups.commit_offsets(commit(1))), started(groups.commit_offsets(commit(2)))
            await settle()
            gone.cancel()
            await settle()
            log.replicate(groups.partition_for("g"))
            assert await stays == CommitReply({ORDERS_0: ErrorCode.NONE})

    run(test)


def test_groups_are_listed_described_and_deleted() -> None:
    async def test() -> None:
        async with service(MemoryLog()) as groups:
            quick = JoinGroup("g", "", "consumer", JOIN.protocols, 1_000, 1_000, requires_known_id=False)
            member = (await groups.join(quick)).member_id
            await groups.sync(SyncGroup("g", member, 1, assignments={member: b"a"}))
            assert await groups.list_groups() == [ListedGroup("g", "consumer", "Stable")]
            described = await groups.describe_group("g")
            assert (described.protocol, described.members[0].assignment) == ("range", b"a")
            assert await groups.delete_group("g") is ErrorCode.NON_EMPTY_GROUP
            await groups.leave(LeaveGroup("g", (MemberIdentity(member),)))
            await groups.commit_offsets(commit(3))
            deleted = await groups.delete_offsets("g", [ORDERS_0])
            assert deleted.errors == {ORDERS_0: ErrorCode.NONE}
            await groups.commit_offsets(commit(3))
            groups.topics_deleted(["orders"])
            assert await committed(groups) is None
            assert await groups.delete_group("g") is ErrorCode.NONE
            assert await groups.list_groups() == []
            assert await refusal(groups.delete_offsets("g", [ORDERS_0])) is ErrorCode.GROUP_ID_NOT_FOUND

    run(test)


def test_the_group_without_a_name_can_be_deleted_and_not_described() -> None:
    async def test() -> None:
        async with service(MemoryLog()) as groups:
            elsewhere = ErrorCode.NOT_COORDINATOR  # it is looked for
            assert await refusal(groups.delete_group("")) is elsewhere
            assert await refusal(groups.describe_consumer_group("")) is ErrorCode.INVALID_GROUP_ID

    run(test)


def transactional(offset: int, producer: ProducerIdAndEpoch) -> CommitOffsets:
    return CommitOffsets("g", (OffsetToCommit(ORDERS_0, offset),), producer=producer)


async def is_unstable(groups: GroupCoordinator) -> bool:
    return ORDERS_0 in (await groups.fetch_offsets(FetchOffsets("g", (ORDERS_0,), True))).unstable


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


def test_a_pattern_is_looked_up_a_few_topics_at_a_time() -> None:
    """Others have their turns while a heartbeat waits for what its pattern stands for."""

    async def test() -> None:
        async with service(MemoryLog()) as groups:
            topics = Topics()
            for number in range(400):
                topics.create(f"t{number}", 1)
            groups.view.image = topics.view.image
            asked: list[str] = []
            joining = asyncio.ensure_future(
                groups.consumer_heartbeat(
                    ConsumerHeartbeat(
                        "g",
                        "m",
                        0,
                        rebalance_timeout_ms=1000,
                        subscribed_topic_regex="t.*",
                        owned={},
                        may_see=lambda name: not asked.append(name),
                    )
                )
            )
            turns = 0
            while not joining.done():
                await asyncio.sleep(0)
                turns += 1
            assert turns > 400 / NAMES_PER_STEP
            assert len((await joining).assignment or {}) == 400

    run(test)


def test_what_no_batch_could_hold_goes_in_several() -> None:
    partitions = [TopicPartition("orders", n) for n in range(100)]

    async def commit_all(groups: GroupCoordinator) -> None:
        for partition in partitions:
            await groups.commit_offsets(CommitOffsets("g", (OffsetToCommit(partition, 1),)))

    async def test() -> None:
        log = MemoryLog()
        log.max_bytes = 1_000
        async with service(log) as groups:
            too_large = CommitOffsets("g", tuple(OffsetToCommit(p, 1) for p in partitions))
            assert await refusal(groups.commit_offsets(too_large)) is ErrorCode.UNKNOWN_SERVER_ERROR
            await commit_all(groups)
            assert await groups.delete_group("g") is ErrorCode.NONE
            await commit_all(groups)
            groups.topics_deleted(["orders"])
            assert await groups.list_groups() == []
            await commit_all(groups)
            deleted = await groups.delete_offsets("g", partitions)
            assert set(deleted.errors.values()) == {ErrorCode.NONE}
            assert await groups.list_groups() == []
        async with service(log, epoch=2) as groups:
            assert await groups.list_groups() == []

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
            listing = started(groups.list_groups())
            await settle()
            groups.resign(first + 1)
            log.replicate(first)
            await held
            listed = await listing
            assert isinstance(listed, list)
            assert [group.group_id for group in listed] == ["g"]

    run(test)


@pytest.mark.parametrize("value", [b"", b"\0\1\xff", b"\x7f\xff" + bytes(40)])
def test_a_record_that_somebody_else_has_written_is_passed_over(value: bytes) -> None:
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
