"""What a scenario is: a story, a cluster, a schedule, and what must be true of it afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from chaos import schedule
from chaos.evidence import Evidence
from chaos.schedule import Schedule
from chaos.workload import Mix, TopicSpec
from chaos.workload.workload import STOCK_MIX, STOCK_PACE, Pace

ELECTION_S: Final = 1.4
"""E of RELIABILITY.md: the longest that a voter waits before it stands."""
DEFAULT_SESSION_S: Final = 9.0
DEFAULT_LAG_S: Final = 30.0


class Finding(NamedTuple):
    """What became of one expectation, with the figure that was measured."""

    name: str
    ok: bool
    detail: str


Expectation = Callable[[Evidence], Finding]
Draw = Callable[[random.Random, float], Schedule]
"""A schedule from a source of randomness and the seconds that it shall last."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    name: str
    story: str
    """One sentence."""
    schedule: Draw
    expectations: Sequence[Expectation] = ()
    topics: tuple[TopicSpec, ...] = (TopicSpec("all", partitions=1, idempotent=True),)
    settings: Mapping[str, str] = field(default_factory=dict)
    nodes: int = 3
    clients: int = 4
    seconds: float | None = None
    """How long it lasts where nobody says otherwise. None: its schedule is always the same."""
    mix: Mix = STOCK_MIX
    pace: Pace = STOCK_PACE
    is_lossy: bool = False
    """Forbidden anomalies are what it is about; its expectations say which."""
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


def always(text: str) -> Draw:
    """The same schedule whatever the seed."""
    steps = schedule.parse(text)
    return lambda _rng, _seconds: steps
