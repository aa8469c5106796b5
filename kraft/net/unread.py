"""Replies that clients have not read: all of them together have a bound.

    ServerConnection (replies that the socket does not take) -> here
        -> room() -> api/fetch: a smaller response
        -> may_add_to() -> ServerConnection: nothing more is started

A consumer may ask for 55 MB and read nothing, on as many connections as it likes. Kafka sends files from the
page cache; what we send is in memory. So every fetch gets a part of what is left of the bound, and in the end
little more than a batch: a client that reads hardly notices, and one that does not soon holds nothing more.

Other requests have replies of any size. For a client that has not read its last ones nothing more is started
when they are many, or when all clients' together have come to a part of the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft.net.connection import Budget

SHARE: Final = 4
"""A fetch may take a quarter of what is left; other requests are started up to a quarter of the bound."""
OF_ONE_BYTES: Final = 4 * 1024 * 1024
"""Unread on one connection; from here on nothing more is started for it."""
LEAST_BYTES: Final = 256 * 1024
"""This much in any case; the first batch is never cut."""


class Unread:
    """Of one node."""

    def __init__(self, max_bytes: int, budgets: Mapping[str, Budget]) -> None:
        """`budgets`: requests without reply, among them fetches whose records are being read from disk."""
        self._max_bytes = max_bytes
        self._budgets = budgets
        self.held_bytes = 0

    def room(self) -> int:
        """Bytes of records that one more response may have."""
        left = self._max_bytes - self.held_bytes
        for budget in self._budgets.values():
            left -= budget.used_bytes
        room = left // SHARE
        return room if room > LEAST_BYTES else LEAST_BYTES  # called for every fetch: without max()

    def may_add_to(self, unread_bytes: int) -> bool:
        """Whether more may be started for a connection that has so much unread."""
        return unread_bytes < OF_ONE_BYTES and self.held_bytes < self._max_bytes // SHARE
