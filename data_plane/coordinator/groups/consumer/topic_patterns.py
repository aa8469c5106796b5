"""Regular expressions by which members subscribe to topics (SubscribedTopicRegex), matched in linear time.

Kafka's coordinator uses RE2/J, because an expression comes from a client and must not be able to keep a
broker busy; Python's `re` tries one way after the other, which some expressions make endless. Here the
expression's states are followed all at once, and where a set of states leads is remembered.

    pattern_syntax.parse -> Pattern (states) -> rebalance.py
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from data_plane.coordinator.groups.consumer.pattern_syntax import (
    ALPHABET,
    Chars,
    Choice,
    Edge,
    Node,
    Repeat,
    Sequence,
    parse,
)
from metadata_quorum.errors import BrokerError, ErrorCode

PATTERNS_KEPT: Final = 256
MOST_STATES: Final = 4_096
"""Of one expression; counted repetitions multiply them."""
MOST_MOVES_KEPT: Final = 16_384

_MATCH: Final = 0
"""The state at the end of the expression."""
_WORD_CHARS: Final = ALPHABET - frozenset(".-")


class _Step(NamedTuple):
    """Goes on where the next character is one of these."""

    chars: frozenset[str]
    to: int


class _Gate(NamedTuple):
    """Goes on without a character, where the place is such a one."""

    edge: Edge
    to: int


class _Fork(NamedTuple):
    """Goes on in several ways, without a character."""

    to: tuple[int, ...]


class Pattern:
    """One expression. Raises ValueError where it is none."""

    def __init__(self, regex: str) -> None:
        self._states: list[_Step | _Gate | _Fork] = [_Fork(())]
        self._start = frozenset({self._add_node(parse(regex), _MATCH)})
        self._moves: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """The whole of it."""
        states, before = self._start, ""
        for char in name:
            key = states, before, char
            after = self._moves.get(key)
            if after is None:
                if len(self._moves) >= MOST_MOVES_KEPT:
                    self._moves.clear()
                after = self._moves[key] = self._move(*key)
            if not after:
                return False
            states, before = after, char
        return _MATCH in self._reached(states, before, "")

    # --- following -----------------------------------------------------------------------------

    def _move(self, states: frozenset[int], before: str, char: str) -> frozenset[int]:
        reached = (self._states[at] for at in self._reached(states, before, char))
        return frozenset(each.to for each in reached if isinstance(each, _Step) and char in each.chars)

    def _reached(self, states: frozenset[int], before: str, after: str) -> set[int]:
        """All states that need no character more."""
        reached, waiting = set(states), list(states)
        while waiting:
            state = self._states[waiting.pop()]
            if isinstance(state, _Fork):
                more = state.to
            elif isinstance(state, _Gate) and _is_at(state.edge, before, after):
                more = (state.to,)
            else:
                continue
            waiting += [at for at in more if at not in reached]
            reached.update(more)
        return reached

    # --- building, from the end to the start ---------------------------------------------------

    def _add_node(self, node: Node, to: int) -> int:
        """States for a node that is followed by `to`; the first of them."""
        match node:
            case Chars(chars):
                return self._add(_Step(chars, to))
            case Edge():
                return self._add(_Gate(node, to))
            case Sequence(parts):
                for part in reversed(parts):
                    to = self._add_node(part, to)
                return to
            case Choice(options):
                return self._add(_Fork(tuple(self._add_node(option, to) for option in options)))
            case Repeat(part, least, most):
                return self._add_repeat(part, least, most, to)

    def _add_repeat(self, part: Node, least: int, most: int | None, to: int) -> int:
        if most is None:
            again = self._add(_Fork(()))
            self._states[again] = _Fork((self._add_node(part, again), to))
            at = again
        else:
            at = to
            for _ in range(most - least):
                at = self._add(_Fork((self._add_node(part, at), to)))
        for _ in range(least):
            at = self._add_node(part, at)
        return at

    def _add(self, state: _Step | _Gate | _Fork) -> int:
        if len(self._states) >= MOST_STATES:
            raise ValueError("expression is too large")
        self._states.append(state)
        return len(self._states) - 1


def _is_at(edge: Edge, before: str, after: str) -> bool:
    match edge:
        case Edge.START:
            return not before
        case Edge.END:
            return not after
    at_word = (before in _WORD_CHARS) != (after in _WORD_CHARS)
    return at_word == (edge is Edge.WORD)


@lru_cache(PATTERNS_KEPT)
def compiled(regex: str) -> Pattern:
    """Raises BrokerError INVALID_REGULAR_EXPRESSION."""
    try:
        return Pattern(regex)
    except ValueError as e:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {e}."
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from e


def matching(regex: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that the whole expression matches, sorted."""
    pattern = compiled(regex)
    return tuple(sorted(name for name in names if pattern.matches(name)))
