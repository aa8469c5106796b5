"""Raft between the nodes of the quorum: the one API that is ours, on the controller listener.

It has a Kafka request header (version 1, so the same framing, limits and security as any request)
and no response: Raft's own messages answer each other, over a connection of the other direction.

    int16 n, n bytes cluster_id | int32 source | int32 target | int32 m, m bytes frame

`cluster_id` and `target` catch a node that was started with another cluster's, or a wrong, address.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

RAFT_API_VERSION: Final = 0

_LENGTH: Final = struct.Struct(">h")
_REST: Final = struct.Struct(
    ">i"  # source voter
    "i"  # target voter
    "i"  # length of the frame
)


class RaftFrame(NamedTuple):
    cluster_id: str
    source: int
    target: int
    frame: bytes


def encode(message: RaftFrame) -> bytes:
    cluster_id = message.cluster_id.encode()
    return b"".join(
        (
            _LENGTH.pack(len(cluster_id)),
            cluster_id,
            _REST.pack(message.source, message.target, len(message.frame)),
            message.frame,
        )
    )


def decode(body: memoryview) -> RaftFrame:
    """Raises `ValueError` for anything that `encode` cannot have made."""
    try:
        (length,) = _LENGTH.unpack_from(body, 0)
        rest = _LENGTH.size + length
        if length < 0:
            raise ValueError("a Raft frame with a negative length")
        cluster_id = str(body[_LENGTH.size : rest], "utf-8")
        source, target, size = _REST.unpack_from(body, rest)
    except struct.error:
        raise ValueError("a Raft frame that is too short") from None
    start = rest + _REST.size
    if size < 0 or start + size != len(body):
        raise ValueError("a Raft frame whose length is wrong")
    return RaftFrame(cluster_id, source, target, bytes(body[start:]))
