"""SIGINT and SIGTERM held back while something must be made whole, in programs that a KeyboardInterrupt ends.

It may come between any two instructions. Where the code in between is not ours (an import, the making of an
event loop) and does not bear it, the signal waits for its end.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def signals_wait() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back in this thread, and what repeats them (kraft/cli/interruption.py).

    An import runs generated code (dataclasses); CPython remembers a KeyboardInterrupt that went
    through such code, and ends the process as killed by SIGINT although it was caught and dealt with.
    """
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGALRM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
