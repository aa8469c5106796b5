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
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.coordinator.groups.assignment import (
    Assignment,
    TopicIdPartition,
    assignment_of,
    in_order,
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
    members = sorted(members, key=_static_first)
    targets: dict[str, dict[UUID, frozenset[int]]] = {member.member_id: {} for member in members}
    subscriptions = list(dict.fromkeys(member.topic_ids for member in members))
    alike: dict[tuple[int, ...], list[str]] = {}
    for topic_id in _topic_ids(members):
        by = tuple(place for place, topic_ids in enumerate(subscriptions) if topic_id in topic_ids)
        readers = alike.get(by)
        if readers is None:
            readers = alike[by] = [each.member_id for each in members if topic_id in each.topic_ids]
        share, extra = divmod(sizes[topic_id], len(readers))
        start = 0
        for place, member_id in enumerate(readers if share else readers[:extra]):
            end = start + share + (place < extra)
            targets[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(targets)


def _static_first(member: AssignedMember) -> tuple[bool, str]:
    return member.instance_id is None, member.instance_id or member.member_id


# ---- uniform -----------------------------------------------------------------------------------------


def assign_uniformly(members: Sequence[AssignedMember], sizes: Mapping[UUID, int]) -> dict[str, Assignment]:
    if len({member.topic_ids for member in members}) == 1:
        return _assign_alike(members, sizes)
    shares = _Shares(members)
    _fill_by_topic(shares, _keep(shares, members, sizes))
    _level(shares)
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


_Load = tuple[int, int, str]
"""How many partitions a member has, its place among all members, and its id."""


class _Kind:
    """The members with one subscription, of whom there may be thousands. Who has least is found without
    looking at all."""

    __slots__ = ("_heap", "_loads", "size")

    def __init__(self, loads: Mapping[str, int]) -> None:
        self.size = 0
        self._loads = loads
        self._heap: list[_Load] = []
        """At least one of each member, which says no more than it has."""

    def add(self, place: int, member_id: str) -> None:
        self.size += 1
        self.enter(place, member_id)

    def enter(self, place: int, member_id: str) -> None:
        """It has less than before."""
        heapq.heappush(self._heap, (self._loads[member_id], place, member_id))

    def least(self) -> _Load:
        """The first of those with least."""
        heap, loads = self._heap, self._loads
        while (now := loads[heap[0][2]]) != heap[0][0]:
            heapq.heapreplace(heap, (now, *heap[0][1:]))
        return heap[0]


class _Takers:
    """The readers of one topic, while its partitions are given to whoever has least."""

    __slots__ = ("_heap", "_kind_of")

    def __init__(self, kinds: Sequence[_Kind], kind_of: Mapping[str, _Kind]) -> None:
        self._kind_of = kind_of
        self._heap = [kind.least() for kind in kinds]
        """At least one of each kind, which says no more than its least has."""
        heapq.heapify(self._heap)

    def least(self) -> _Load:
        """The first of those with least."""
        heap, kind_of = self._heap, self._kind_of
        while (now := kind_of[heap[0][2]].least()) != heap[0]:
            heapq.heapreplace(heap, now)
        return heap[0]


class _Shares:
    """What each member is to own, while it is being worked out."""

    def __init__(self, members: Sequence[AssignedMember]) -> None:
        self.loads = {member.member_id: 0 for member in members}
        """How many partitions each one has."""
        self.places = {member.member_id: place for place, member in enumerate(members)}
        kinds: dict[frozenset[UUID], _Kind] = {}
        self.kind_of: dict[str, _Kind] = {}
        for place, member in enumerate(members):
            kind = self.kind_of[member.member_id] = kinds.setdefault(member.topic_ids, _Kind(self.loads))
            kind.add(place, member.member_id)
        self.readers: dict[UUID, list[_Kind]] = {topic_id: [] for topic_id in _topic_ids(members)}
        """In the order of the topics' ids."""
        for topic_ids, kind in kinds.items():
            for topic_id in topic_ids:
                self.readers[topic_id].append(kind)
        self.owned: dict[UUID, dict[str, list[int]]] = {topic_id: {} for topic_id in self.readers}
        """Of each topic, what its owners have."""

    def give(self, member_id: str, topic_id: UUID, numbers: Sequence[int]) -> None:
        self.owned[topic_id].setdefault(member_id, []).extend(numbers)
        self.loads[member_id] += len(numbers)

    def targets(self) -> dict[str, Assignment]:
        found: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in self.loads}
        for topic_id, owners in self.owned.items():
            for member_id, numbers in owners.items():
                found[member_id][topic_id] = frozenset(numbers)
        return dict(found)


def _keep(
    shares: _Shares, members: Sequence[AssignedMember], sizes: Mapping[UUID, int]
) -> dict[UUID, list[int]]:
    """Leave with members what they owned and may keep; what has no owner, by topic."""
    taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in shares.readers}
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


def _fill_by_topic(shares: _Shares, free: Mapping[UUID, Sequence[int]]) -> None:
    """Each partition to the least loaded member that reads its topic; topics with few readers first. Nobody
    has less than before, so that one topic after the other, with the same readers, shares their takers."""
    readers = {topic_id: sum(kind.size for kind in shares.readers[topic_id]) for topic_id in free}
    for kinds, topic_ids in groupby(sorted(free, key=readers.__getitem__), key=shares.readers.__getitem__):
        takers = _Takers(kinds, shares.kind_of)
        for topic_id in topic_ids:
            for number in free[topic_id]:
                shares.give(takers.least()[2], topic_id, (number,))


def _level(shares: _Shares) -> None:
    """Move partitions of one topic after the other from the owner with most to the reader with least, until
    they differ by no more than one; and again, as long as anything moves. Each move makes the sum of squared
    loads smaller, so that this ends. No move makes the least load of all smaller: readers of a topic whose
    owners have hardly more than that are not looked at."""
    moved = True
    while moved:
        moved = False
        least_of_all = min(shares.loads.values(), default=0)
        for topic_id, owners in shares.owned.items():
            most = max(map(shares.loads.__getitem__, owners), default=0)
            if most - least_of_all < _TO_LEVEL:
                continue
            if most - min(kind.least()[0] for kind in shares.readers[topic_id]) >= _TO_LEVEL:
                _level_topic(shares, topic_id)
                moved = True


def _level_topic(shares: _Shares, topic_id: UUID) -> None:
    """Who takes or gives here is not so far off the others in the end that it would do the opposite."""
    loads, owners = shares.loads, shares.owned[topic_id]
    takers = _Takers(shares.readers[topic_id], shares.kind_of)
    givers = [(-loads[each], shares.places[each], each) for each in owners]
    heapq.heapify(givers)
    gave: dict[str, int] = {}
    while givers:
        load, place, giver = givers[0]
        least, _, taker = takers.least()
        if -load - least < _TO_LEVEL:
            break
        number = owners[giver].pop()
        loads[giver] -= 1
        gave[giver] = place
        owners.setdefault(taker, []).append(number)
        loads[taker] += 1
        if owners[giver]:
            heapq.heapreplace(givers, (load + 1, place, giver))
        else:
            heapq.heappop(givers)
            del owners[giver]
    for giver, place in gave.items():
        shares.kind_of[giver].enter(place, giver)


def _topic_ids(members: Sequence[AssignedMember]) -> list[UUID]:
    return in_order(frozenset().union(*{member.topic_ids for member in members}))


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""By the name that a member may ask for."""
