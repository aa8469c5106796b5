"""Chance from a seed, one stream of it for each thing that is decided.

A draw depends on the seed, the stream's name and how many draws that stream has made before: a fault that is
taken away, or a client more, changes no draw of any other stream.

What links, disks and threads draw makes messages and jobs overtake one another. A stream of them may be
steady: then all that it decides takes the same time, and what is first in is first out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from random import Random
from typing import Final

DEVIATING: Final = ("link ", "disk of ", "threads of ")
"""Whose draws change the order of things."""
LAST_BELOW_ONE: Final = 1.0 - 2.0**-53


class SteadyRandom(Random):
    """Always the same: the longest delay, nothing that happens by a small chance."""

    def random(self) -> float:
        return LAST_BELOW_ONE


class Draws:
    """Streams of one seed, made when they are first asked for."""

    def __init__(self, seed: int, deviating: Collection[str] | None = None) -> None:
        """`deviating`: of those streams that change the order of things only these, where it is given."""
        self.seed = seed
        self._streams: dict[str, Random] = {}
        self._deviating = deviating
        self.deviating: dict[str, None] = {}
        """The names of those that were asked for, in their order."""

    def stream(self, name: str) -> Random:
        """The same one for the same name."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = self.fresh(name)
        return found

    def fresh(self, name: str) -> Random:
        """That stream from its beginning, for an owner of its own."""
        if name.startswith(DEVIATING):
            if self._deviating is not None and name not in self._deviating:
                return SteadyRandom()
            self.deviating[name] = None
        digest = hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=16).digest()
        return Random(int.from_bytes(digest))
