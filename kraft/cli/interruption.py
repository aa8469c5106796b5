"""Ctrl-C, and SIGTERM where a command answers it, as a KeyboardInterrupt that is not lost.

A handler runs between any two instructions of the main thread, also inside a `__del__` or the callback of a
weak reference or of the garbage collector. What is raised there Python only prints ("Exception ignored in
..."), and the command would run on. So a lost KeyboardInterrupt comes again a moment later, until somebody
gets it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

AGAIN_S: Final = 0.01
"""By then the callback has returned; if not, this one is lost as well, and comes again."""


class CtrlC:
    """Whether Ctrl-C came, however Python's own exception for it fared."""

    def __init__(self) -> None:
        self.came = False

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """A handler: raises KeyboardInterrupt."""
        self.came = True
        interrupt(number, frame)


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """A handler: the signal is answered as Ctrl-C is. Raises KeyboardInterrupt."""
    raise KeyboardInterrupt


@contextmanager
def none_is_lost() -> Iterator[None]:
    """While a command runs: a KeyboardInterrupt that was raised where nobody can catch it is raised again."""
    print_it = sys.unraisablehook

    def hook(lost: UnraisableHookArgs) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            # Not raised here, where it would be lost, too; nor by a thread, whose start takes locks.
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            print_it(lost)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = print_it
