"""A schedule: which faults to inject, and when; its steps and their text form.

    at 3 for 6: cut follower(all-0)>leader(all-0)
    at 12.5: restart controller

Seconds since the workload runs. A step with `for` is lifted after that time, the others
when the schedule is over. Roles such as `leader(all-0)` are looked up when their step is due (roles.py); the
record of the run has the ids. A written schedule can be shortened by hand and played again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_STEP: Final = re.compile(r"at (\d+(?:\.\d+)?)(?: for (\d+(?:\.\d+)?))?: (\S.*)")


class BadSchedule(ValueError):
    """A line that is no step."""


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    at_s: float
    fault: str
    """As `faults.parse` reads it once the roles are filled in."""
    for_s: float | None = None
    """None: until everything is lifted, where it can be lifted at all."""

    def __str__(self) -> str:
        lasts = "" if self.for_s is None else f" for {self.for_s:g}"
        return f"at {self.at_s:g}{lasts}: {self.fault}"

    @property
    def end_s(self) -> float:
        return self.at_s + (self.for_s or 0.0)


Schedule = tuple[ScheduledFault, ...]


def parse(text: str) -> Schedule:
    """One step per line; empty lines and those that begin with # are ignored. Raises BadSchedule."""
    steps = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _STEP.fullmatch(line)
        if match is None:
            raise BadSchedule(f"line {number}: {line!r} is no step; a step is `at 3 for 6: cut 2>1`")
        steps.append(ScheduledFault(float(match[1]), match[3], None if match[2] is None else float(match[2])))
    return tuple(sorted(steps, key=lambda step: step.at_s))


def text_of(steps: Iterable[ScheduledFault]) -> str:
    return "".join(f"{step}\n" for step in steps)


def duration_s(steps: Iterable[ScheduledFault]) -> float:
    """When the last step has started and every one that has an end has ended."""
    return max((step.end_s for step in steps), default=0.0)


@dataclass(frozen=True, slots=True)
class StepBoundary:
    """A beginning or an end of a step."""

    at_s: float
    step: ScheduledFault
    begins: bool


def step_boundaries(steps: Iterable[ScheduledFault]) -> Iterator[StepBoundary]:
    """Beginnings and ends in the order of time; at the same time ends come first."""
    boundaries = [StepBoundary(step.at_s, step, begins=True) for step in steps]
    boundaries += [StepBoundary(step.end_s, step, begins=False) for step in steps if step.for_s is not None]
    yield from sorted(boundaries, key=lambda mark: (mark.at_s, mark.begins))
