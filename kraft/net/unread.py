"""Bounds the replies of a node that its clients have not read yet.

    ReplyOutput (replies that the socket does not take, or that wait for an earlier one) -> here
        -> piece_bytes() -> records leave their files in smaller pieces
        -> may_add_to() -> ServerConnection: nothing more is started

A consumer may ask for 55 MB and read nothing, on as many connections as it likes. Records stay in their files
until the socket takes them (file_send.py), as in Kafka; only the piece that is being sent is in memory.

Other replies can be of any size. Nothing more is started for a client whose unread replies are large, or
that has any unread while those of all clients reach a quarter of the bound. When they reach half of it,
connections that read nothing are closed (connections.py).
"""

from __future__ import annotations

from typing import Final

SHARE: Final = 4
"""Connections with unread replies get no further requests started once all of a node's reach 1/SHARE of the
bound."""
PIECES: Final = 32
"""A piece of a file is 1/PIECES of what is left of the bound, between these limits."""
MOST_BYTES: Final = 1024 * 1024
LEAST_BYTES: Final = 16 * 1024
OF_ONE_BYTES: Final = 4 * 1024 * 1024
"""Once a connection has this much unread, nothing more is started for it."""


class Unread:
    """The unread replies of all of a node's connections, in bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.held_bytes = 0

    def piece_bytes(self) -> int:
        """How much of a file to read at once for one client."""
        piece = (self._max_bytes - self.held_bytes) // PIECES
        if piece < LEAST_BYTES:  # called for every fetch: without min() and max()
            return LEAST_BYTES
        return piece if piece < MOST_BYTES else MOST_BYTES

    def may_add_to(self, unread_bytes: int) -> bool:
        """Whether more may be started for a connection that has `unread_bytes` unread."""
        return not unread_bytes or (
            unread_bytes < OF_ONE_BYTES and self.held_bytes < self._max_bytes // SHARE
        )

    @property
    def is_scarce(self) -> bool:
        """Whether connections that read nothing have to make room."""
        return self.held_bytes >= self._max_bytes // 2
