"""Which topics the patterns of subscriptions match (SubscribedTopicRegex).

Kafka resolves them in the background. Here a heartbeat that needs a pattern has it resolved first, a few
topics at a time, with the loop free in between; so the decision itself, which must not wait, only looks it
up. The outcome is kept: when topics come and go, only those are looked at, or where they come all the time no
pattern would ever be resolved.

    GroupCoordinator -> `steps`, a few topics at a time
    rebalance.py -> `matching`
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from metadata_quorum.foundation.client_pattern import ClientPattern
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

PATTERNS_KEPT: Final = 64
NAMES_PER_STEP: Final = 8
"""Some milliseconds each, for the worst of expressions."""
FOUND_KEPT: Final = 1_000_000
"""Names remembered for all patterns together; a pattern counts too."""
BARE: Final = 20
"""A pattern without matches takes as much as so many names, and another one for each of its characters."""
CHANGES_KEPT: Final = 20_000
"""Names that came or went. A pattern that has missed more is resolved anew."""


@lru_cache(PATTERNS_KEPT)
def compiled(regex: str) -> ClientPattern:
    """Raises BrokerError INVALID_REGULAR_EXPRESSION."""
    try:
        return ClientPattern(regex)
    except ValueError as e:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {e}."
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from e


class _Change(NamedTuple):
    deleted: frozenset[str]
    created: tuple[str, ...]


@dataclass(slots=True, eq=False)
class _Looked:
    """What is known of one pattern."""

    moment: int
    """Of the topics that are in `found` or `left`, or do not match."""
    left: list[str]
    """To be looked at, the last one first."""
    found: set[str] = field(default_factory=set)
    matching: tuple[str, ...] = ()
    """Those found, in order, once nothing is left."""
    weight: int = 0


class TopicMatches:
    """The matches of patterns among the topics that there are."""

    def __init__(self, names: Callable[[], Collection[str]]) -> None:
        self._names = names
        self._moment = 0
        """How often topics have changed."""
        self._changes: deque[_Change] = deque()
        """The newest of them."""
        self._changed = 0
        """How many names they have."""
        self._looked: dict[str, _Looked] = {}
        self._kept = 0

    def changed(self, created: Iterable[str], deleted: Iterable[str]) -> None:
        """Topics were deleted, and then created."""
        change = _Change(frozenset(deleted), tuple(created))
        self._moment += 1
        self._changes.append(change)
        self._changed += _size(change)
        while self._changed > CHANGES_KEPT:
            self._changed -= _size(self._changes.popleft())

    def is_known(self, regex: str) -> bool:
        """Whether `matching` need not look."""
        looked = self._looked.get(regex)
        return looked is not None and self._is_current(looked)

    def matching(self, regex: str) -> tuple[str, ...]:
        """The topics that the whole expression matches, sorted. Raises BrokerError."""
        for _ in self.steps(regex):
            pass
        return self._looked[regex].matching

    def steps(self, regex: str) -> Iterator[None]:
        """See that `matching` need not look. Raises BrokerError."""
        looked = self._looked.get(regex)
        if looked is not None and self._is_current(looked):
            return
        pattern = compiled(regex)
        if looked is None:
            looked = _Looked(self._moment, list(self._names()))
            self._keep(regex, looked)
        while not self._is_current(looked):
            self._catch_up(looked)
            there = self._names()
            for name in [looked.left.pop() for _ in range(min(NAMES_PER_STEP, len(looked.left)))]:
                if name in there and pattern.matches(name):
                    looked.found.add(name)
            if not looked.left:
                looked.matching = tuple(sorted(looked.found))
                self._keep(regex, looked)
            yield

    def _is_current(self, looked: _Looked) -> bool:
        return looked.moment == self._moment and not looked.left

    def _catch_up(self, looked: _Looked) -> None:
        missed = self._moment - looked.moment
        if missed > len(self._changes):
            looked.left = list(self._names())
            looked.found.clear()
        elif missed:
            for deleted, created in islice(self._changes, len(self._changes) - missed, None):
                looked.found -= deleted
                looked.left += created
        looked.moment = self._moment

    def _keep(self, regex: str, looked: _Looked) -> None:
        """As the newest. The oldest make room."""
        self._forget(regex)
        while self._kept > FOUND_KEPT:
            self._forget(next(iter(self._looked)))
        looked.weight = BARE + len(regex) + len(looked.left) + len(looked.found)
        self._kept += looked.weight
        self._looked[regex] = looked

    def _forget(self, regex: str) -> None:
        known = self._looked.pop(regex, None)
        if known is not None:
            self._kept -= known.weight


def _size(change: _Change) -> int:
    return 1 + len(change.deleted) + len(change.created)
