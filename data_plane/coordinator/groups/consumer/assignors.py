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
    readers = _readers(members)
    shares = _Shares(members)
    _fill_by_topic(shares, readers, _keep(shares, readers, members, sizes))
    _level(shares, readers)
    return shares.targets()


_Owned = dict[str, list[TopicIdPartition]]

_TO_LEVEL: Final = 2
"""A difference that one move makes smaller."""


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


class _Readers:
    """Of some topics, all of them the same members."""

    __slots__ = ("even_after", "member_ids")

    def __init__(self, member_ids: list[str]) -> None:
        self.member_ids = member_ids
        self.even_after = -1
        """After so many moves their loads were even."""


_ReadersOf = Mapping[UUID, _Readers]
"""By topic, in the order of their ids."""


def _readers(members: Sequence[AssignedMember]) -> _ReadersOf:
    subscriptions = list(dict.fromkeys(member.topic_ids for member in members))
    alike: dict[tuple[int, ...], _Readers] = {}
    found: dict[UUID, _Readers] = {}
    for topic_id in _topic_ids(members):
        by = tuple(place for place, topic_ids in enumerate(subscriptions) if topic_id in topic_ids)
        readers = alike.get(by)
        if readers is None:
            readers = _Readers([member.member_id for member in members if topic_id in member.topic_ids])
            alike[by] = readers
        found[topic_id] = readers
    return found


class _Shares:
    """What each member is to own, while it is being worked out."""

    def __init__(self, members: Sequence[AssignedMember]) -> None:
        self.loads = {member.member_id: 0 for member in members}
        """How many partitions each one has."""
        self.moves = 0
        self._numbers: dict[str, dict[UUID, list[int]]] = {member.member_id: {} for member in members}

    def give(self, member_id: str, topic_id: UUID, numbers: Sequence[int]) -> None:
        self._numbers[member_id].setdefault(topic_id, []).extend(numbers)
        self.loads[member_id] += len(numbers)

    def has_any(self, member_id: str, topic_id: UUID) -> bool:
        return topic_id in self._numbers[member_id]

    def move(self, topic_id: UUID, giver: str, taker: str) -> None:
        """The partition of that topic that the giver got last."""
        numbers = self._numbers[giver][topic_id]
        self.give(taker, topic_id, [numbers.pop()])
        self.loads[giver] -= 1
        if not numbers:
            del self._numbers[giver][topic_id]
        self.moves += 1

    def targets(self) -> dict[str, Assignment]:
        return {
            member_id: {topic_id: frozenset(numbers) for topic_id, numbers in topics.items()}
            for member_id, topics in self._numbers.items()
        }


def _keep(
    shares: _Shares, readers: _ReadersOf, members: Sequence[AssignedMember], sizes: Mapping[UUID, int]
) -> dict[UUID, list[int]]:
    """Leave with members what they owned and may keep; what has no owner, by topic."""
    taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in readers}
    for member in members:
        for topic_id, numbers in member.target.items():
            if topic_id in member.topic_ids:
                own = [n for n in sorted(numbers - taken[topic_id]) if n < sizes[topic_id]]
                taken[topic_id].update(own)
                if own:
                    shares.give(member.member_id, topic_id, own)
    return {
        topic_id: [number for number in range(sizes[topic_id]) if number not in numbers]
        for topic_id, numbers in taken.items()
        if len(numbers) < sizes[topic_id]
    }


def _fill_by_topic(shares: _Shares, readers: _ReadersOf, free: Mapping[UUID, Sequence[int]]) -> None:
    """Each partition to the least loaded member that reads its topic; topics with few readers first."""
    heap: list[tuple[int, int, str]] = []
    last: _Readers | None = None
    for topic_id in sorted(free, key=lambda topic_id: len(readers[topic_id].member_ids)):
        if readers[topic_id] is not last:  # else their loads are still what the heap says
            last = readers[topic_id]
            heap = [(shares.loads[each], place, each) for place, each in enumerate(last.member_ids)]
            heapq.heapify(heap)
        for number in free[topic_id]:
            load, place, member_id = heap[0]
            shares.give(member_id, topic_id, (number,))
            heapq.heapreplace(heap, (load + 1, place, member_id))


def _level(shares: _Shares, readers: _ReadersOf) -> None:
    """Move partitions of one topic after the other from the member with most to the one with least, until no
    two readers of it differ by more than one; and again, as long as anything moves. Each move makes the sum
    of squared loads smaller, so that this ends. Readers whose loads are even are passed over: after a change
    of one subscription that is nearly all of thousands of topics."""
    before = -1
    while before != shares.moves:
        before = shares.moves
        for topic_id, those in readers.items():
            while those.even_after != shares.moves and _move_one(shares, topic_id, those):
                pass


def _move_one(shares: _Shares, topic_id: UUID, readers: _Readers) -> bool:
    """Whether there was one to move."""
    load_of = shares.loads.__getitem__
    loads = [load_of(member_id) for member_id in readers.member_ids]
    least = min(loads)
    if max(loads) - least < _TO_LEVEL:
        readers.even_after = shares.moves
        return False
    givers = [each for each in readers.member_ids if shares.has_any(each, topic_id)]
    giver = max(givers, key=load_of, default=None)
    if giver is None or load_of(giver) - least < _TO_LEVEL:
        return False
    shares.move(topic_id, giver, readers.member_ids[loads.index(least)])
    return True


def _topic_ids(members: Sequence[AssignedMember]) -> list[UUID]:
    return sorted(frozenset().union(*{member.topic_ids for member in members}))


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""By the name that a member may ask for."""
