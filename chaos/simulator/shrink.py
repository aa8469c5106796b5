"""A seed that fails, cut down: the fewest faults and topics under which it fails in the same way.

    whole run -> delta debugging of its list of faults -> topics taken away one by one -> shorter -> Shrunk

What is taken away changes no draw of what stays (draws.py), so most of a run is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from chaos.simulator.faults import SimFault
from chaos.simulator.profile import INPUT, Profile
from chaos.simulator.run import BrokenRule, Simulation

T = TypeVar("T")

SETTLE_S: Final = 3.0
"""Left after the last fault has ended."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What is left of it."""

    profile: Profile
    faults: Sequence[SimFault]
    seconds: float
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

    def shrink(self) -> Shrunk | None:
        """None where the seed does not fail."""
        whole = Simulation(self._seed, self._profile, self._seconds)
        faults: list[SimFault] = list(whole.player.faults)
        outcome = whole.run()
        if outcome.ok:
            return None
        self._broken = outcome.violations[0]
        self._say(f"{len(faults)} faults: {self._broken}")
        faults = minimal(faults, lambda some: self._fails(some, self._profile, self._seconds))
        profile = self._without_topics(faults)
        seconds = self._seconds
        shorter = max((fault.at_s + fault.for_s for fault in faults), default=0.0) + SETTLE_S
        if shorter < seconds and self._fails(faults, profile, shorter):
            seconds = shorter
        return Shrunk(profile, faults, seconds, self._broken, self._runs)

    def _without_topics(self, faults: Sequence[SimFault]) -> Profile:
        profile = self._profile
        for topic in list(profile.topics):
            left = {name: mode for name, mode in profile.topics.items() if name != topic}
            if not left or (topic == INPUT and any(mode.transactional for mode in left.values())):
                continue
            fewer = replace(profile, topics=left)
            if self._fails(faults, fewer, self._seconds):
                profile = fewer
        return profile

    def _fails(self, faults: Sequence[SimFault], profile: Profile, seconds: float) -> bool:
        """In the same way."""
        assert self._broken is not None
        self._runs += 1
        outcome = Simulation(self._seed, profile, seconds, faults=faults).run()
        for broken in outcome.violations:
            if broken.rule == self._broken.rule:
                self._broken = broken
                self._say(f"{len(faults)} faults, {len(profile.topics)} topics, {seconds:g} s: {broken}")
                return True
        return False


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
