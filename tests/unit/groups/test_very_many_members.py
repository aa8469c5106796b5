"""What happens to all members of a classic group together happens to some of them per tick: there may be ten
thousand, and the broker has others to serve."""

from __future__ import annotations

import pytest

from data_plane.coordinator.groups.classic import group as classic_group
from data_plane.coordinator.groups.messages import (
    DescribedGroup,
    Heartbeat,
    HeartbeatReply,
    JoinReply,
    MemberProtocol,
    SyncGroup,
    SyncReply,
)
from metadata_quorum.foundation.errors import ErrorCode
from tests.unit.groups.clients import GROUP, ConsumerClient
from tests.unit.groups.group_driver import GroupDriver, join

AT_ONCE = 3
IDS = [f"m{number}" for number in range(8)]
LEADER = IDS[0]
REBALANCE_TIMEOUT_S = 60.0


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_group, "ENDED_AT_ONCE", AT_ONCE)


@pytest.fixture
def driver() -> GroupDriver:
    """With a stable group of one member, which the others are to join."""
    driver = GroupDriver()
    driver.ask("join", join(new=LEADER))
    driver.answer("sync", SyncGroup(GROUP, LEADER, 1, assignments={LEADER: b"x"}))
    return driver


def all_join(driver: GroupDriver) -> dict[str, int]:
    """Their tickets. The leader is the last one, and completes the join."""
    tickets = {each: driver.ask("join", join(new=each)) for each in IDS[1:]}
    return {**tickets, LEADER: driver.ask("join", join(LEADER))}


def answered(driver: GroupDriver, tickets: dict[str, int]) -> dict[str, ErrorCode]:
    found = {}
    for member_id, ticket in tickets.items():
        reply = driver.answers.get(ticket)
        if isinstance(reply, JoinReply | SyncReply):
            found[member_id] = reply.error
    return found


def is_due(driver: GroupDriver) -> bool:
    return driver.manager.next_deadline() <= driver.now


def members(driver: GroupDriver) -> int:
    return driver.manager.size_of(GROUP)


def generation(driver: GroupDriver, ticket: int) -> int:
    reply = driver.answers[ticket]
    assert isinstance(reply, JoinReply)
    return reply.generation


@pytest.mark.row("P7")
def test_joins_are_answered_in_pieces_the_leaders_first(driver: GroupDriver) -> None:
    tickets = all_join(driver)
    assert list(answered(driver, tickets)) == [*IDS[1:4], LEADER]
    driver.advance(0.0)
    assert answered(driver, tickets) == dict.fromkeys(IDS, ErrorCode.NONE)
    assert {generation(driver, ticket) for ticket in tickets.values()} == {2}
    assert not is_due(driver)


@pytest.mark.row("P7")
def test_who_has_no_answer_yet_takes_part_in_the_next_rebalance(driver: GroupDriver) -> None:
    tickets = all_join(driver)
    late = driver.ask("join", join(new="late"))
    again = {each: driver.ask("join", join(each)) for each in (*IDS[1:4], LEADER)}
    driver.advance(0.0)
    assert {each: generation(driver, tickets[each]) for each in IDS} == {
        **dict.fromkeys(IDS[:4], 2),
        **dict.fromkeys(IDS[4:], 3),
    }
    assert {generation(driver, ticket) for ticket in (late, *again.values())} == {3}


def parked_syncs(driver: GroupDriver) -> dict[str, int]:
    all_join(driver)
    driver.advance(0.0)
    return {each: driver.ask("sync", SyncGroup(GROUP, each, 2)) for each in IDS[1:]}


def leader_syncs(driver: GroupDriver) -> None:
    assigned = {each: each.encode() for each in IDS}
    driver.ask("sync", SyncGroup(GROUP, LEADER, 2, assignments=assigned))


@pytest.mark.row("P7")
def test_assignments_are_handed_out_in_pieces(driver: GroupDriver) -> None:
    tickets = parked_syncs(driver)
    leader_syncs(driver)
    assert len(answered(driver, tickets)) == AT_ONCE - 1  # and the leader
    driver.advance(0.0)
    for each, ticket in tickets.items():
        assert driver.answers[ticket] == SyncReply(ErrorCode.NONE, "consumer", "range", each.encode())
    assert not is_due(driver)


@pytest.mark.row("P7")
def test_a_rebalance_between_the_pieces_refuses_the_rest(driver: GroupDriver) -> None:
    tickets = parked_syncs(driver)
    leader_syncs(driver)
    driver.ask("join", join(new="late"))
    assert answered(driver, tickets) == {
        **dict.fromkeys(IDS[1:3], ErrorCode.NONE),
        **dict.fromkeys(IDS[3:], ErrorCode.REBALANCE_IN_PROGRESS),
    }
    driver.advance(0.0)
    assert not is_due(driver)


def never_sync(driver: GroupDriver) -> None:
    """All of them, who live, and only do not ask for their assignments. Some are dismissed."""
    all_join(driver)
    driver.advance(0.0)
    driver.now = REBALANCE_TIMEOUT_S - 0.1
    for each in IDS:
        assert driver.answer("heartbeat", Heartbeat(GROUP, each, 2)) == HeartbeatReply(ErrorCode.NONE)
    driver.now = REBALANCE_TIMEOUT_S
    driver.run("tick")


@pytest.mark.row("P7")
def test_members_that_never_sync_are_out_in_pieces(driver: GroupDriver) -> None:
    """And to whoever asks they are gone together."""
    never_sync(driver)
    group = driver.manager.group(GROUP)
    assert isinstance(group, classic_group.ClassicGroup)
    assert len(list(group.metadata.roster)) == len(IDS) - AT_ONCE
    assert members(driver) == 0
    described = driver.answer("describe", GROUP)
    assert isinstance(described, DescribedGroup)
    assert described.members == ()
    for each in IDS:
        unknown = HeartbeatReply(ErrorCode.UNKNOWN_MEMBER_ID)
        assert driver.answer("heartbeat", Heartbeat(GROUP, each, 2)) == unknown
    other = driver.ask("join", join(new="other", protocols=(MemberProtocol("another", b""),)))
    driver.advance(0.0)
    assert generation(driver, other) == 3
    assert members(driver) == 1


@pytest.mark.row("P7", "G6")
def test_who_is_about_to_be_out_is_not_taken_into_the_consumer_protocol(driver: GroupDriver) -> None:
    never_sync(driver)
    client = ConsumerClient("c", ("a",))
    assert client.beat(driver) is None
    assert client.is_member(driver)
    assert members(driver) == 1


@pytest.mark.row("P7")
def test_members_that_do_not_come_back_are_out_in_pieces(driver: GroupDriver) -> None:
    """The generation begins when they are."""
    all_join(driver)
    driver.advance(0.0)
    leader_syncs(driver)
    back = {each: driver.ask("join", join(each)) for each in (LEADER, IDS[1])}
    driver.now = REBALANCE_TIMEOUT_S - 0.1
    for each in IDS[2:]:
        rebalancing = HeartbeatReply(ErrorCode.REBALANCE_IN_PROGRESS)
        assert driver.answer("heartbeat", Heartbeat(GROUP, each, 2)) == rebalancing
    driver.now = REBALANCE_TIMEOUT_S
    driver.run("tick")
    assert answered(driver, back) == {}
    reply = driver.answer("join", join(IDS[-1]))
    assert reply == JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, IDS[-1])
    driver.advance(0.0)
    assert answered(driver, back) == dict.fromkeys(back, ErrorCode.NONE)
    assert members(driver) == len(back)
