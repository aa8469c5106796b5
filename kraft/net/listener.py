"""What a listener requires of its connections, and the limits of a node for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kraft.net.connection import ConnectionLimits
from kraft.net.connection_quotas import ListenerKind, MaxConnections
from kraft.net.renewable_tls import RenewableTls
from kraft.net.server_memory import ServerMemory

Certificate = bytes
"""In DER."""


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """What a listener requires of its connections."""

    tls: RenewableTls | None = None
    principal_of: Callable[[Certificate], str] | None = None
    """The principal of the other end's certificate; raises `ValueError` if it has none. None: certificates do
    not name principals."""
    asks_login: bool = False
    """Whether only logins are served until `Peer.authenticated` is set."""
    listener_kind: ListenerKind = ListenerKind.SHARED


OPEN: Final = ListenerSecurity()


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What all connections of a node may take."""

    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    max_connections: MaxConnections = field(default_factory=MaxConnections)
    max_controller_connections: MaxConnections = field(default_factory=MaxConnections)
    """At controllers' listeners; the one above is for all others together."""
    max_idle_s: float = 600.0
    """connections.max.idle.ms"""
    max_queued_bytes: int = 512 * 1024 * 1024
    """queued.max.request.bytes: unanswered requests of all connections of a listener."""
    max_queued_bytes_before_login: int = 32 * 1024 * 1024
    """The same, for all connections of all listeners that have not logged in."""
    max_unread_bytes: int = 32 * 1024 * 1024
    """Replies that their clients have not read. As it is used up, records are sent in smaller pieces, nothing
    more is started for clients that have replies to read, and those that read nothing are closed."""
    min_bytes_per_s: int = 0
    """kraft.request.min.bytes.per.second: the least rate at which a frame that has begun must arrive."""

    def memory(self) -> ServerMemory:
        """Budgets of these sizes, unused."""
        return ServerMemory(self.max_queued_bytes, self.max_queued_bytes_before_login, self.max_unread_bytes)
