"""Ends a process that hangs, and prints its stacks.

The client library may stop all of Python: confluent-kafka's rebalance callback calls librdkafka's own thread
while it holds the interpreter's lock, and was seen to wait for ever. No Python thread runs then, so the
watching one is C's (faulthandler). The process's own children end with it.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

HANG_S: Final = 600.0
"""What a run may take beyond its faults: the bounds of healing and of the final read, several times over."""


@contextmanager
def ended_if_it_hangs(seconds: float, stacks: TextIO) -> Iterator[None]:
    """What takes so much longer than `seconds` is over, with code 1; every thread's stack is in `stacks`."""
    faulthandler.dump_traceback_later(seconds + HANG_S, exit=True, file=stacks)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
