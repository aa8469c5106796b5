"""A machine's clocks: how fast the monotonic one runs, and how wrong its time of day is."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from chaos.simulator.scheduler import Scheduler

EPOCH_MS: Final = 1_700_000_000_000
"""The time of day when every simulation begins."""
UPTIME_S: Final = 1000.0
"""Of a client's machine, when the simulation begins."""
UPTIMES_S: Final = (10.0, 1e7)
RATES: Final = (0.99, 1.01)
"""Of the machines of nodes: at least, at most."""


@dataclass(slots=True)
class MachineClock:
    """See the module."""

    scheduler: Scheduler
    rate: float = 1.0
    """How fast it runs, against the simulation's time."""
    wall_offset_ms: int = 0
    """How far its time of day is set wrong."""
    uptime_s: float = UPTIME_S
    """When the simulation began."""

    def differ(self, random: Random) -> None:
        """Draw an uptime and a rate: no two machines have the same."""
        self.uptime_s = float(random.randint(*map(int, UPTIMES_S)))
        self.rate = random.uniform(*RATES)

    def monotonic_s(self) -> float:
        return self.uptime_s + self.scheduler.now * self.rate

    def simulated(self, monotonic_s: float) -> float:
        """When that will be, in the simulation's time."""
        return (monotonic_s - self.uptime_s) / self.rate

    def now_ms(self) -> int:
        return EPOCH_MS + self.wall_offset_ms + int(self.scheduler.now * self.rate * 1000)
