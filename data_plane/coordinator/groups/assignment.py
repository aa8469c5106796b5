"""Sets of partitions, topic by topic: what a member owns, is to own, is to give up.

An assignment is never changed in place; the functions here yield new ones, without empty topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final
from uuid import UUID

Assignment = Mapping[UUID, frozenset[int]]
"""Topic id -> partitions."""

TopicIdPartition = tuple[UUID, int]

NOTHING: Final[Assignment] = MappingProxyType({})
_EMPTY: Final[frozenset[int]] = frozenset()


def in_order(topic_ids: Iterable[UUID]) -> list[UUID]:
    """As they compare; of thousands in a fraction of the time."""
    return sorted(topic_ids, key=lambda topic_id: topic_id.int)


def as_stored(assignment: Assignment) -> Assignment:
    """The same, without empty topics and in the order of ids: as it is read, whatever order it was
    made in."""
    topic_ids = in_order(topic_id for topic_id, numbers in assignment.items() if numbers)
    if topic_ids == [*assignment]:
        return assignment
    return {topic_id: assignment[topic_id] for topic_id in topic_ids} or NOTHING


def partitions_of(assignment: Assignment) -> Iterator[TopicIdPartition]:
    """One after another."""
    for topic_id, numbers in assignment.items():
        for number in numbers:
            yield topic_id, number


def assignment_of(partitions: Iterable[TopicIdPartition]) -> Assignment:
    gathered: dict[UUID, set[int]] = {}
    for topic_id, number in partitions:
        gathered.setdefault(topic_id, set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in gathered.items()}


def both(one: Assignment, other: Assignment) -> Assignment:
    """What is in both."""
    return _filled(
        {topic_id: numbers & other.get(topic_id, frozenset()) for topic_id, numbers in one.items()}
    )


def without(one: Assignment, other: Assignment) -> Assignment:
    """What is in the first only."""
    return _filled(
        {topic_id: numbers - other.get(topic_id, frozenset()) for topic_id, numbers in one.items()}
    )


def joined(one: Assignment, other: Assignment) -> Assignment:
    """What is in either."""
    topic_ids = dict.fromkeys([*one, *other])
    return {topic_id: one.get(topic_id, _EMPTY) | other.get(topic_id, _EMPTY) for topic_id in topic_ids}


def is_within(one: Assignment, other: Assignment) -> bool:
    return all(numbers <= other.get(topic_id, _EMPTY) for topic_id, numbers in one.items())


def _filled(assignment: Mapping[UUID, frozenset[int]]) -> Assignment:
    return {topic_id: numbers for topic_id, numbers in assignment.items() if numbers}
