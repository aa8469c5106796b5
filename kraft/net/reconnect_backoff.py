"""How long to wait before a connection that ended, or never came, is dialled again.

At once where it had held for a while, longer each time where it did not: a dead node may refuse, and
a proxy before it may accept and hang up. With jitter, so that nodes that lost each other do not dial
in step.
"""

from __future__ import annotations

import random
from typing import Final

FIRST_S: Final = 0.02
LAST_S: Final = 0.5


class ReconnectBackoff:
    """The pauses of one connection."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._pause_s = FIRST_S

    def pause_s(self, held_s: float = 0.0) -> float:
        """Until the next attempt; the last connection held for `held_s`, 0 where there was none."""
        self._pause_s = FIRST_S if held_s > LAST_S else min(self._pause_s * 2, LAST_S)
        return self._pause_s * (0.5 + self._random.random())
