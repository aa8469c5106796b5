"""A disk whose process dies at one chosen operation, and all the crash points of a piece of work.

    for point in crash_points(operations_of(disk, work)):
        disk.die_after(point.operation, halfway=point.halfway)

A point is before an operation, or in the midst of it: an append has then written its first half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from chaos.sim.disk import Killed, SimDisk

READING: Final = ("read", "open")


class Dead(Killed):
    """The process has died; no handler for errors may catch it."""


class DeadBetween(BaseException):
    """The same, before the operation."""


DEAD: Final = (Dead, DeadBetween)


class CrashPoint(NamedTuple):
    operation: int
    name: str
    halfway: bool


class MortalDisk(SimDisk):
    def __init__(self, capacity: int | None = None) -> None:
        super().__init__(capacity)
        self.done: list[str] = []
        """The operations so far."""
        self._left: int | None = None
        self._halfway = False

    def die_after(self, operations: int | None, *, halfway: bool = False) -> None:
        """So many more are carried out; None: it lives."""
        self._left, self._halfway = operations, halfway

    def strike(self, operation: str, path: str) -> None:
        if operation not in READING:
            if self._left is not None:
                self._left -= 1
                if self._left < 0:
                    raise Dead if self._halfway else DeadBetween
            self.done.append(operation)
        super().strike(operation, path)


def operations_of(disk: MortalDisk, work: Callable[[], object]) -> list[str]:
    """What it asks of the disk."""
    before = len(disk.done)
    work()
    return disk.done[before:]


def crash_points(operations: Sequence[str]) -> Iterator[CrashPoint]:
    for index, name in enumerate(operations):
        yield CrashPoint(index, name, halfway=False)
        if name == "append":
            yield CrashPoint(index, name, halfway=True)
