"""Replies that clients have not read: all of them together have a bound.

    ServerConnection (replies that the socket does not take, or that wait for an earlier one) -> here
        -> piece_bytes() -> records leave their files in smaller pieces
        -> may_add_to() -> ServerConnection: nothing more is started

A consumer may ask for 55 MB and read nothing, on as many connections as it likes. Records stay in their files
until the socket takes them (file_send.py), as Kafka's do; only the piece that is being sent is in memory.

Other requests have replies of any size. For a client that has not read its last ones nothing more is started
when they are many, or when all clients' together have come to a part of the bound. When they have come to
half of it, those who read nothing are closed (connections.py).
"""

from __future__ import annotations

from typing import Final

SHARE: Final = 4
"""Other requests are started up to a quarter of the bound."""
PIECES: Final = 32
"""A piece is this part of what is left of the bound."""
OF_ONE_BYTES: Final = 4 * 1024 * 1024
"""Unread on one connection; from here on nothing more is started for it."""
MOST_BYTES: Final = 1024 * 1024
LEAST_BYTES: Final = 16 * 1024
"""Of a piece."""


class Unread:
    """Of one node."""

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
        """Whether more may be started for a connection that has so much unread."""
        return not unread_bytes or (
            unread_bytes < OF_ONE_BYTES and self.held_bytes < self._max_bytes // SHARE
        )

    @property
    def is_scarce(self) -> bool:
        """Whether those who read nothing have to make room."""
        return self.held_bytes >= self._max_bytes // 2
