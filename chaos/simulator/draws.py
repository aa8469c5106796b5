"""Chance from a seed, one stream of it for each thing that is decided.

A draw depends on the seed, the stream's name and how many draws that stream has made before: a fault that is
taken away, or a client more, changes no draw of any other stream.
"""

from __future__ import annotations

import hashlib
from random import Random


class Draws:
    """Streams of one seed, made when they are first asked for."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, Random] = {}

    def stream(self, name: str) -> Random:
        """The same one for the same name."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = self.fresh(name)
        return found

    def fresh(self, name: str) -> Random:
        """That stream from its beginning, for an owner of its own."""
        digest = hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=16).digest()
        return Random(int.from_bytes(digest))
