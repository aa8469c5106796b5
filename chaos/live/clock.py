"""A node's wall clock, which can be set from outside. The monotonic clock of the loop is
another one and is not affected, as when a person, or NTP, sets a machine's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from chaos.live.control import Control


class ShiftedClock:
    """The node's `now_ms`."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.shift_ms = 0

    def now_ms(self) -> int:
        return self._now_ms() + self.shift_ms


class ClockSwitch:
    """The wall clock of the node whose directory is `home`."""

    def __init__(self, home: Path) -> None:
        self._control = Control(home)

    def shift(self, ms: int) -> None:
        """Let it differ from the machine's by `ms` from now on, restarts included; returns when the node
        has taken it up."""
        self._control.change(lambda now: replace(now, clock_shift_ms=ms))
