"""How many connections a node has, and who may be added: max.connections, max.connections.per.ip.

    accepted -> `arrived` -> None, or why it is refused -> ended -> `left`

As in Kafka, controllers' listeners count for themselves, and brokers get in to each other where clients have
a listener of their own: there max.connections holds back the clients alone. TLS handshakes under way count.
"""

from __future__ import annotations

import resource
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Final

RESERVED_HANDLES: Final = 1024
"""For the node's own files, at most."""
_ANY: Final = 2**31 - 1


class ListenerKind(Enum):
    """Of a listener."""

    SHARED = "shared"
    """Clients are on it, brokers may be too."""
    BROKERS = "brokers"
    """It counts, and is never full."""
    CONTROLLERS = "controllers"
    """It counts for itself."""


@dataclass(frozen=True, slots=True)
class MaxConnections:
    """How many connections there may be."""

    connections: int = _ANY
    of_one_host: int = _ANY
    handles: int = _ANY
    """The system numbers files and connections from 0 on: a client that gets one as high is refused. The rest
    are for the node's own files, which must not fail it, and for brokers and controllers."""


def handles_for_clients() -> int:
    """Of as many as this process may have now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ANY if soft == resource.RLIM_INFINITY else soft - min(soft // 8, RESERVED_HANDLES)


class ConnectionQuotas:
    """Of the listeners that count together."""

    def __init__(self) -> None:
        self.total = 0
        self._of_host: Counter[str] = Counter()

    def arrived(
        self, host: str, handle: int, max_connections: MaxConnections, listener_kind: ListenerKind
    ) -> str | None:
        """It is counted until it has left, in any case."""
        self.total += 1
        self._of_host[host] += 1
        if self.total > max_connections.connections and listener_kind is not ListenerKind.BROKERS:
            return f"max.connections={max_connections.connections}"
        if self._of_host[host] > max_connections.of_one_host:
            return f"max.connections.per.ip={max_connections.of_one_host}"
        if handle >= max_connections.handles and listener_kind is ListenerKind.SHARED:
            return f"the process has {max_connections.handles} files and connections open"
        return None

    def left(self, host: str) -> None:
        self.total -= 1
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
