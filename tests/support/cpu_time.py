"""CPU time that does not depend on the machine: how much slower it is just now than the one that limits are
made for (kraft/monitoring/yardstick.py)."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

from kraft.monitoring.yardstick import USUAL_S, yardstick_s

TRIES: Final = 10
MOST: Final = 5.0
"""Not so much slower is any machine that the tests are for."""


def slowness() -> float:
    """1 for that machine and faster ones."""
    return slowness_of(yardstick_s(TRIES))


def slowness_of(taken_s: float) -> float:
    """The same by what the yardstick took at another moment."""
    return min(max(1.0, taken_s / USUAL_S), MOST)


def cpu_s(work: Callable[[], object]) -> float:
    """What it takes of it on the machine that limits are made for, without the garbage of others."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        before = slowness()
        began = time.thread_time()
        work()
        taken_s = time.thread_time() - began
        return taken_s / max(before, slowness())
    finally:
        if was_enabled:
            gc.enable()
