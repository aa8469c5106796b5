"""CPU time that does not depend on the machine: how much slower it is just now than the one that limits are
made for. Where two threads share a core, or the host is busy, the same work takes more CPU time, too."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from statistics import median
from typing import Final

PIECE_S: Final = 0.0025
"""What `_piece` takes on the machine that limits are made for."""
TRIES: Final = 20
MOST: Final = 5.0
"""Not so much slower is any machine that the tests are for."""


def slowness() -> float:
    """1 for that machine and faster ones; by the median of some pieces of work."""
    return min(max(1.0, median(_taken_s(_piece) for _ in range(TRIES)) / PIECE_S), MOST)


def cpu_s(work: Callable[[], object]) -> float:
    """What it takes of it, without the garbage of others."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _taken_s(work)
    finally:
        if was_enabled:
            gc.enable()


def _taken_s(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def _piece() -> int:
    total = 0
    for number in range(60_000):
        total += number & 7
    return total
