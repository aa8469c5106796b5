"""What a node may hold for its clients: unanswered requests, and replies that are not read.

Each listener has a budget of its own, so that clients of one are not held up by those of another. Connections
that have yet to log in share one budget.
"""

from __future__ import annotations

from kraft.net.budget import Budget
from kraft.net.unread import Unread


class ServerMemory:
    """The memory budgets of one node; their sizes are fixed when it starts."""

    def __init__(self, queued_bytes: int, queued_bytes_before_login: int, unread_bytes: int) -> None:
        """`queued_bytes`: unanswered requests of all connections of a listener; `queued_bytes_before_login`:
        the same, for all connections of all listeners that have not logged in; `unread_bytes`: replies that
        their clients have not read."""
        self._queued_bytes = queued_bytes
        self.queued: dict[str, Budget] = {}
        """By listener."""
        self.queued_before_login = Budget(queued_bytes_before_login)
        self.unread = Unread(unread_bytes)

    def add_listener(self, listener: str) -> None:
        self.queued.setdefault(listener, Budget(self._queued_bytes))
