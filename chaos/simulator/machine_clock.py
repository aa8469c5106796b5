"""What a machine believes of the time: how fast its clock goes, and how wrong its time of day is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from chaos.simulator.scheduler import Scheduler

EPOCH_MS: Final = 1_700_000_000_000
"""The time of day when every simulation begins."""
UPTIME_S: Final = 1000.0
"""Of a machine, when the simulation begins."""


@dataclass(slots=True)
class MachineClock:
    """See the module."""

    scheduler: Scheduler
    rate: float = 1.0
    """How fast it goes."""
    wall_offset_ms: int = 0
    """How far its time of day is set wrong."""

    def monotonic_s(self) -> float:
        return UPTIME_S + self.scheduler.now * self.rate

    def simulated(self, monotonic_s: float) -> float:
        """When that will be, in the simulation's time."""
        return (monotonic_s - UPTIME_S) / self.rate

    def now_ms(self) -> int:
        return EPOCH_MS + self.wall_offset_ms + int(self.scheduler.now * self.rate * 1000)
