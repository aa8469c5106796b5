"""A piece of work that is always the same: what it takes of CPU time is how slow a machine is at a moment.

Where two threads share one core, or the host has other guests, the same work takes more CPU time, and how
much more changes within a second. So what is judged by its CPU time is compared with this, near to it.

    StallLog -> yardstick_s, right behind a stall -> its record
    tests/support/cpu_time.py -> yardstick_s
"""

from __future__ import annotations

import time
from statistics import median
from typing import Final

USUAL_S: Final = 0.0025
"""On the machine that limits are made for."""
_ROUNDS: Final = 60_000


def yardstick_s(tries: int) -> float:
    """The CPU time of this thread for the work, by the median of `tries`."""
    return median(_taken_s() for _ in range(tries))


def _taken_s() -> float:
    began = time.thread_time()
    total = 0
    for number in range(_ROUNDS):
        total += number & 7
    return time.thread_time() - began
