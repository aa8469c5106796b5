"""What a listener asks of its connections, and what a node bears of all of them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kraft.net.connection import ConnectionLimits
from kraft.net.connection_quotas import ListenerKind, MaxConnections
from kraft.net.server_memory import ServerMemory

Certificate = Mapping[str, Any]
"""As Python's ssl module gives it."""


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """What a listener asks of its connections."""

    tls: ssl.SSLContext | None = None
    principal_of: Callable[[Certificate], str] | None = None
    """Of the other end's certificate; `ValueError` where that is nobody's. None: it does not count."""
    asks_login: bool = False
    """Nobody is let in before `Peer.authenticated` is set."""
    listener_kind: ListenerKind = ListenerKind.SHARED


OPEN: Final = ListenerSecurity()


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What a node bears."""

    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    max_connections: MaxConnections = field(default_factory=MaxConnections)
    max_controller_connections: MaxConnections = field(default_factory=MaxConnections)
    """At controllers' listeners; the one above is for all others together."""
    max_idle_s: float = 600.0
    """connections.max.idle.ms"""
    max_queued_bytes: int = 512 * 1024 * 1024
    """queued.max.request.bytes: requests without reply, over all connections of a listener."""
    max_queued_bytes_before_login: int = 32 * 1024 * 1024
    """The same, over all connections of all listeners that have not logged in."""
    max_unread_bytes: int = 32 * 1024 * 1024
    """Replies that their clients do not read. As it is used up, records are sent in smaller pieces, nothing
    is started for who has not read all, and who reads nothing is closed."""
    min_bytes_per_s: int = 0
    """kraft.request.min.bytes.per.second: at which a frame that has begun must come."""

    def memory(self) -> ServerMemory:
        """The budgets that it allows, all of them free."""
        return ServerMemory(self.max_queued_bytes, self.max_queued_bytes_before_login, self.max_unread_bytes)
