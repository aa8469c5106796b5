"""The opening of what consumers put into their join: the topics they are subscribed to.

    version int16 | topics array int32 of string int16 | user data and more, not needed here

Only members of protocol type "consumer" speak it; the coordinator looks inside for one reason:
offsets of topics that nobody in a stable group reads any more may expire (offsets.py).
"""

from __future__ import annotations

import struct
from typing import Final

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics; None where the bytes are not a consumer's subscription."""
    topics: set[str] = set()
    try:
        (count,) = _INT32.unpack_from(metadata, 2)
        pos = 6
        for _ in range(count):
            (size,) = _INT16.unpack_from(metadata, pos)
            pos += 2
            if size < 0 or pos + size > len(metadata):
                return None
            topics.add(metadata[pos : pos + size].decode())
            pos += size
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
