"""Free ports for one run: taken in several goes, and never the same twice."""

from __future__ import annotations

import random
from typing import Final

from kraft.loopback import FIRST_PORT, LAST_PORT, free_ports

PARTS: Final = 16


class Ports:
    """A `TakePorts` of which what was taken stays taken, though nobody may listen there yet, or just now.

    `part`: runs that go on at the same time take theirs from different parts of the range, so that the
    port of a node that is down does not go to another run.
    """

    def __init__(self, part: int | None = None) -> None:
        self._taken: set[int] = set()
        self._first, self._last = FIRST_PORT, LAST_PORT
        if part is not None:
            size = (LAST_PORT - FIRST_PORT) // PARTS
            self._first += part % PARTS * size
            self._last = self._first + size - 1

    def __call__(self, count: int) -> list[int]:
        ports: list[int] = []
        while len(ports) < count:
            found = free_ports(count - len(ports), random.SystemRandom(), self._first, self._last)
            ports += [port for port in found if port not in self._taken]
            self._taken.update(found)
        return ports
