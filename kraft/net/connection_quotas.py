"""How many connections a node may have: max.connections, max.connections.per.ip.

    accepted -> `arrived` -> None, or why it is refused -> closed -> `left`

As in Kafka, controllers' listeners are counted separately, and where clients have a listener of their own
max.connections limits the clients alone, not the brokers. TLS handshakes in progress count.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

RESERVED_HANDLES: Final = 1024
"""File handles that are kept for the node's own files, at most."""
_ANY: Final = 2**31 - 1


class ListenerKind(Enum):
    """Whom a listener is for."""

    SHARED = "shared"
    """For clients, and for brokers too unless these have a listener of their own."""
    BROKERS = "brokers"
    """For brokers: its connections count, but are never refused because of max.connections."""
    CONTROLLERS = "controllers"
    """For controllers: its connections are counted separately."""


@dataclass(frozen=True, slots=True)
class MaxConnections:
    """How many connections there may be."""

    connections: int = _ANY
    of_one_host: int = _ANY
    of_hosts: Mapping[str, int] = field(default_factory=dict)
    """Addresses with a limit of their own."""
    handles: int = _ANY
    """The system numbers files and connections from 0 on: a client's connection with this number or a higher
    one is refused. The rest is for the node's own files, which must not fail to open, and for brokers and
    controllers."""


def handles_for_clients() -> int:
    """The part of this process's file limit that clients may use."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ANY if soft == resource.RLIM_INFINITY else soft - min(soft // 8, RESERVED_HANDLES)


class ConnectionQuotas:
    """The number of connections of listeners that are counted together."""

    def __init__(self) -> None:
        self.total = 0
        self._of_host: Counter[str] = Counter()

    def arrived(
        self, host: str, handle: int, max_connections: MaxConnections, listener_kind: ListenerKind
    ) -> str | None:
        """None, or the limit that it exceeds. Even a refused connection counts until `left`."""
        self.total += 1
        self._of_host[host] += 1
        if self.total > max_connections.connections and listener_kind is not ListenerKind.BROKERS:
            return f"max.connections={max_connections.connections}"
        most = max_connections.of_hosts.get(host)
        if most is not None and self._of_host[host] > most:
            return f"max.connections.per.ip.overrides={host}:{most}"
        if most is None and self._of_host[host] > max_connections.of_one_host:
            return f"max.connections.per.ip={max_connections.of_one_host}"
        if handle >= max_connections.handles and listener_kind is ListenerKind.SHARED:
            return f"the process has {max_connections.handles} files and connections open"
        return None

    def left(self, host: str) -> None:
        self.total -= 1
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
