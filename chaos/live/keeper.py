"""Runs a program that knows nothing of owners, and ends it when its owner ends, SIGKILL included.

    python -m chaos.live.keeper [--with PID] PROGRAM ARGUMENT...

Without an owner it runs until SIGTERM. Should the keeper itself be killed, the system ends the
program for it, where the system can (Linux).
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Final

from kraft.node.process import outlive

PR_SET_PDEATHSIG: Final = 1

_libc: Final = ctypes.CDLL(None)


def keep(command: Sequence[str], owner: int | None) -> int:
    """Run the program to its end; its exit code."""
    keeper = os.getpid()

    def die_with_keeper() -> None:
        if hasattr(_libc, "prctl"):
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != keeper:  # it was killed before it could be arranged
                os.kill(os.getpid(), signal.SIGKILL)

    with subprocess.Popen(command, preexec_fn=die_with_keeper) as program:
        signal.signal(signal.SIGTERM, lambda *_: program.terminate())
        if owner is not None:
            threading.Thread(target=_end_with, args=(owner, program), daemon=True).start()
        return program.wait()


def _end_with(owner: int, program: subprocess.Popen[bytes]) -> None:
    outlive(owner)
    program.kill()


def main(arguments: Sequence[str]) -> int:
    """See the module."""
    match list(arguments):
        case ["--with", owner, *command] if owner.isdecimal() and command:
            return keep(command, int(owner))
        case [first, *_] as command if first != "--with":
            return keep(command, None)
        case _:
            print("usage: python -m chaos.live.keeper [--with PID] PROGRAM ARGUMENT...", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
