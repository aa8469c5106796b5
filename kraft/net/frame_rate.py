"""Whether a request arrives fast enough: a client must not hold a buffer for long by sending slowly.

    sweep of connections.py -> ServerConnection.too_slow -> here

A frame is looked at from time to time, and in between it must arrive at a least rate. While the node itself
does not read from the connection the client is not to blame, unless others wait for the memory that the frame
holds. It never is while the node reads one share of it in each turn of the loop (read_turns.py), and it has
more to send in each.
"""

from __future__ import annotations

from math import inf
from typing import Final

from kraft.net.connection import FrameProgress
from kraft.net.connections import SWEEP_S

SLOW_FRAME_S: Final = 30.0
"""How often a frame is looked at. While other frames wait for room it is every `SWEEP_S`, but a frame
that was held up by its own connection's requests still has this long."""
SOON_S: Final = 0.1
"""Two turns of the loop that are as long as may be: what is read in one of them may be the end of what has
come, and no whole share."""


class FrameRate:
    """How fast the frame arrives that one connection is receiving."""

    __slots__ = ("_ahead_s", "_ahead_since", "_held_up", "_looked_at", "_went_on")

    def __init__(self) -> None:
        self._looked_at: tuple[float, FrameProgress] | None = None
        """When, by the frame's own time, and how much of it had arrived by then."""
        self._ahead_s = 0.0
        """For how long its time has stood still."""
        self._ahead_since = inf
        self._went_on = -inf
        self._held_up = False
        """Whether the connection was not read for a time since then."""

    def hold_up(self) -> None:
        """Nothing more is read from the connection for now."""
        self._held_up = True

    def is_ahead(self, now: float) -> None:
        """The connection has had its share of the turn: the frame's time stands still until `goes_on`, and
        also since the last one, if that was a short time ago."""
        if now - self._went_on <= SOON_S:
            self._ahead_s += now - self._went_on
        self._ahead_since = now

    def goes_on(self, now: float) -> None:
        """It may be read again, after `is_ahead`."""
        self._ahead_s += now - self._ahead_since
        self._ahead_since, self._went_on = inf, now

    def forget(self) -> None:
        """No frame is being received."""
        self._looked_at = None

    def is_below(
        self, least: int, now: float, progress: FrameProgress, *, reading: bool, contended: bool
    ) -> bool:
        """Whether the frame has arrived at less than `least` bytes a second since it was looked at last.
        `reading`: whether the connection is being read. `contended`: other frames wait for room."""
        now = min(now, self._ahead_since) - self._ahead_s
        looked_at, held_up = self._looked_at, self._held_up or not reading
        if looked_at is None or looked_at[1].frame != progress.frame or (held_up and not contended):
            self._look(now, progress, reading)
            return False
        since, before = looked_at
        if now - since < (SWEEP_S if contended and not held_up else SLOW_FRAME_S):
            return False
        self._look(now, progress, reading)
        return progress.came_bytes - before.came_bytes < least * (now - since)

    def _look(self, now: float, progress: FrameProgress, reading: bool) -> None:
        self._looked_at = now, progress
        self._held_up = not reading
