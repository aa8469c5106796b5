"""Bytes of an answer that are still in their file (Netty's word), read as the socket takes them.

    slice of a log -> api/fetch -> FileRegion among a reply's buffers -> net/file_send -> socket

So a client that does not read holds its place in a file, not memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import File

Piece = bytes | bytearray


class ReadLater(Protocol):
    """Runs a read outside the loop."""

    def __call__(self, read: Callable[[MayBlock], Piece], /) -> asyncio.Future[Piece]: ...


class FileRegion:
    """What is left of it begins at `position`."""

    __slots__ = ("_file", "_later", "failed", "is_stale", "length", "position")

    def __init__(
        self,
        file: File,
        position: int,
        length: int,
        later: ReadLater,
        failed: Callable[[Exception], None],
        is_stale: Callable[[], bool] = lambda: False,
    ) -> None:
        """`failed`: told why a read was not possible. `is_stale`: whether other bytes may be in their place
        by now; to be asked on the loop, of what was read."""
        self._file = file
        self.position = position
        self.length = length
        self._later = later
        self.failed = failed
        self.is_stale = is_stale

    def __len__(self) -> int:
        return self.length

    def read_cached(self, most: int) -> Piece | None:
        """The next bytes, if the page cache has them."""
        try:
            piece = self._file.read_cached(self.position, min(most, self.length))
        except OSError:  # `read` finds it again, and reports it
            return None
        if piece is not None:
            self.took(piece)
        return piece

    def read(self, most: int) -> asyncio.Future[Piece]:
        """The next bytes, read outside the loop; pass them to `took`."""
        file, position, length = self._file, self.position, min(most, self.length)
        return self._later(lambda may_block: file.read(position, length))

    def took(self, piece: Piece) -> None:
        """Step over a piece that has been read."""
        self.position += len(piece)
        self.length -= len(piece)
