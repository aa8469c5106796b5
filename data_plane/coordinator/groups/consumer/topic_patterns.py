"""Which topics the patterns of subscriptions match (SubscribedTopicRegex).

Kafka resolves them in the background. Here a heartbeat that needs a pattern has it resolved first, a few
topics at a time, with the loop free in between; the outcome is cached until topics are created or deleted. So
the decision itself, which must not wait, only looks it up.

    GroupCoordinator -> `steps`, a few topics per turn of the loop
    rebalance.py -> `matching`
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from itertools import islice
from typing import Final

from metadata_quorum.foundation.client_pattern import ClientPattern
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

PATTERNS_KEPT: Final = 64
NAMES_PER_STEP: Final = 8
"""Some milliseconds each, for the worst of expressions."""
FOUND_KEPT: Final = 1_000_000
"""Names remembered for all patterns together."""


@lru_cache(PATTERNS_KEPT)
def compiled(regex: str) -> ClientPattern:
    """Raises BrokerError INVALID_REGULAR_EXPRESSION."""
    try:
        return ClientPattern(regex)
    except ValueError as e:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {e}."
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from e


class TopicMatches:
    """The matches of patterns among the topics of one metadata version."""

    def __init__(self, names: Callable[[], Collection[str]]) -> None:
        self._names = names
        self._moment = 0
        self._found: dict[str, tuple[str, ...]] = {}
        self._kept = 0

    def forget(self) -> None:
        """Topics were created or deleted."""
        self._moment += 1
        self._found.clear()
        self._kept = 0

    def matching(self, regex: str) -> tuple[str, ...]:
        """The topics that the whole expression matches, sorted. Raises BrokerError."""
        for _ in self.steps(regex):
            pass
        return self._found[regex]

    def steps(self, regex: str) -> Iterator[None]:
        """See that `matching` need not look. Raises BrokerError."""
        while regex not in self._found:
            yield from self._look(regex)

    def _look(self, regex: str) -> Iterator[None]:
        moment, pattern, found = self._moment, compiled(regex), []
        left = iter(tuple(self._names()))
        while names := tuple(islice(left, NAMES_PER_STEP)):
            found += [name for name in names if pattern.matches(name)]
            yield
            if moment != self._moment:
                return  # other topics now
        if self._kept > FOUND_KEPT:
            self._found.clear()
            self._kept = 0
        self._found[regex] = tuple(sorted(found))
        self._kept += len(found)
