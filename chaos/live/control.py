"""The faults around a node of a chaos cluster, and how it gets them: a small file in each direction.

    HOME/chaos.wanted    the conditions that are wanted, numbered               written outside
    HOME/chaos.taken     those in force, with their number                      written by the node
    HOME/chaos.running   locked by the node for as long as it lives             (empty)
    HOME/chaos.changing  locked by the process that changes them                (empty)

A thread of the node reads the first file every few milliseconds; `Control.change` writes it and waits for the
second. A fault ends with the process that has it, unless it lasts; a change while the node is down waits for
its next start.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Thread
from typing import IO, Final

from chaos.live.disk_faults import DiskFault

WANTED: Final = "chaos.wanted"
TAKEN: Final = "chaos.taken"
RUNNING: Final = "chaos.running"
CHANGING: Final = "chaos.changing"
POLL_S: Final = 0.01
PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Conditions:
    """Everything that can be wrong around a node."""

    faults: tuple[DiskFault, ...] = ()
    clock_shift_ms: int = 0

    def lasting(self) -> Conditions:
        """What is left of them when the process has ended."""
        return replace(self, faults=tuple(fault for fault in self.faults if fault.lasting))


@dataclass(frozen=True, slots=True)
class Notice:
    """The contents of both files."""

    conditions: Conditions = Conditions()
    number: int = 0

    @classmethod
    def read(cls, path: Path) -> Notice:
        try:
            fields = json.loads(path.read_text())
        except FileNotFoundError:
            return cls()
        faults = (DiskFault(**{**each, "operations": tuple(each["operations"])}) for each in fields["faults"])
        return cls(Conditions(tuple(faults), fields["clock_shift_ms"]), fields["number"])

    def write(self, path: Path) -> None:
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(json.dumps(asdict(self.conditions) | {"number": self.number}) + "\n")
        temporary.replace(path)


def _in_force(home: Path, *, running: bool) -> Notice:
    """Under what conditions the node runs, or will when it starts."""
    wanted, taken = Notice.read(home / WANTED), Notice.read(home / TAKEN)
    if wanted.number != taken.number:
        return wanted
    return taken if running else Notice(taken.conditions.lasting(), taken.number)


class Control:
    """The outside."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def change(self, edit: Callable[[Conditions], Conditions], patience_s: float = PATIENCE_S) -> None:
        """Set other conditions; returns when the node, where one runs, has taken them up. Raises
        TimeoutError where it runs and does not (a paused node takes them up when it wakes)."""
        with _locked(self._home / CHANGING):
            now = _in_force(self._home, running=self._is_running())
            number = now.number + 1
            Notice(edit(now.conditions), number).write(self._home / WANTED)
            deadline = time.monotonic() + patience_s
            while self._is_running() and Notice.read(self._home / TAKEN).number != number:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the node in {self._home} takes nothing up: is it paused?")
                time.sleep(POLL_S / 2)

    def _is_running(self) -> bool:
        try:
            with open(self._home / RUNNING, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def obey(home: Path, meet: Callable[[Conditions], None]) -> None:
    """The inside: bring this process under the conditions of its directory, now and whenever they change.

    `meet` puts conditions in force; it is called on a thread of its own, except for the first time.
    """
    lock = open(home / RUNNING, "ab")  # noqa: SIM115 - held until the process ends
    first = _in_force(home, running=False)
    meet(first.conditions)
    first.write(home / TAKEN)
    fcntl.flock(lock, fcntl.LOCK_EX)  # from here on, others wait for what we take up
    Thread(target=_follow, args=(home, meet, first.number, lock), name="chaos", daemon=True).start()


def _follow(home: Path, meet: Callable[[Conditions], None], number: int, lock: IO[bytes]) -> None:
    path, seen = home / WANTED, None
    while not lock.closed:
        status = os.stat(path) if path.exists() else None
        if status is not None and seen != (status.st_ino, status.st_mtime_ns):
            seen = (status.st_ino, status.st_mtime_ns)
            wanted = Notice.read(path)
            if wanted.number != number:
                number = wanted.number
                meet(wanted.conditions)
                wanted.write(home / TAKEN)
        time.sleep(POLL_S)
