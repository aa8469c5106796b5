"""Clocks and chance that code reads without being given them, inside a simulation.

A node is given its clock; a client library asks `time.monotonic()`, `random.random()`, `uuid.uuid4()`, and
must not see the machine's: within `ambient` these are the simulation's.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from unittest.mock import patch

from chaos.simulator.machine_clock import EPOCH_MS, UPTIME_S
from chaos.simulator.scheduler import Scheduler


@contextmanager
def ambient(scheduler: Scheduler, chance: Random) -> Iterator[None]:
    """Of this process, until the block ends."""

    def monotonic() -> float:
        return UPTIME_S + scheduler.now

    def now() -> float:
        return EPOCH_MS / 1000 + scheduler.now

    clocks = {"time": now, "monotonic": monotonic, "perf_counter": monotonic}
    state = random.getstate()
    random.seed(chance.getrandbits(64))
    with ExitStack() as stack:
        for name, clock in clocks.items():
            stack.enter_context(patch.object(time, name, clock))
            stack.enter_context(patch.object(time, f"{name}_ns", lambda clock=clock: int(clock() * 1e9)))
        stack.enter_context(patch.object(os, "urandom", chance.randbytes))
        try:
            yield
        finally:
            random.setstate(state)
