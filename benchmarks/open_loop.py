"""When an open-loop load sends: at fixed times, whether or not earlier requests have been answered.

A closed loop waits for a slow answer and so sends less just when the server is slow, which hides the
slowness ("coordinated omission"). Here message `i` is due at `start + i / rate` and its latency counts
from that time, even where the client itself sent it late.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class OpenLoop:
    """The schedule of `count` messages at `rate` a second from `start` (seconds of any steady clock)."""

    start: float
    rate: float
    count: int
    sent: int = 0

    def __post_init__(self) -> None:
        if self.rate <= 0 or self.count < 0:
            raise ValueError(f"a rate of {self.rate}/s and a count of {self.count} make no schedule")

    @property
    def finished(self) -> bool:
        return self.sent >= self.count

    def due_at(self, index: int) -> float:
        """The time at which message `index` is due."""
        return self.start + index / self.rate

    def take_due(self, now: float) -> range:
        """The indexes that are due by `now` and were not taken yet; they count as sent from here on."""
        first = self.sent
        while self.sent < self.count and self.due_at(self.sent) <= now:
            self.sent += 1
        return range(first, self.sent)

    def wait_s(self, now: float) -> float:
        """How long until the next message is due; zero when it is late or there is none."""
        return 0.0 if self.finished else max(0.0, self.due_at(self.sent) - now)
