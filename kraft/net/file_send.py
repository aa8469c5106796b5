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
    """The buffers of one connection's replies, some of them regions of files. Later replies wait until all of
    it has left."""

    def __init__(self, buffers: Iterable[BytesLike | FileRegion]) -> None:
        self._left = deque(buffers)

    @property
    def done(self) -> bool:
        """Whether all has been taken."""
        return not self._left

    def take(self, most: int) -> list[BytesLike]:
        """The next buffers, with at most `most` bytes from files; nothing if those must be read from the
        device first (`read`). Raises ProtocolError if the log was truncated."""
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
        """Note that `piece`, which `read` has read, is being sent. Raises ProtocolError if the log was
        truncated."""
        region = self._region
        _check_read(region, piece)
        region.took(piece)
        if not region.length:
            self._left.popleft()

    def failed(self, error: Exception) -> None:
        """A `read` has failed."""
        self._region.failed(error)

    @property
    def _region(self) -> FileRegion:
        first = self._left[0]
        assert isinstance(first, FileRegion), "only a file is read"
        return first


def _check_read(region: FileRegion, piece: Piece) -> None:
    """The beginning of the reply, with its length, has left already: the connection can only be closed."""
    if not piece or region.is_stale():
        raise ProtocolError("its log was truncated under the answer")
