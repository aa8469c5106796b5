"""Server-side assignors: which member is to own which partitions, by the whole group's subscriptions.

`uniform` spreads all partitions evenly over the members that may have them, and leaves with a member
as much of its last target as balance allows. `range` gives every member of a topic one run of
neighbours, extra ones to the first members, so that the same numbers of topics with equally many
partitions meet at one member (joins); it does not look at the last target.

Pure; the same input gives the same answer on every broker.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.coordinator.groups.assignment import (
    Assignment,
    TopicIdPartition,
    assignment_of,
)


class AssignedMember(NamedTuple):
    """A member as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[UUID]
    """What it is subscribed to, as far as it exists."""
    target: Assignment
    """What it was to own so far."""


Assignor = Callable[[Sequence[AssignedMember], Mapping[UUID, int]], dict[str, Assignment]]
"""Members, and how many partitions each topic has -> the target of every member."""


# ---- range -------------------------------------------------------------------------------------------


def assign_ranges(members: Sequence[AssignedMember], sizes: Mapping[UUID, int]) -> dict[str, Assignment]:
    in_order = sorted(members, key=_static_first)
    targets: dict[str, dict[UUID, frozenset[int]]] = {member.member_id: {} for member in in_order}
    for topic_id in _topic_ids(in_order):
        readers = [member.member_id for member in in_order if topic_id in member.topic_ids]
        share, extra = divmod(sizes[topic_id], len(readers))
        start = 0
        for place, member_id in enumerate(readers):
            end = start + share + (place < extra)
            if end > start:
                targets[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(targets)


def _static_first(member: AssignedMember) -> tuple[bool, str]:
    return member.instance_id is None, member.instance_id or member.member_id


# ---- uniform -----------------------------------------------------------------------------------------


def assign_uniformly(members: Sequence[AssignedMember], sizes: Mapping[UUID, int]) -> dict[str, Assignment]:
    if len({member.topic_ids for member in members}) == 1:
        return _assign_alike(members, sizes)
    kept, free = _keep(members, sizes)
    _fill_by_topic(members, kept, free)
    while _level(members, kept):
        pass
    return {member_id: assignment_of(owned) for member_id, owned in kept.items()}


_Owned = dict[str, list[TopicIdPartition]]


def _assign_alike(members: Sequence[AssignedMember], sizes: Mapping[UUID, int]) -> dict[str, Assignment]:
    """All read the same topics: every member gets its share, some one more, first those that had more. The
    partitions of members that keep what they have are not looked at one by one: a member that joins takes few
    of thousands."""
    taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in _topic_ids(members)}
    targets = {member.member_id: _kept_target(member, taken, sizes) for member in members}
    loads = {member_id: sum(map(len, target.values())) for member_id, target in targets.items()}
    free = [
        (topic_id, number)
        for topic_id, numbers in taken.items()
        if len(numbers) < sizes[topic_id]
        for number in range(sizes[topic_id])
        if number not in numbers
    ]
    share, extra = divmod(sum(sizes[topic_id] for topic_id in taken), len(members))
    moved: _Owned = {}
    for member_id, load in loads.items():
        more = load > share and extra > 0
        extra -= more
        if load > share + more:
            owned = _in_order(targets[member_id])
            free += owned[share + more :]
            moved[member_id] = owned[: share + more]
            loads[member_id] = share + more
    free.reverse()
    for member_id, load in loads.items():
        if load < share:
            owned = moved.setdefault(member_id, _in_order(targets[member_id]))
            owned += (free.pop() for _ in range(share - load))
    for member_id, load in loads.items():
        if free and load <= share:
            moved.setdefault(member_id, _in_order(targets[member_id])).append(free.pop())
    return targets | {member_id: assignment_of(owned) for member_id, owned in moved.items()}


def _kept_target(
    member: AssignedMember, taken: dict[UUID, set[int]], sizes: Mapping[UUID, int]
) -> Assignment:
    """What is left of a member's last target: topics that are still there and read, partitions that no member
    before it has. It is added to `taken`."""
    target = member.target
    if not all(
        topic_id in taken
        and taken[topic_id].isdisjoint(numbers)
        and max(numbers, default=-1) < sizes[topic_id]
        for topic_id, numbers in target.items()
    ):
        target = assignment_of(
            (topic_id, number)
            for topic_id, numbers in target.items()
            if topic_id in taken
            for number in numbers - taken[topic_id]
            if number < sizes[topic_id]
        )
    for topic_id, numbers in target.items():
        taken[topic_id] |= numbers
    return target


def _in_order(assignment: Assignment) -> list[TopicIdPartition]:
    return [(topic_id, number) for topic_id, numbers in assignment.items() for number in sorted(numbers)]


def _keep(
    members: Sequence[AssignedMember], sizes: Mapping[UUID, int]
) -> tuple[_Owned, list[TopicIdPartition]]:
    """What each member owned and may keep, and what has no owner."""
    taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in _topic_ids(members)}
    kept: _Owned = {}
    for member in members:
        owned = kept[member.member_id] = []
        for topic_id, numbers in member.target.items():
            if topic_id in member.topic_ids:
                own = [n for n in sorted(numbers - taken[topic_id]) if n < sizes[topic_id]]
                taken[topic_id].update(own)
                owned += [(topic_id, number) for number in own]
    free = [
        (topic_id, number)
        for topic_id, numbers in taken.items()
        for number in range(sizes[topic_id])
        if number not in numbers
    ]
    return kept, free


def _fill_by_topic(members: Sequence[AssignedMember], kept: _Owned, free: Sequence[TopicIdPartition]) -> None:
    """Each partition to the least loaded member that reads its topic; topics with few readers first."""
    of_topic: dict[UUID, list[TopicIdPartition]] = {}
    for partition in free:
        of_topic.setdefault(partition[0], []).append(partition)
    readers = {t: [m.member_id for m in members if t in m.topic_ids] for t in of_topic}
    for topic_id in sorted(of_topic, key=lambda t: len(readers[t])):
        heap = [(len(kept[member_id]), place, member_id) for place, member_id in enumerate(readers[topic_id])]
        heapq.heapify(heap)
        for partition in of_topic[topic_id]:
            load, place, member_id = heap[0]
            kept[member_id].append(partition)
            heapq.heapreplace(heap, (load + 1, place, member_id))


def _level(members: Sequence[AssignedMember], kept: _Owned) -> bool:
    """Move partitions of one topic after the other from the member with most to the one with least, until no
    two readers of it differ by more than one; whether anything moved. Each move makes the sum of squared
    loads smaller, so that repeating it ends."""
    moved = False
    for topic_id in _topic_ids(members):
        readers = [m.member_id for m in members if topic_id in m.topic_ids]
        while True:
            givers = [m for m in readers if any(p[0] == topic_id for p in kept[m])]
            giver = max(givers, key=lambda m: len(kept[m]), default=None)
            taker = min(readers, key=lambda m: len(kept[m]))
            if giver is None or len(kept[giver]) - len(kept[taker]) < 2:
                break
            at = max(i for i, p in enumerate(kept[giver]) if p[0] == topic_id)
            kept[taker].append(kept[giver].pop(at))
            moved = True
    return moved


def _topic_ids(members: Sequence[AssignedMember]) -> list[UUID]:
    return sorted(frozenset().union(*{member.topic_ids for member in members}))


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""By the name that a member may ask for."""
