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
        Raises ProtocolError where a file has become shorter."""
        taken: list[BytesLike] = []
        while self._left and most > 0:
            first = self._left[0]
            if isinstance(first, FileRegion):
                piece = first.read_cached(most)
                if piece is None:
                    break
                _not_at_end(piece)
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
        """What `read` has read, to be sent now. Raises ProtocolError where the file has become shorter."""
        _not_at_end(piece)
        region = self._region
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


def _not_at_end(piece: Piece) -> None:
    if not piece:
        raise ProtocolError("its log was truncated under the answer")
