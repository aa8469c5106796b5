"""A seed that fails, cut down: the least under which it fails in the same way.

    whole run -> delta debugging of its list of faults -> topics, clients, nodes taken away one by one
    -> shorter -> delta debugging of what overtakes what -> Shrunk

What is taken away changes no draw of what stays (draws.py), so most of a run is as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from chaos.simulator.faults import SimFault
from chaos.simulator.profile import INPUT, Profile
from chaos.simulator.run import BrokenRule, Simulation

T = TypeVar("T")

SETTLE_S: Final = 3.0
"""Left after the last fault has ended."""
CLIENTS: Final[Mapping[str, Callable[[Profile], Profile]]] = {
    "readers": lambda profile: replace(profile, readers=0),
    "members": lambda profile: replace(profile, members=0),
    "admins": lambda profile: replace(profile, admins=0),
}
"""Who is not needed to write anything, and a profile without them."""


@dataclass(frozen=True, slots=True)
class ShrunkRun:
    """What is left of a run."""

    profile: Profile
    faults: Sequence[SimFault]
    seconds: float
    deviating: Collection[str] | None = None
    """The links, disks and threads whose messages and jobs may overtake one another; None: all."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The least that was found."""

    run: ShrunkRun
    broken: BrokenRule
    runs: int


class Shrinker:
    """Of one seed."""

    def __init__(self, seed: int, profile: Profile, seconds: float, say: Callable[[str], None]) -> None:
        self._seed = seed
        self._profile = profile
        self._seconds = seconds
        self._say = say
        self._runs = 0
        self._broken: BrokenRule | None = None
        self._deviating: Sequence[str] = ()
        """Of the last run that failed."""

    def shrink(self) -> Shrunk | None:
        """None where the seed does not fail."""
        whole = Simulation(self._seed, self._profile, self._seconds)
        left = ShrunkRun(self._profile, list(whole.player.faults), self._seconds)
        outcome = whole.run()
        if outcome.ok:
            return None
        self._broken = outcome.violations[0]
        self._say(f"{len(left.faults)} faults: {self._broken}")
        faults = minimal(list(left.faults), lambda some: self._fails(replace(left, faults=some)))
        left = replace(left, faults=faults)
        for fewer in (without_topics, without_clients, without_nodes):
            left = self._one_by_one(left, fewer)
        shorter = max((fault.over_s for fault in faults), default=0.0) + SETTLE_S
        if shorter < self._seconds and self._fails(replace(left, seconds=shorter)):
            left = replace(left, seconds=shorter)
        left = self._in_order(left)
        return Shrunk(left, self._broken, self._runs)

    def _one_by_one(self, left: ShrunkRun, fewer: Callable[[ShrunkRun], Iterator[Profile]]) -> ShrunkRun:
        """Again from what is left, as long as something can be taken away."""
        found = next((each for each in fewer(left) if self._fails(replace(left, profile=each))), None)
        return left if found is None else self._one_by_one(replace(left, profile=found), fewer)

    def _in_order(self, left: ShrunkRun) -> ShrunkRun:
        """As much of it as can be is first in, first out."""
        names = list(self._deviating)
        if self._fails(replace(left, deviating=())):
            return replace(left, deviating=())
        if not self._fails(replace(left, deviating=names)):
            return left
        return replace(
            left, deviating=minimal(names, lambda some: self._fails(replace(left, deviating=some)))
        )

    def _fails(self, left: ShrunkRun) -> bool:
        """In the same way."""
        assert self._broken is not None
        self._runs += 1
        simulation = Simulation(
            self._seed, left.profile, left.seconds, faults=left.faults, deviating=left.deviating
        )
        for broken in simulation.run().violations:
            if broken.rule == self._broken.rule:
                self._broken = broken
                self._deviating = list(simulation.draws.deviating)
                profile, count = left.profile, "" if left.deviating is None else len(left.deviating)
                self._say(
                    f"{len(left.faults)} faults, {len(profile.topics)} topics, {len(profile.shape.nodes)} "
                    f"nodes, {left.seconds:g} s{count and f', {count} overtake'}: {broken}"
                )
                return True
        return False


def without_topics(left: ShrunkRun) -> Iterator[Profile]:
    """One less; not the input of those that are copied."""
    topics = left.profile.topics
    for topic in topics:
        others = {name: mode for name, mode in topics.items() if name != topic}
        if others and not (topic == INPUT and any(mode.transactional for mode in others.values())):
            yield replace(left.profile, topics=others)


def without_clients(left: ShrunkRun) -> Iterator[Profile]:
    """One kind of them less."""
    for fewer in CLIENTS.values():
        if fewer(left.profile) != left.profile:
            yield fewer(left.profile)


def without_nodes(left: ShrunkRun) -> Iterator[Profile]:
    """One less that is a broker only, and that no fault names."""
    shape = left.profile.shape
    named = {end for fault in left.faults for end in re.split(r"[>+]", fault.target)}
    for node in reversed(shape.brokers):
        others = tuple(each for each in shape.brokers if each != node)
        if others and node not in shape.controllers and str(node) not in named:
            yield replace(left.profile, shape=replace(shape, brokers=others))


def minimal(items: list[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """Delta debugging (ddmin): a list of which no part can be taken away without it no longer failing."""
    parts = 2
    while len(items) >= 1:
        size = max(1, len(items) // parts)
        for start in range(0, len(items), size):
            rest = items[:start] + items[start + size :]
            if fails(rest):
                items, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(items))
    return items
