"""Signals held back while something must be made whole, in programs that a KeyboardInterrupt ends.

It may come between any two instructions. Where the code in between does not bear it (an import, the making of
an event loop, a process that is started and not yet written down), the signal waits for its end.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

HELD: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
"""SIGALRM repeats a KeyboardInterrupt that was lost (kraft/cli/interruption.py)."""


@contextmanager
def signals_wait() -> Iterator[None]:
    """Hold the signals back, and raise those that came at the end.

    Other handlers, not a blocked mask: a process that is started meanwhile would keep the mask for good, and
    another thread may take a signal for us. Handlers run in the main thread alone, so that nothing has to be
    held back in another.

    An import runs generated code (dataclasses); CPython remembers a KeyboardInterrupt that went
    through such code, and ends the process as killed by SIGINT although it was caught and dealt with.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    found = {number: signal.getsignal(number) for number in HELD}
    # None: not Python's to give back. What is ignored stays so, also in a process that is started meanwhile.
    earlier = {number: each for number, each in found.items() if each not in (None, signal.SIG_IGN)}
    came: list[int] = []
    over = False

    def hold(number: int, _frame: FrameType | None) -> None:
        if over:  # an interruption left us in place
            signal.signal(number, earlier[signal.Signals(number)])
            signal.raise_signal(number)
        else:
            came.append(number)

    try:
        for number in earlier:
            signal.signal(number, hold)
        yield
    finally:
        over = True
        for number, handler in earlier.items():
            signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)
