"""Ctrl-C, and SIGTERM and a closed terminal where a command answers them, as a KeyboardInterrupt that is not
lost.

A handler runs between any two instructions of the main thread, also inside a `__del__` or the callback of a
weak reference or of the garbage collector. What is raised there Python only prints ("Exception ignored in
..."), and the command would run on. So a lost KeyboardInterrupt comes again a moment later, until somebody
gets it.
"""

from __future__ import annotations

import signal
import sys
import threading
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


def stop_in_order() -> None:
    """SIGTERM, and SIGHUP of a terminal that is closed, are answered as Ctrl-C is. What is ignored stays so
    (nohup)."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """While something is done that no KeyboardInterrupt can interrupt, Ctrl-C ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_without_a_word() -> None:
    """The command has said its last words: another signal, while Python ends, ends the process."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


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
