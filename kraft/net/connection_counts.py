"""How many connections a node has, and who may be added: max.connections, max.connections.per.ip.

    accepted -> `arrived` -> None, or why it is refused -> ended -> `left`

As in Kafka, controllers' listeners count for themselves, and brokers get in to each other where clients have
a listener of their own: there max.connections holds back the clients alone. TLS handshakes under way count.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum


class Standing(Enum):
    """Of a listener."""

    SHARED = "shared"
    """Clients are on it, brokers may be too."""
    BROKERS = "brokers"
    """It counts, and is never full."""
    CONTROLLERS = "controllers"
    """It counts for itself."""


@dataclass(frozen=True, slots=True)
class Most:
    """How many connections there may be."""

    connections: int = 2**31 - 1
    of_one_host: int = 2**31 - 1


class ConnectionCounts:
    """Of the listeners that count together."""

    def __init__(self) -> None:
        self.total = 0
        self._of_host: Counter[str] = Counter()

    def arrived(self, host: str, most: Most, standing: Standing) -> str | None:
        """It is counted until it has left, in any case."""
        self.total += 1
        self._of_host[host] += 1
        if self.total > most.connections and standing is not Standing.BROKERS:
            return f"max.connections={most.connections}"
        if self._of_host[host] > most.of_one_host:
            return f"max.connections.per.ip={most.of_one_host}"
        return None

    def left(self, host: str) -> None:
        self.total -= 1
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
