"""The outside of a node's disk: switches its faults on and off while it runs.

Each call returns when the node has taken it up; a node that does not run finds the fault when it starts.
A fault ends with `heal`, and with the process, unless it is `lasting` (a full disk stays full).
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

from chaos.live.control import Conditions, Control
from chaos.live.disk_faults import GROW, READ, SYNC, WRITES, DiskFault


class DiskSwitch:
    """The disk of the node whose directory is `home`. `below`: a file or directory, absolute or below
    `home` (`data/raft`, `data/topic-0`); everything where it is empty."""

    def __init__(self, home: Path) -> None:
        self._home = home.absolute()
        self._control = Control(home)

    def full(self, below: str | Path = "", *, lasting: bool = False) -> None:
        """No file can grow."""
        self._add(DiskFault((GROW,), self._path(below), errno.ENOSPC, lasting=lasting))

    def error(
        self, below: str | Path = "", *, reads: bool = True, writes: bool = True, lasting: bool = False
    ) -> None:
        """Reads, writes, or both fail."""
        self._add(DiskFault(_operations(reads, writes), self._path(below), errno.EIO, lasting=lasting))

    def slow(
        self,
        ms: float,
        below: str | Path = "",
        *,
        reads: bool = True,
        writes: bool = True,
        lasting: bool = False,
    ) -> None:
        """Every read that the cache does not answer, every write, or both take `ms` longer."""
        self._add(DiskFault(_operations(reads, writes), self._path(below), delay_ms=ms, lasting=lasting))

    def fail_sync(self, below: str | Path = "", *, times: int | None = None, lasting: bool = False) -> None:
        """The next `times` fsyncs fail, or all."""
        self._add(DiskFault((SYNC,), self._path(below), errno.EIO, times=times, lasting=lasting))

    def heal(self) -> None:
        """Nothing is wrong any longer."""
        self._control.change(lambda now: replace(now, faults=()))

    def _path(self, below: str | Path) -> str:
        return os.path.normpath(self._home / below) if str(below) else ""

    def _add(self, fault: DiskFault) -> None:
        def added(now: Conditions) -> Conditions:
            number = 1 + max((old.number for old in now.faults), default=0)
            kept = tuple(old for old in now.faults if not fault.like(old))
            return replace(now, faults=(*kept, replace(fault, number=number)))

        self._control.change(added)


def _operations(reads: bool, writes: bool) -> tuple[str, ...]:
    return ((READ,) if reads else ()) + (WRITES if writes else ())
