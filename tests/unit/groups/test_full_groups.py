"""group.max.size: who has room in a classic group, and who is turned away."""

from __future__ import annotations

import pytest

from data_plane.coordinator.groups.classic.group import ClassicGroup
from data_plane.coordinator.groups.classic.states import ClassicGroupConfig, ClassicGroupState
from data_plane.coordinator.groups.group_metadata_manager import GroupLimits
from data_plane.coordinator.groups.messages import JoinReply, MemberProtocol
from data_plane.coordinator.groups.records import StoredGroup, StoredMember
from data_plane.coordinator.state_machine import Instant
from metadata_quorum.foundation.errors import ErrorCode
from tests.unit.groups.classic_steps import beat, joined, stable
from tests.unit.groups.group_driver import GroupDriver, join


def test_a_full_group_takes_nobody_more() -> None:
    driver, _ = stable(2, GroupLimits(rules=ClassicGroupConfig(0.0, max_size=2)))
    reply = driver.answer("join", join(new="m3"))
    assert isinstance(reply, JoinReply)
    assert reply.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_ids_whose_clients_have_gone_take_nobodys_place() -> None:
    driver = GroupDriver(GroupLimits(rules=ClassicGroupConfig(0.0, max_size=1)))
    for new in ("lost", "m1"):  # the answer to the first one was lost, and the client asks again
        refusal = driver.answer("join", join(new=new, requires_known_id=True))
        assert refusal == JoinReply(ErrorCode.MEMBER_ID_REQUIRED, new)
    first = driver.ask("join", join("m1"))
    late = driver.answer("join", join("lost"))
    assert late == JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED, "lost")
    assert joined(driver, first).generation == 1  # nobody waits for the other one any longer


def test_where_the_limit_has_been_lowered_those_stay_that_join_again_first() -> None:
    driver, generation = stable(3)
    driver.limits = GroupLimits(rules=ClassicGroupConfig(0.0, max_size=2))
    driver = driver.reloaded()
    assert beat(driver, "m3", generation) is ErrorCode.REBALANCE_IN_PROGRESS
    waiting = [driver.ask("join", join(member)) for member in ("m3", "m1")]
    assert driver.answer("join", join("m2")) == JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED, "m2")
    replies = [joined(driver, ticket) for ticket in waiting]
    assert [reply.generation for reply in replies] == [generation + 1] * 2
    assert {m.member_id for reply in replies for m in reply.members} == {"m1", "m3"}


def test_a_member_that_is_turned_away_leaves_its_partitions_to_the_others() -> None:
    """It says more than there is room for."""
    driver, generation = stable(2)
    larger = (MemberProtocol("range", bytes(4001)),)
    refusal = driver.answer("join", join("m2", protocols=larger, max_record_bytes=1000))
    assert refusal == JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED, "m2")
    assert beat(driver, "m1", generation) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.row("G1")
def test_a_group_that_rebalances_when_it_is_loaded_may_be_larger_too() -> None:
    """It has just come back from the consumer protocol, whose groups have a limit of their own. Whoever
    loaded it ended with a broken invariant."""
    start = Instant(0.0, 0)
    group = ClassicGroup("g", ClassicGroupConfig(0.0, max_size=2), start)
    members = tuple(StoredMember(f"m{n}", None, "", "", 60_000, 10_000, b"", b"") for n in range(3))
    group.replay(StoredGroup("consumer", 1, "range", None, 0, members), start)
    group.loaded(start)
    assert group.metadata.state is ClassicGroupState.PREPARING_REBALANCE
    assert group.size == 3
