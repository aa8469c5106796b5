"""What a scenario is: a story, a cluster, a schedule, and what must be true of it afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from chaos import schedule
from chaos.scenarios import expect
from chaos.scenarios.expect import Expectation
from chaos.schedule import Schedule
from chaos.workload import Mix, TopicSpec
from chaos.workload.workload import STOCK_MIX, STOCK_PACE, Pace

DEFAULT_SESSION_S: Final = 9.0
DEFAULT_LAG_S: Final = 30.0
LEAST_ACKS: Final = 50
"""Of every topic."""


Draw = Callable[[random.Random, float], Schedule]
"""A schedule from a source of randomness and the seconds that it shall last."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    name: str
    story: str
    """One sentence."""
    schedule: Draw
    expectations: Sequence[Expectation] = ()
    """Beside those that every scenario has."""
    topics: tuple[TopicSpec, ...] = (TopicSpec("all", partitions=1, idempotent=True),)
    settings: Mapping[str, str] = field(default_factory=dict)
    nodes: int = 3
    clients: int = 4
    seconds: float | None = None
    """Its default duration. None: its schedule is always the same."""
    mix: Mix = STOCK_MIX
    pace: Pace = STOCK_PACE
    watches_groups: bool = False
    """Committed offsets are on record, as they are seen from outside."""
    counts_failures: bool = False
    """It counts writes that fail, so its clients have to send again: simulated ones do so here alone."""
    twin_plant: str | None = None
    """The same is played on a second cluster with this bug planted: what must lose it there."""

    @property
    def session_s(self) -> float:
        """S: a silent broker is fenced after this."""
        ms = self.settings.get("broker.session.timeout.ms")
        return DEFAULT_SESSION_S if ms is None else int(ms) / 1000

    @property
    def lag_s(self) -> float:
        """L: a follower behind for this long leaves the ISR."""
        ms = self.settings.get("replica.lag.time.max.ms")
        return DEFAULT_LAG_S if ms is None else int(ms) / 1000

    @property
    def members_stay(self) -> bool:
        """Whoever reads is a member of the readers' group, at any time. A static one that crashes is waited
        for until its session is over: where some do, a rebalance may last for its whole timeout."""
        return self.mix.subscribe > 0 and not self.mix.assign and not self.mix.crash

    def steps_of(self, seed: int, seconds: float | None = None) -> Schedule:
        """The schedule of a seed."""
        return self.schedule(random.Random(f"schedule/{seed}"), seconds or self.seconds or 0.0)

    @property
    def all_expectations(self) -> tuple[Expectation, ...]:
        fixed = (expect.nothing_skipped,) if self.seconds is None else ()
        of_members = (expect.is_read_again,) if self.members_stay else ()
        usual = (
            expect.nothing_forbidden,
            expect.all_was_read,
            expect.heals(self.session_s, self.lag_s),
            expect.takes_writes_again,
            expect.nobody_ended_itself,
            expect.clients_worked(LEAST_ACKS),
        )
        return (*self.expectations, *usual, *of_members, *fixed)

    @property
    def expectations_without_faults(self) -> tuple[Expectation, ...]:
        """Of a cluster that is not ours."""
        return (expect.nothing_forbidden, expect.all_was_read, expect.clients_worked(LEAST_ACKS))


def always(text: str) -> Draw:
    """The same schedule whatever the seed."""
    steps = schedule.parse(text)
    return lambda _rng, _seconds: steps
