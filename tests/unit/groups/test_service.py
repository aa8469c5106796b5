"""The group coordinator over a log in memory: who is asked, waiting for replication, listing and deleting."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import uvloop

from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat
from data_plane.coordinator.groups.consumer.topic_patterns import NAMES_PER_STEP
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    CommitReply,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    ListedGroup,
    MemberIdentity,
    MemberProtocol,
    OffsetToCommit,
    SyncGroup,
)
from data_plane.coordinator.groups.service import GroupCoordinator, GroupCoordinatorConfig
from data_plane.coordinator.runtime import ANSWERED_PER_TURN, ShardLimits
from data_plane.coordinator.topics import java_string_hash
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.virtual_loop import run_virtually
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import (
    CONFIG,
    JOIN,
    ORDERS_0,
    commit,
    committed,
    listed,
    refusal,
    run,
    service,
    settle,
    started,
)
from tests.unit.groups.topics import Topics


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


def test_replication_that_takes_too_long_is_reported() -> None:
    async def test() -> None:
        log = MemoryLog()
        config = GroupCoordinatorConfig(shards=ShardLimits(commit_timeout=0.01))
        async with service(log, config=config) as groups:
            log.replicating = False
            assert await refusal(groups.commit_offsets(commit(5))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            held = log.partition(groups.partition_for("g"))
            log.break_off(groups.partition_for("g"))
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
    ("refused", "expected"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_append_that_fails_is_reported_by_a_coordinators_error_codes(
    refused: ErrorCode, expected: ErrorCode
) -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            log.refusal = refused
            assert await refusal(groups.commit_offsets(commit(5))) is expected
            log.refusal = None
            assert await committed(groups) is None

    run(test)


def test_a_silent_member_is_removed_by_the_services_own_timer() -> None:
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


def test_a_member_that_no_record_could_hold_is_not_taken_in() -> None:
    async def test() -> None:
        log = MemoryLog()
        log.max_bytes = 1_000
        async with service(log) as groups:
            protocols = (MemberProtocol("range", bytes(5_000)),)
            large = JoinGroup("g", "", "consumer", protocols, 1_000, 1_000, requires_known_id=False)
            assert (await groups.join(large)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
            small = replace(large, protocols=JOIN.protocols)
            assert (await groups.join(small)).error is ErrorCode.NONE

    run(test)


def test_groups_are_listed_described_and_deleted() -> None:
    async def test() -> None:
        async with service(MemoryLog()) as groups:
            quick = JoinGroup("g", "", "consumer", JOIN.protocols, 1_000, 1_000, requires_known_id=False)
            member = (await groups.join(quick)).member_id
            await groups.sync(SyncGroup("g", member, 1, assignments={member: b"a"}))
            assert await listed(groups) == [ListedGroup("g", "consumer", "Stable")]
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
            assert await listed(groups) == []
            assert await refusal(groups.delete_offsets("g", [ORDERS_0])) is ErrorCode.GROUP_ID_NOT_FOUND

    run(test)


def test_the_group_without_a_name_can_be_deleted_and_not_described() -> None:
    async def test() -> None:
        async with service(MemoryLog()) as groups:
            elsewhere = ErrorCode.NOT_COORDINATOR  # it is looked for
            assert await refusal(groups.delete_group("")) is elsewhere
            assert await refusal(groups.describe_consumer_group("")) is ErrorCode.INVALID_GROUP_ID

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


def test_a_heartbeat_that_is_called_off_while_it_waits_disturbs_no_other() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            log.replicating = False
            join = ConsumerHeartbeat(
                "g", "m", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=("t",), owned={}
            )
            joining, behind = (started(groups.consumer_heartbeat(join)) for _ in range(2))
            await settle()
            behind.cancel()
            await asyncio.wait((behind,))
            log.replicate(groups.partition_for("g"))
            await joining

    run(test)


@pytest.mark.row("G6")
@pytest.mark.parametrize("called_off", [[], [1], [1, 2]])
def test_a_heartbeat_that_is_called_off_lets_no_other_overtake_the_one_before_it(
    called_off: list[int],
) -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            log.replicating = False
            join = ConsumerHeartbeat(
                "g", "m", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=("t",), owned={}
            )
            tasks = [started(groups.consumer_heartbeat(join)) for _ in range(3)]
            await settle()
            for number in called_off:
                tasks[number].cancel()
            await settle()
            leaving = started(groups.consumer_heartbeat(ConsumerHeartbeat("g", "m", -1)))
            await settle()
            assert [len(each.members) for each in groups.summaries()] == [1]  # it has not left yet
            for _ in range(4):
                log.replicate(groups.partition_for("g"))
                await settle()
            assert await leaving
            assert [len(each.members) for each in groups.summaries()] == [0]

    run(test)


@pytest.mark.row("G6")
def test_who_joins_and_leaves_at_once_is_no_member() -> None:
    """The topics of its pattern take several turns of the loop. Else it would join after it has left, and
    hold partitions until its session ends."""

    async def test() -> None:
        async with service(MemoryLog()) as groups:
            topics = Topics()
            for number in range(3 * NAMES_PER_STEP):
                topics.create(f"t{number}", 1)
            groups.view.image = topics.view.image
            join = ConsumerHeartbeat(
                "g", "m", 0, rebalance_timeout_ms=60_000, subscribed_topic_regex="t.*", owned={}
            )
            joining, leaving = (
                started(groups.consumer_heartbeat(each)) for each in (join, ConsumerHeartbeat("g", "m", -1))
            )
            await asyncio.wait((joining, leaving))
            assert (await groups.describe_consumer_group("g")).members == ()
            assert await refusal(groups.consumer_heartbeat(ConsumerHeartbeat("g", "m", 1))) is (
                ErrorCode.UNKNOWN_MEMBER_ID
            )

    run(test)


def test_what_no_batch_could_hold_is_split_into_several() -> None:
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
            assert await listed(groups) == []
            await commit_all(groups)
            deleted = await groups.delete_offsets("g", partitions)
            assert set(deleted.errors.values()) == {ErrorCode.NONE}
            assert await listed(groups) == []
        async with service(log, epoch=2) as groups:
            assert await listed(groups) == []

    run(test)


async def most_answered_in_a_turn(waiting: list[asyncio.Task[object]]) -> int:
    most, before = 0, sum(task.done() for task in waiting)
    while before < len(waiting):
        await asyncio.sleep(0)
        done = sum(task.done() for task in waiting)
        most, before = max(most, done - before), done
    return most


@pytest.mark.row("G1", "P7")
def test_many_members_that_join_together_are_answered_some_in_each_turn_of_the_loop() -> None:
    """A thousand replies at once took the broker 70 ms, in which it did nothing else."""

    async def test() -> None:
        async with service(MemoryLog()) as groups:
            member = replace(JOIN, requires_known_id=False)
            first = await groups.join(member)
            waiting = [started(groups.join(member)) for _ in range(5 * ANSWERED_PER_TURN)]
            await settle()
            assert not any(task.done() for task in waiting)
            waiting.append(started(groups.join(replace(member, member_id=first.member_id))))
            assert await most_answered_in_a_turn(waiting) <= ANSWERED_PER_TURN
            replies = [task.result() for task in waiting]
            assert {reply.generation for reply in replies if isinstance(reply, JoinReply)} == {2}

    run(test)


@pytest.mark.row("G3", "P7")
def test_what_is_replicated_at_the_same_moment_is_answered_some_in_each_turn_of_the_loop() -> None:
    async def test() -> None:
        log = MemoryLog()
        async with service(log) as groups:
            number = groups.partition_for("g")
            log.replicating = False
            waiting = [started(groups.commit_offsets(commit(n))) for n in range(5 * ANSWERED_PER_TURN)]
            await settle()
            log.replicate(number)
            later = started(groups.commit_offsets(commit(9)))
            assert await most_answered_in_a_turn(waiting) <= ANSWERED_PER_TURN
            await settle()
            assert not later.done()
            log.replicate(number)
            assert await later == CommitReply({ORDERS_0: ErrorCode.NONE})

    run(test)


@pytest.mark.row("G3", "P7")
@pytest.mark.parametrize("ends", ["replicated", "its leadership", "their time"])
def test_requests_of_many_partitions_share_the_turns_of_the_loop(ends: str) -> None:
    """A follower of all of them stood still for a second."""
    config = replace(CONFIG, shards=ShardLimits(commit_timeout=5.0))

    async def test() -> None:
        log = MemoryLog()
        async with service(log, config=config) as groups:
            names = [f"g{n}" for n in range(5 * ANSWERED_PER_TURN)]
            numbers = {groups.partition_for(name) for name in names}
            for number in numbers:
                groups.become_leader(number, 1)
            await groups.loaded()
            log.replicating = False
            commits = [replace(commit(1), group_id=name) for name in names]
            waiting = [started(groups.commit_offsets(each)) for each in commits]
            await settle()
            assert not any(task.done() for task in waiting)
            if ends == "their time":
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for number in numbers:
                if ends == "replicated":
                    log.replicate(number)
                elif ends == "its leadership":
                    groups.resign(number)
            assert await most_answered_in_a_turn(waiting) <= ANSWERED_PER_TURN
            failed = [task.exception() for task in waiting]
            assert (failed == [None] * len(waiting)) is (ends == "replicated")

    run_virtually(test())


@pytest.mark.row("G3")
def test_what_is_replicated_and_not_answered_yet_is_answered_when_its_time_is_up() -> None:
    config = replace(CONFIG, shards=ShardLimits(commit_timeout=5.0))

    async def test() -> None:
        log = MemoryLog()
        async with service(log, config=config) as groups:
            log.replicating = False
            asyncio.get_running_loop().call_later(5.0, log.replicate, groups.partition_for("g"))
            waiting = [started(groups.commit_offsets(commit(n))) for n in range(3 * ANSWERED_PER_TURN)]
            for each in waiting:
                assert await each == CommitReply({ORDERS_0: ErrorCode.NONE})

    run_virtually(test())


@pytest.mark.row("G3", "P7")
@pytest.mark.parametrize("ends", ["its leadership", "their time"])
def test_requests_whose_wait_ends_together_are_refused_some_in_each_turn_of_the_loop(ends: str) -> None:
    config = replace(CONFIG, shards=ShardLimits(commit_timeout=5.0))

    async def test() -> None:
        log = MemoryLog()
        async with service(log, config=config) as groups:
            log.replicating = False
            waiting = [started(groups.commit_offsets(commit(n))) for n in range(5 * ANSWERED_PER_TURN)]
            await settle()
            if ends == "its leadership":
                groups.resign(groups.partition_for("g"))
                expected = ErrorCode.NOT_COORDINATOR
            else:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                assert sum(task.done() for task in waiting) <= 2 * ANSWERED_PER_TURN
                expected = ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await most_answered_in_a_turn(waiting) <= ANSWERED_PER_TURN
            for each in waiting:
                assert await refusal(each) is expected

    run_virtually(test())
