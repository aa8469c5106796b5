"""Committed offsets: what is kept, for how long, and who may delete it."""

from __future__ import annotations

import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from data_plane.coordinator.groups.classic.consumer_protocol import MAX_TOPICS, subscribed_topics
from data_plane.coordinator.groups.classic.group_metadata import ClassicGroupMetadata
from data_plane.coordinator.groups.classic.members import member_of
from data_plane.coordinator.groups.classic.states import ClassicGroupState
from data_plane.coordinator.groups.group_metadata_manager import LOOKED_AT
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    CommitReply,
    CommittedOffset,
    FetchOffsets,
    LeaveGroup,
    ListedGroup,
    MemberIdentity,
    MemberProtocol,
    OffsetsReply,
    OffsetToCommit,
    SyncGroup,
)
from data_plane.coordinator.groups.offsets import OffsetMetadataManager, UnfinishedDeletion
from data_plane.coordinator.groups.records import OffsetRecord
from data_plane.coordinator.state_machine import Instant
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.unit.groups.group_driver import EPOCH_MS, NO_DELAY, GroupDriver, join

DAY = 24 * 3600.0
ORDERS_0, ORDERS_1, OTHER_0 = (
    TopicPartition("orders", 0),
    TopicPartition("orders", 1),
    TopicPartition("other", 0),
)


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">ii", -1, 0)


def commit(driver: GroupDriver, *wanted: OffsetToCommit, **fields: object) -> dict[TopicPartition, ErrorCode]:
    reply = driver.answer("commit", CommitOffsets("g", wanted, **fields))  # type: ignore[arg-type]
    assert isinstance(reply, CommitReply)
    return dict(reply.errors)


def kept(driver: GroupDriver) -> dict[TopicPartition, int]:
    reply = driver.answer("fetch", FetchOffsets("g", None))
    assert isinstance(reply, OffsetsReply)
    return {p: offset.offset for p, offset in reply.offsets.items() if offset is not None}


def stable_group(topic: str = "orders") -> GroupDriver:
    driver = GroupDriver()
    protocols = (MemberProtocol("range", subscription(topic)),)
    driver.answer("join", join(new="m1", protocols=protocols, session_timeout_ms=1_800_000))
    driver.answer("sync", SyncGroup("g", "m1", 1, assignments={"m1": b"all"}))
    return driver


def stay(driver: GroupDriver, days: float) -> None:
    """The member goes on committing `other`, day after day."""
    for _ in range(round(days * 96)):
        driver.advance(900.0)
        commit(driver, OffsetToCommit(OTHER_0, 1), member_id="m1", generation=1)


def test_an_offset_is_kept_with_all_that_came_with_it() -> None:
    driver = GroupDriver()
    driver.advance(1.5)
    assert commit(driver, OffsetToCommit(ORDERS_0, 7, 3, "note")) == {ORDERS_0: ErrorCode.NONE}
    for side in (driver, driver.reloaded()):
        reply = side.answer("fetch", FetchOffsets("g", (ORDERS_0, ORDERS_1)))
        stored = CommittedOffset(7, 3, "note", EPOCH_MS + 1500)
        assert reply == OffsetsReply({ORDERS_0: stored, ORDERS_1: None})


def test_a_note_that_is_too_long_is_refused_and_the_others_are_kept() -> None:
    driver = GroupDriver()
    outcome = commit(driver, OffsetToCommit(ORDERS_0, 1, metadata="x" * 4097), OffsetToCommit(ORDERS_1, 2))
    assert outcome == {ORDERS_0: ErrorCode.OFFSET_METADATA_TOO_LARGE, ORDERS_1: ErrorCode.NONE}
    assert kept(driver) == {ORDERS_1: 2}


def test_the_length_of_a_note_is_counted_as_by_java() -> None:
    """In characters, of which those that do not fit into two bytes are two."""
    for note, code in (
        ("\u0444" * 4096, ErrorCode.NONE),
        ("\U0001f600" * 2048, ErrorCode.NONE),
        ("\U0001f600" * 2049, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ):
        assert commit(GroupDriver(), OffsetToCommit(ORDERS_0, 1, metadata=note)) == {ORDERS_0: code}


def test_a_refused_append_leaves_the_old_offset() -> None:
    driver = GroupDriver()
    commit(driver, OffsetToCommit(ORDERS_0, 1))
    driver.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    ticket = driver.ask("commit", CommitOffsets("g", (OffsetToCommit(ORDERS_0, 2),)))
    assert driver.answers.pop(ticket) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert kept(driver) == {ORDERS_0: 1}


def test_offsets_without_a_group_age_from_their_commit() -> None:
    driver = GroupDriver()
    commit(driver, OffsetToCommit(ORDERS_0, 1))
    driver.advance(1 * DAY)
    commit(driver, OffsetToCommit(ORDERS_1, 2))
    driver.advance(6 * DAY - 1)
    assert driver.expire() == 0
    driver.advance(1)
    driver.expire()
    assert kept(driver) == kept(driver.reloaded()) == {ORDERS_1: 2}


def test_a_generation_is_unknown_to_a_group_that_is_only_offsets() -> None:
    driver = GroupDriver()
    wanted = OffsetToCommit(ORDERS_0, 1)
    assert commit(driver, wanted, generation=3) == {ORDERS_0: ErrorCode.GROUP_ID_NOT_FOUND}
    assert commit(driver, wanted) == {ORDERS_0: ErrorCode.NONE}
    assert commit(driver, wanted, generation=3) == {ORDERS_0: ErrorCode.UNKNOWN_MEMBER_ID}


def test_an_old_client_may_ask_for_its_own_retention() -> None:
    driver = GroupDriver()
    commit(driver, OffsetToCommit(ORDERS_0, 1), retention_time_ms=10_000)
    driver.advance(9.9)
    driver.expire()
    assert kept(driver) == {ORDERS_0: 1}
    driver.advance(0.1)
    driver.expire()
    assert kept(driver) == kept(driver.reloaded()) == {}


def test_a_retention_of_its_own_does_not_end_for_what_the_group_reads() -> None:
    """It did: an old client that had committed nothing for as long began anew after a rebalance."""
    driver = stable_group()
    for wanted in (ORDERS_0, TopicPartition("unread", 0)):
        commit(driver, OffsetToCommit(wanted, 1), member_id="m1", generation=1, retention_time_ms=10_000)
    stay(driver, days=1)
    driver.expire()
    assert kept(driver) == {ORDERS_0: 1, OTHER_0: 1}
    driver.answer("leave", LeaveGroup("g", (MemberIdentity("m1"),)))
    driver.expire()
    assert kept(driver) == {OTHER_0: 1}


def test_a_retention_beyond_the_end_of_time_ends_there() -> None:
    driver = GroupDriver()
    commit(driver, OffsetToCommit(ORDERS_0, 1), retention_time_ms=2**63 - 1)
    assert kept(driver) == kept(driver.reloaded()) == {ORDERS_0: 1}


def test_offsets_of_a_group_age_from_when_its_last_member_left_then_the_group_expires_too() -> None:
    driver = stable_group()
    commit(driver, OffsetToCommit(ORDERS_0, 1), member_id="m1", generation=1)
    stay(driver, days=8)
    assert kept(driver)[ORDERS_0] == 1
    driver.answer("leave", LeaveGroup("g", (MemberIdentity("m1"),)))
    driver.advance(7 * DAY - 1)
    driver.expire()
    assert kept(driver)[ORDERS_0] == 1
    driver.advance(1)
    driver.expire()
    for side in (driver, driver.reloaded()):
        assert kept(side) == {}
        assert side.listed() == ()


def test_a_stable_group_outgrows_topics_that_it_reads_no_more() -> None:
    driver = stable_group("other")
    commit(driver, OffsetToCommit(ORDERS_0, 1), member_id="m1", generation=1)
    stay(driver, days=8)
    driver.expire()
    assert kept(driver) == {OTHER_0: 1}


def test_a_sweep_is_bounded() -> None:
    driver = GroupDriver(replace(NO_DELAY, max_records_per_sweep=2))
    for n in range(5):
        driver.answer("commit", CommitOffsets(f"g{n}", (OffsetToCommit(ORDERS_0, 1),)))
    driver.advance(8 * DAY)
    left = driver.manager.groups_to_expire()
    assert [driver.run("expire", left) for _ in range(4)] == [2, 2, 1, 0]


def test_a_sweep_looks_at_so_many_offsets_at_a_time() -> None:
    """All of a partition in one turn of the loop took 60 ms for a hundred thousand."""
    driver = GroupDriver()
    for n in range(LOOKED_AT):
        driver.answer("commit", CommitOffsets(f"g{n}", (OffsetToCommit(ORDERS_0, 1),)))
    left = driver.manager.groups_to_expire()
    assert driver.run("expire", left) == 0
    assert len(left) == LOOKED_AT // 2  # the others are as many groups, with an offset each


def test_a_group_with_more_offsets_than_a_sweep_takes_is_expired_and_deleted_piece_by_piece() -> None:
    def of_five() -> GroupDriver:
        driver = GroupDriver(replace(NO_DELAY, max_records_per_sweep=2))
        commit(driver, *(OffsetToCommit(TopicPartition("orders", n), 1) for n in range(5)))
        return driver

    driver = of_five()
    driver.advance(8 * DAY)
    left = driver.manager.groups_to_expire()
    assert [driver.run("expire", left) for _ in range(4)] == [2, 2, 1, 0]
    assert kept(driver) == kept(driver.reloaded()) == {}
    driver = of_five()
    assert [driver.answer("delete", "g") for _ in range(3)] == [None, None, ErrorCode.NONE]
    assert kept(driver) == kept(driver.reloaded()) == {}


def test_offsets_of_a_deleted_topic_go_with_it() -> None:
    driver = GroupDriver()
    commit(driver, OffsetToCommit(ORDERS_0, 1), OffsetToCommit(OTHER_0, 2))
    deletion = driver.manager.begin_topic_deletion(UnfinishedDeletion(["orders"]))
    assert driver.run("delete_some_offsets", deletion) == 1
    assert kept(driver) == {OTHER_0: 2}


def test_an_empty_group_can_be_deleted_and_no_other() -> None:
    driver = stable_group()
    commit(driver, OffsetToCommit(ORDERS_0, 1), member_id="m1", generation=1)
    assert driver.answer("delete", "g") is ErrorCode.NON_EMPTY_GROUP
    assert driver.answer("delete", "nobody") is ErrorCode.GROUP_ID_NOT_FOUND
    driver.answer("leave", LeaveGroup("g", (MemberIdentity("m1"),)))
    assert driver.listed() == (ListedGroup("g", "consumer", "Empty"),)
    assert driver.answer("delete", "g") is ErrorCode.NONE
    for side in (driver, driver.reloaded()):
        assert side.listed() == ()
        assert kept(side) == {}


def test_offsets_can_be_deleted_unless_the_topic_is_being_read() -> None:
    driver = stable_group("other")
    offsets = (OffsetToCommit(ORDERS_0, 1), OffsetToCommit(OTHER_0, 2))
    commit(driver, *offsets, member_id="m1", generation=1)
    reply = driver.answer("delete_offsets", "g", (ORDERS_0, OTHER_0))
    assert isinstance(reply, CommitReply)
    assert reply.errors == {ORDERS_0: ErrorCode.NONE, OTHER_0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert kept(driver) == {OTHER_0: 2}


def test_offsets_can_be_deleted_while_the_group_rebalances() -> None:
    driver = stable_group("other")
    offsets = (OffsetToCommit(ORDERS_0, 1), OffsetToCommit(OTHER_0, 2))
    commit(driver, *offsets, member_id="m1", generation=1)
    protocols = (MemberProtocol("range", subscription("other")),)
    driver.ask("join", join(new="m2", protocols=protocols))
    reply = driver.answer("delete_offsets", "g", (ORDERS_0, OTHER_0))
    assert isinstance(reply, CommitReply)
    assert reply.errors == {ORDERS_0: ErrorCode.NONE, OTHER_0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [
        ("consumer", CommitReply({ORDERS_0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})),
        ("connect", ErrorCode.NON_EMPTY_GROUP),
    ],
)
def test_offsets_stay_where_nobody_knows_what_the_group_reads(kind: str, refusal: object) -> None:
    driver = GroupDriver()
    driver.answer("join", join(new="m1", protocol_type=kind, protocols=(MemberProtocol("range", b"?"),)))
    assert driver.answer("delete_offsets", "g", (ORDERS_0,)) == refusal


def test_a_subscription_is_read_and_anything_else_is_not() -> None:
    assert subscribed_topics([subscription("a", "b"), subscription("b", "c")]) == frozenset({"a", "b", "c"})
    assert subscribed_topics([subscription()]) == frozenset()
    for bad in (
        b"",
        b"range",
        subscription("abc")[:8],
        struct.pack(">hih", 0, 1, -1),
        b"\x00\x00\x00\x00\x00\x01",
    ):
        assert subscribed_topics([bad]) is None


def test_a_subscription_to_more_topics_than_are_read_at_once_is_read_by_nobody() -> None:
    """It would be read on the event loop. What members read alike counts once."""
    most = tuple(f"{n:x}" for n in range(MAX_TOPICS))
    assert subscribed_topics([subscription(*most)]) == frozenset(most)
    assert subscribed_topics([subscription(*most, "one")]) is None
    group = ClassicGroupMetadata("g", 0, ClassicGroupState.STABLE, protocol_type="consumer", protocol="range")
    for number, names in enumerate((most[1:], most[:1], most[1:], most[:1], most[1:2])):
        protocols = (MemberProtocol("range", subscription(*names)),)
        group.roster.add(member_of(join(protocols=protocols), f"m{number}"))
        together = group.subscribed_topics()
        read = (frozenset(most[1:]), frozenset(most), frozenset(most), frozenset(most), None)
        assert together == read[number], number


@pytest.mark.row("G3")
def test_what_a_group_reads_is_looked_up_once_in_a_sweep() -> None:
    """Its members' subscriptions are read for that, which takes milliseconds."""
    offsets = OffsetMetadataManager()
    for number in range(100):
        place = TopicPartition("orders", number)
        offsets.replay(OffsetRecord("g", place, CommittedOffset(5, commit_timestamp_ms=0)))
    looked: list[int] = []
    group: Any = SimpleNamespace(
        metadata=SimpleNamespace(protocol_type="consumer", state=ClassicGroupState.STABLE),
        is_empty=False,
        subscribed_topics=lambda: looked.append(1) or frozenset({"orders"}),
    )
    assert list(offsets.expired("g", group, 11, Instant(0.0, 10))) == []
    assert looked == [], "none is old enough"
    assert list(offsets.expired("g", group, 1, Instant(0.0, 10))) == []
    assert len(looked) == 1


@pytest.mark.row("G3")
@pytest.mark.parametrize(
    "state", [ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE]
)
def test_a_group_that_rebalances_keeps_the_offsets_of_what_its_members_may_read(
    state: ClassicGroupState,
) -> None:
    """Nobody knows until the rebalance is over."""
    offsets = OffsetMetadataManager()
    place = TopicPartition("orders", 0)
    offsets.replay(OffsetRecord("g", place, CommittedOffset(5, commit_timestamp_ms=0)))
    for topics in (None, {"others"}):
        group: Any = SimpleNamespace(
            metadata=SimpleNamespace(protocol_type="consumer", state=state),
            is_empty=False,
            subscribed_topics=lambda topics=topics: topics,
        )
        assert list(offsets.expired("g", group, 1, Instant(0.0, 10))) == []
