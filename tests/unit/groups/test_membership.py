"""Joining, syncing, staying and leaving, input by input, with Kafka's answer to each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data_plane.coordinator.groups.classic.members import Roster, member_of
from data_plane.coordinator.groups.classic.states import TRANSITIONS, ClassicGroupConfig, ClassicGroupState
from data_plane.coordinator.groups.group_metadata_manager import GroupLimits
from data_plane.coordinator.groups.messages import (
    DescribedGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    MemberIdentity,
    MemberProtocol,
    SyncGroup,
    SyncReply,
)
from metadata_quorum.foundation.errors import ErrorCode
from tests.unit.groups.classic_steps import beat, commit, joined, stable, state, sync, synced
from tests.unit.groups.group_driver import GroupDriver, join


def test_a_newcomer_is_given_its_id_and_joins_with_it() -> None:
    driver = GroupDriver()
    refusal = driver.answer("join", join(new="m1", requires_known_id=True))
    assert refusal == JoinReply(ErrorCode.MEMBER_ID_REQUIRED, "m1")
    reply = driver.answer("join", join("m1"))
    assert isinstance(reply, JoinReply)
    assert (reply.error, reply.generation, reply.leader) == (ErrorCode.NONE, 1, "m1")
    assert [m.member_id for m in reply.members] == ["m1"]


def test_an_id_that_was_given_out_is_forgotten_after_the_session_timeout() -> None:
    driver = GroupDriver()
    driver.answer("join", join(new="m1", requires_known_id=True))
    driver.advance(10.0)
    reply = driver.answer("join", join("m1"))
    assert reply == JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, "m1")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_joins_that_are_refused_at_once(fields: dict[str, object], error: ErrorCode) -> None:
    reply = GroupDriver().answer("join", join(**fields))  # type: ignore[arg-type]
    assert isinstance(reply, JoinReply)
    assert reply.error is error


def test_a_member_that_shares_no_protocol_is_refused() -> None:
    driver, _ = stable(1)
    for fields in ({"protocols": (MemberProtocol("sticky", b""),)}, {"protocol_type": "connect"}):
        reply = driver.answer("join", join(new="m2", **fields))
        assert isinstance(reply, JoinReply)
        assert reply.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert state(driver) == "Stable"


def test_the_protocol_that_most_prefer_of_those_all_can_play() -> None:
    driver = GroupDriver()
    wishes = {
        "m1": ("sticky", "range", "own"),
        "m2": ("range", "sticky"),
        "m3": ("range", "sticky"),
    }
    for _ in range(2):  # once to come in, once more to be there together
        tickets = [
            driver.ask(
                "join",
                join(
                    m if m in joined_once else "",
                    new=m,
                    protocols=tuple(MemberProtocol(name, name.encode()) for name in names),
                ),
            )
            for joined_once in [set(wishes) if _ else set()]
            for m, names in wishes.items()
        ]
    replies = [joined(driver, t) for t in tickets]
    assert {r.protocol_name for r in replies} == {"range"}
    assert [m.metadata for m in replies[0].members] == [b"range"] * 3


def test_protocols_that_nobody_supports_any_more_are_forgotten() -> None:
    """Their names are the members' to choose, at every join new ones."""
    roster = Roster()
    member = member_of(join("m"), "m")
    roster.add(member)
    for number in range(5):
        both = (MemberProtocol("range", b""), MemberProtocol(f"own-{number}", b""))
        roster.change_protocols(member, both)
    assert roster.supporters == {"range": 1, "own-4": 1}
    roster.remove(member)
    assert not roster.supporters


def test_an_empty_group_waits_for_more_members_as_long_as_they_keep_coming() -> None:
    driver = GroupDriver(GroupLimits(rules=ClassicGroupConfig(initial_rebalance_delay=3.0)))
    first = driver.ask("join", join(new="m1", rebalance_timeout_ms=7_000))
    driver.advance(2.0)
    second = driver.ask("join", join(new="m2", rebalance_timeout_ms=7_000))
    driver.advance(2.0)  # 3 s are over, and m2 came meanwhile: 3 s more
    third = driver.ask("join", join(new="m3", rebalance_timeout_ms=7_000))
    driver.advance(2.9)  # m3 came meanwhile: what is left of 7 s, 1 s more
    assert driver.answers == {}
    driver.advance(0.1)
    assert {joined(driver, t).generation for t in (first, second, third)} == {1}


@pytest.mark.parametrize("delay_s", [0.0, 3.0])
def test_an_empty_group_waits_for_nobody_who_has_only_been_given_an_id(delay_s: float) -> None:
    """Its process may have ended since."""
    driver = GroupDriver(GroupLimits(rules=ClassicGroupConfig(initial_rebalance_delay=delay_s)))
    required = driver.answer("join", join(new="gone", requires_known_id=True))
    assert isinstance(required, JoinReply)
    assert required.error is ErrorCode.MEMBER_ID_REQUIRED
    ticket = driver.ask("join", join(new="m1"))
    driver.advance(delay_s)
    assert [each.member_id for each in joined(driver, ticket).members] == ["m1"]


def test_nobody_gets_an_assignment_before_the_leader_gave_them() -> None:
    driver = GroupDriver()
    driver.answer("join", join(new="m1"))
    second, first = driver.ask("join", join(new="m2")), driver.ask("join", join("m1"))
    leader, follower = joined(driver, first), joined(driver, second)
    assert (leader.leader, follower.leader, follower.members) == ("m1", "m1", ())
    waiting = driver.ask("sync", sync("m2", 2))
    assert waiting not in driver.answers
    assert commit(driver, "m2", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    mine = driver.ask("sync", sync("m1", 2, m1=b"one", m2=b"two"))
    assert (synced(driver, mine).assignment, synced(driver, waiting).assignment) == (b"one", b"two")
    assert synced(driver, driver.ask("sync", sync("m2", 2))).assignment == b"two"  # asked again


def test_a_member_that_was_not_given_anything_gets_nothing() -> None:
    driver = GroupDriver()
    driver.answer("join", join(new="m1"))
    assert synced(driver, driver.ask("sync", sync("m1", 1))).assignment == b""


def test_generations_and_members_are_fenced() -> None:
    driver, generation = stable(2)
    assert beat(driver, "m1", generation) is ErrorCode.NONE
    for wrong in (generation - 1, generation + 1):
        assert beat(driver, "m1", wrong) is ErrorCode.ILLEGAL_GENERATION
        assert commit(driver, "m1", wrong) is ErrorCode.ILLEGAL_GENERATION
        assert synced(driver, driver.ask("sync", sync("m1", wrong))).error is ErrorCode.ILLEGAL_GENERATION
    assert beat(driver, "stranger", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver, "stranger", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID  # not while members are there
    assert commit(driver, "m1", generation) is ErrorCode.NONE


def test_a_sync_must_know_what_was_chosen() -> None:
    driver, generation = stable(1)
    request = SyncGroup("g", "m1", generation)
    for wrong in (replace(request, protocol_type="connect"), replace(request, protocol_name="sticky")):
        assert synced(driver, driver.ask("sync", wrong)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_requests_to_a_group_that_is_not_there() -> None:
    driver = GroupDriver()
    assert beat(driver, "m1", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert synced(driver, driver.ask("sync", sync("m1", 1))).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver, "m1", 1) is ErrorCode.GROUP_ID_NOT_FOUND
    left = driver.answer("leave", LeaveGroup("g", (MemberIdentity("m1"),)))
    assert left == LeaveReply(ErrorCode.NONE, ((MemberIdentity("m1"), ErrorCode.UNKNOWN_MEMBER_ID),))


def test_a_newcomer_makes_everyone_rejoin() -> None:
    driver, generation = stable(2)
    third = driver.ask("join", join(new="m3"))
    assert beat(driver, "m1", generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert commit(driver, "m1", generation) is ErrorCode.NONE  # a last commit before rejoining
    again = synced(driver, driver.ask("sync", sync("m1", generation)))
    assert again.error is ErrorCode.REBALANCE_IN_PROGRESS
    tickets = [driver.ask("join", join(m)) for m in ("m1", "m2")]
    assert {joined(driver, t).generation for t in (third, *tickets)} == {generation + 1}


def test_whoever_does_not_rejoin_in_time_is_out() -> None:
    driver, generation = stable(2)
    third = driver.ask("join", join(new="m3"))
    rejoined = driver.ask("join", join("m1"))
    for _ in range(12):  # m2 is alive, yet does not rejoin within 60 s
        driver.advance(5.0)
        beat(driver, "m2", generation)
    assert joined(driver, rejoined).generation == generation + 1
    assert joined(driver, third).error is ErrorCode.NONE
    assert beat(driver, "m2", generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_out_after_its_session() -> None:
    driver, generation = stable(2)
    driver.advance(6.0)
    assert beat(driver, "m1", generation) is ErrorCode.NONE
    driver.advance(4.0)
    assert beat(driver, "m1", generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert joined(driver, driver.ask("join", join("m1"))).generation == generation + 1
    assert beat(driver, "m2", generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_keep_a_session_alive() -> None:
    driver, generation = stable(1)
    for _ in range(3):
        driver.advance(9.0)
        assert commit(driver, "m1", generation) is ErrorCode.NONE
    assert state(driver) == "Stable"


def test_a_parked_join_keeps_a_session_alive() -> None:
    driver, generation = stable(2)
    waiting = driver.ask("join", join("m1"))  # the leader has seen new partitions
    for _ in range(5):
        driver.advance(9.0)
        assert beat(driver, "m2", generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting not in driver.answers
    driver.ask("join", join("m2"))
    assert joined(driver, waiting).error is ErrorCode.NONE


def test_who_was_only_given_an_id_leaves_with_it_whatever_else_it_says() -> None:
    driver, _ = stable(1, instance_id="i")
    for instance_id in (None, "i", "other"):
        driver.answer("join", join(new="m2", requires_known_id=True))
        leaving = MemberIdentity("m2", instance_id)
        reply = driver.answer("leave", LeaveGroup("g", (leaving,)))
        assert reply == LeaveReply(ErrorCode.NONE, ((leaving, ErrorCode.NONE),))
        assert driver.answer("join", join("m2")) == JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, "m2")


def test_what_was_assigned_stays_until_something_else_is() -> None:
    """Cooperative members read it meanwhile."""

    def assigned() -> set[bytes]:
        described = driver.answer("describe", "g")
        assert isinstance(described, DescribedGroup)
        return {member.assignment for member in described.members}

    driver, _ = stable(2)
    for member in ("m1", "m2"):
        driver.ask("join", join(member))
    assert (state(driver), assigned()) == ("CompletingRebalance", {b"m1", b"m2"})
    driver.ask("join", join(new="m3"))
    assert (state(driver), assigned()) == ("PreparingRebalance", {b"m1", b"m2", b""})


def test_whoever_never_syncs_is_out() -> None:
    driver = GroupDriver()
    driver.answer("join", join(new="m1"))
    driver.ask("join", join(new="m2"))
    joined(driver, driver.ask("join", join("m1")))
    waiting = driver.ask("sync", sync("m2", 2))
    for _ in range(12):
        driver.advance(5.0)
        beat(driver, "m1", 2)  # beats, but never brings the assignment
    assert synced(driver, waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert beat(driver, "m1", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    reply = joined(driver, driver.ask("join", join("m2")))
    assert (reply.leader, reply.generation) == ("m2", 3)


def test_a_follower_that_rejoins_unchanged_gets_the_assignment() -> None:
    driver, generation = stable(2)
    reply = joined(driver, driver.ask("join", join("m2")))
    assert (reply.generation, reply.members) == (generation, ())
    assert state(driver) == "Stable"


def test_a_changed_subscription_rebalances() -> None:
    driver, generation = stable(2)
    waiting = driver.ask("join", join("m2", protocols=(MemberProtocol("range", b"more"),)))
    assert beat(driver, "m1", generation) is ErrorCode.REBALANCE_IN_PROGRESS
    leader = joined(driver, driver.ask("join", join("m1")))
    assert joined(driver, waiting).generation == generation + 1
    assert [m.metadata for m in leader.members] == [b"r", b"more"]


def test_leaving_hands_the_lead_on_and_the_last_one_empties_the_group() -> None:
    driver, generation = stable(2)
    left = driver.answer("leave", LeaveGroup("g", (MemberIdentity("m1"), MemberIdentity("nobody"))))
    assert isinstance(left, LeaveReply)
    assert [error for _, error in left.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    reply = joined(driver, driver.ask("join", join("m2")))
    assert (reply.leader, reply.generation) == ("m2", generation + 1)
    driver.answer("leave", LeaveGroup("g", (MemberIdentity("m2"),)))
    assert state(driver) == "Empty"
    assert commit(driver, "", -1) is ErrorCode.NONE  # nobody can be overrun any more
    assert state(driver.reloaded()) == "Empty"


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    driver, _ = stable(2)
    waiting = driver.ask("join", join(new="m3"))
    driver.answer("leave", LeaveGroup("g", (MemberIdentity("m3"),)))
    assert joined(driver, waiting).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_refused_store_is_reported_to_all_and_computed_again() -> None:
    driver = GroupDriver()
    driver.answer("join", join(new="m1"))
    second, first = driver.ask("join", join(new="m2")), driver.ask("join", join("m1"))
    joined(driver, first), joined(driver, second)
    waiting = driver.ask("sync", sync("m2", 2))
    driver.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    mine = driver.ask("sync", sync("m1", 2, m1=b"one", m2=b"two"))
    for ticket in (waiting, mine):
        assert synced(driver, ticket) == SyncReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert state(driver) == "PreparingRebalance"
    driver.refusal = None
    tickets = [driver.ask("join", join(m)) for m in ("m1", "m2")]
    assert {joined(driver, t).generation for t in tickets} == {3}


def test_a_new_coordinator_knows_the_stable_group() -> None:
    driver, generation = stable(2)
    assert commit(driver, "m1", generation) is ErrorCode.NONE
    successor = driver.reloaded()
    assert successor.answer("describe", "g") == driver.answer("describe", "g")
    assert beat(successor, "m1", generation) is ErrorCode.NONE
    assert synced(successor, successor.ask("sync", sync("m2", generation))).assignment == b"m2"
    successor.advance(10.0)  # sessions run from the load on
    assert beat(successor, "m1", generation) is ErrorCode.UNKNOWN_MEMBER_ID


# --- static members --------------------------------------------------------------------------------


def test_a_static_member_comes_back_without_a_rebalance_and_fences_its_former_self() -> None:
    driver, generation = stable(1, instance_id="i1")
    reply = joined(driver, driver.ask("join", join(new="m1b", instance_id="i1")))
    assert (reply.error, reply.member_id, reply.generation) == (ErrorCode.NONE, "m1b", generation)
    assert (reply.leader, reply.skip_assignment) == ("m1b", True)
    assert state(driver) == "Stable"
    assert synced(driver, driver.ask("sync", sync("m1b", generation, "i1"))).assignment == b"m1"
    assert beat(driver, "m1", generation, "i1") is ErrorCode.FENCED_INSTANCE_ID
    assert beat(driver.reloaded(), "m1b", generation, "i1") is ErrorCode.NONE


def test_a_static_member_whose_return_cannot_be_stored_is_who_it_was() -> None:
    """The next coordinator would know it by its old id, and with what it said then."""
    driver, generation = stable(1, instance_id="i1")
    before = driver.answer("describe", "g")
    driver.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    others = (MemberProtocol("range", b"other"), MemberProtocol("sticky", b""))
    ticket = driver.ask("join", join(new="m1b", instance_id="i1", protocols=others))
    assert driver.answers[ticket] in (driver.refusal, JoinReply(driver.refusal, "m1b"))
    driver.refusal = None
    assert before == driver.answer("describe", "g") == driver.reloaded().answer("describe", "g")
    assert beat(driver, "m1b", generation, "i1") is ErrorCode.FENCED_INSTANCE_ID
    assert beat(driver, "m1", generation, "i1") is ErrorCode.NONE
    reply = joined(driver, driver.ask("join", join(new="m1c", instance_id="i1")))
    assert (reply.error, reply.generation) == (ErrorCode.NONE, generation)


def test_a_static_member_that_waits_under_its_old_id_is_fenced() -> None:
    driver = GroupDriver()
    driver.answer("join", join(new="m1", instance_id="i1"))
    old = driver.ask("join", join(new="m2", instance_id="i2"))  # waits for m1 to rejoin
    new = driver.ask("join", join(new="m2b", instance_id="i2"))
    assert joined(driver, old).error is ErrorCode.FENCED_INSTANCE_ID
    driver.answer("join", join("m1", instance_id="i1"))
    assert joined(driver, new).error is ErrorCode.NONE
    waiting = driver.ask("sync", sync("m2b", 2, "i2"))
    driver.ask("join", join(new="m2c", instance_id="i2"))  # and once more while it waits to sync
    assert synced(driver, waiting).error is ErrorCode.FENCED_INSTANCE_ID


def test_an_old_static_leader_does_not_learn_that_it_leads() -> None:
    driver, generation = stable(1, instance_id="i1", can_skip_assignment=False)
    again = join(new="m1b", instance_id="i1", can_skip_assignment=False)
    reply = joined(driver, driver.ask("join", again))
    assert (reply.leader, reply.members, reply.skip_assignment) == ("m1", (), False)
    assert reply.generation == generation


def test_a_static_member_is_missed_only_after_its_session() -> None:
    driver = GroupDriver()
    driver.answer("join", join(new="m1", instance_id="i1"))
    driver.ask("join", join(new="m2", instance_id="i2"))
    driver.answer("join", join("m1", instance_id="i1"))
    waiting = driver.ask("sync", sync("m2", 2, "i2"))
    driver.answer("sync", sync("m1", 2, "i1", m1=b"one", m2=b"two"))
    synced(driver, waiting)
    third = driver.ask("join", join(new="m3", instance_id="i3"))
    driver.ask("join", join("m1", instance_id="i1"))
    driver.advance(9.0)  # m2 restarts without leaving; nobody notices
    reply_ticket = driver.ask("join", join(new="m2b", instance_id="i2"))
    assert joined(driver, reply_ticket).error is ErrorCode.NONE
    assert joined(driver, third).generation == 3


@pytest.mark.parametrize(("delay_s", "generations"), [(3.0, [1, 1]), (0.0, [1, 2])])
def test_static_members_that_begin_together(delay_s: float, generations: list[int]) -> None:
    """With Kafka's default delay neither has to rejoin; without any, as `kraft up` has it, the first one
    has begun when the second one comes. (librdkafka's 0102 rests on the delay.)"""
    driver = GroupDriver(GroupLimits(rules=ClassicGroupConfig(initial_rebalance_delay=delay_s)))
    first = driver.ask("join", join(new="m1", instance_id="i1"))
    driver.advance(0.1)
    second = driver.ask("join", join(new="m2", instance_id="i2"))
    driver.advance(2 * delay_s)  # who comes in that time prolongs it
    if delay_s == 0:
        assert beat(driver, "m1", 1, "i1") is ErrorCode.REBALANCE_IN_PROGRESS
        driver.ask("join", join("m1", instance_id="i1"))
    assert [joined(driver, each).generation for each in (first, second)] == generations
    waiting = driver.ask("sync", sync("m2", generations[1], "i2"))
    driver.answer("sync", sync("m1", generations[1], "i1", m1=b"one", m2=b"two"))
    synced(driver, waiting)
    for member_id, instance_id in (("m1", "i1"), ("m2", "i2")):
        assert beat(driver, member_id, generations[1], instance_id) is ErrorCode.NONE


def test_an_operator_removes_a_static_member_by_its_instance() -> None:
    driver, generation = stable(1, instance_id="i1")
    stranger, known = MemberIdentity("", "i9"), MemberIdentity("", "i1")
    left = driver.answer("leave", LeaveGroup("g", (stranger, known)))
    assert left == LeaveReply(
        ErrorCode.NONE, ((stranger, ErrorCode.UNKNOWN_MEMBER_ID), (known, ErrorCode.NONE))
    )
    assert state(driver) == "Empty"
    assert beat(driver, "m1", generation, "i1") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_refused_store_is_reported_to_the_static_member_that_came_back() -> None:
    driver, _ = stable(1, instance_id="i1")
    driver.refusal = ErrorCode.NOT_COORDINATOR
    reply = joined(driver, driver.ask("join", join(new="m1b", instance_id="i1")))
    assert reply.error is ErrorCode.NOT_COORDINATOR


def test_dead_is_the_end_of_every_state_and_has_no_way_out() -> None:
    assert set(TRANSITIONS) == set(ClassicGroupState)
    assert all(
        ClassicGroupState.DEAD in after
        for state_, after in TRANSITIONS.items()
        if state_ is not ClassicGroupState.DEAD
    )
    assert not TRANSITIONS[ClassicGroupState.DEAD]
