"""Sentences for a person on standard error: those of the command line, and the last one of a node."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def tell(*lines: str) -> None:
    """For whoever still reads it: also where nothing takes it, on a full disk or in a pipe whose reader has
    gone, what comes after is done."""
    try:
        print(*lines, sep="\n", file=sys.stderr, flush=True)  # noqa: T201 - what a person reads
    except OSError:
        with suppress(OSError):  # else Python's last flush would fail, and change the exit code
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
