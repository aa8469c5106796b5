"""Room for a large frame that is still arriving: it grows without being copied or cleared.

    FrameReader -> grown -> the system moves the pages there are, and finds more when they are written to

Finding those of a megabyte takes the better part of a millisecond, so they are written to piece by piece.
"""

from __future__ import annotations

import mmap

Room = mmap.mmap


def grown(buffer: bytearray | memoryview | Room, size: int) -> Room:
    """`buffer` with `size` bytes, of which nothing else may refer to any. What is no `Room` yet is copied."""
    if isinstance(buffer, Room):
        buffer.resize(size)
        return buffer
    room = new_room(size)
    room[: len(buffer)] = buffer
    return room


def new_room(size: int) -> Room:
    """Of no pages yet."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
