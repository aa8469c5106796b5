"""How many items to put into one request to the controller (AlterPartition, AssignReplicasToDirs).

Fewer after one that was refused as a whole, or not answered: the controllers may take only shorter ones
(`socket.request.max.bytes`), and would never take the same again.
"""

from __future__ import annotations

from typing import Final

_STEP: Final = 8
"""After each request that was taken, the next one may have an eighth more."""


class RequestSize:
    """Of one kind of request."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.items = most

    def refused(self, items: int) -> None:
        self.items = max(1, items // 2)

    def taken(self) -> None:
        self.items = min(self.items + 1 + self.items // _STEP, self._most)
