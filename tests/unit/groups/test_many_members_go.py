"""Very many members of a group of the consumer protocol go together: it is not gone through for each one."""

from __future__ import annotations

from functools import partial

import pytest

from data_plane.coordinator.groups.consumer import group as consumer_group
from data_plane.coordinator.groups.consumer.cluster_view import ClusterView
from data_plane.coordinator.groups.consumer.draft import Draft
from data_plane.coordinator.groups.consumer.group import ConsumerGroup
from data_plane.coordinator.groups.consumer.rules import ConsumerGroupConfig
from data_plane.coordinator.groups.consumer.state import ConsumerGroupState
from data_plane.coordinator.groups.consumer_records import ClassicMetadata, MemberMetadata
from data_plane.coordinator.groups.messages import LeaveGroup, MemberIdentity
from data_plane.coordinator.state_machine import Instant
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.bytecodes import cost

MEMBERS = 200
START = Instant(0.0, 0)
AFTER_ALL_SESSIONS = Instant(100.0, 100_000)


class CountedName(str):
    """A member id that counts with how many others it is compared."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)


def group_of(modern: list[str], classic: list[str]) -> ConsumerGroup:
    group = ConsumerGroup("g", ConsumerGroupConfig(), ClusterView(), lambda: 1 << 20)
    draft = Draft("g", ConsumerGroupState())
    draft.write_group(1, 0)
    for name in modern:
        draft.write_member(name, MemberMetadata())
    for name in classic:
        draft.write_member(name, MemberMetadata(classic=ClassicMetadata(10_000, ())))
    for record in draft.records:
        group.replay(record, START)
    return group


@pytest.mark.row("G6")
def test_those_who_stay_are_not_compared_with_each_that_leaves() -> None:
    """A thousand that left a group of ten thousand held the loop for a fifth of a second."""
    names: list[str] = [CountedName(f"m{n}") for n in range(MEMBERS)]
    group = group_of(["modern"], names)
    CountedName.compared = 0
    leaving = tuple(MemberIdentity(str(name), None) for name in names[: MEMBERS // 2])
    records, reply = group.leave(LeaveGroup("g", leaving), START)
    assert len(records) == 3 * len(leaving) + 1
    assert {error for _, error in reply.members} == {ErrorCode.NONE}
    assert CountedName.compared < 20 * MEMBERS


@pytest.mark.row("G6")
def test_not_all_that_are_due_are_looked_at_by_each_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tick puts out as many as have room in a batch: sixty milliseconds, for ten thousand."""
    monkeypatch.setattr(consumer_group, "REMOVED_BYTES", 1)
    monkeypatch.setattr(consumer_group, "DUE_AT_ONCE", 5)
    groups = [group_of([f"m{n}" for n in range(members)], []) for members in (MEMBERS // 4, MEMBERS)]
    few, many = (cost(partial(group.tick, AFTER_ALL_SESSIONS)) for group in groups)
    assert many < 3 * few
    group = groups[1]
    ticks = 0
    while group.next_deadline() <= AFTER_ALL_SESSIONS.now + 2.0 and group.size:
        at = Instant(AFTER_ALL_SESSIONS.now + 2.0, 0)
        for record in group.tick(at):
            group.replay(record, at)
        ticks += 1
    assert (group.size, ticks) == (0, MEMBERS)
