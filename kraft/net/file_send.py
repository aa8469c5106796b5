"""A reply that is partly in files, on its way to the socket: piece by piece, as the socket takes it.

Pipeline.take_output -> FileSend -> pieces -> ServerConnection -> transport
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from kraft.net.connection import BytesLike, ProtocolError
from metadata_quorum.foundation.file_region import FileRegion, Piece


class FileSend:
    """Of one connection; what comes behind it waits until it has left."""

    def __init__(self, buffers: Iterable[BytesLike | FileRegion]) -> None:
        self._left = deque(buffers)

    @property
    def done(self) -> bool:
        """Whether all has been taken."""
        return not self._left

    def take(self, most: int) -> list[BytesLike]:
        """What comes next, so many bytes of files at most; nothing where they are to be read from the device.
        Raises ProtocolError where a log was truncated."""
        taken: list[BytesLike] = []
        while self._left and most > 0:
            first = self._left[0]
            if isinstance(first, FileRegion):
                piece = first.read_cached(most)
                if piece is None:
                    break
                _check_read(first, piece)
                most -= len(piece)
                taken.append(piece)
                if first.length:
                    break
            else:
                taken.append(first)
            self._left.popleft()
        return taken

    def read(self, most: int) -> asyncio.Future[Piece]:
        """Read what `take` did not find; pass it to `came`."""
        return self._region.read(most)

    def came(self, piece: Piece) -> None:
        """What `read` has read, to be sent now. Raises ProtocolError where the log was truncated."""
        region = self._region
        _check_read(region, piece)
        region.took(piece)
        if not region.length:
            self._left.popleft()

    def failed(self, error: Exception) -> None:
        """A read was not possible."""
        self._region.failed(error)

    @property
    def _region(self) -> FileRegion:
        first = self._left[0]
        assert isinstance(first, FileRegion), "only a file is read"
        return first


def _check_read(region: FileRegion, piece: Piece) -> None:
    """The answer's head has left with the length: it can only be broken off."""
    if not piece or region.is_stale():
        raise ProtocolError("its log was truncated under the answer")
