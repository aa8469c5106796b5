"""What a handler gets besides the message: who sent the request, on which listener, in which version."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from kraft.api.request_cost import RequestCost
from kraft.net.connection import Buffers
from kraft.net.peer import Peer
from kraft.wire.api_keys import ApiKey
from kraft.wire.header import response_prefix
from metadata_quorum.foundation.file_region import FileRegion

JOIN_BELOW_BYTES: Final = 64 * 1024
"""A smaller reply of one buffer is joined with its header: one write is cheaper than two."""


class Role(Enum):
    """What a listener serves; the words are those of Kafka's message schemas."""

    BROKER = "broker"
    CONTROLLER = "controller"


class ApiVersionRange(NamedTuple):
    """An API in the response of ApiVersions."""

    api_key: ApiKey
    min_version: int
    max_version: int


@dataclass(slots=True)
class RequestContext:
    """A request without its message."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    role: Role
    """The role of the listener that received it."""
    connection: Peer
    principal: str
    advertised: tuple[ApiVersionRange, ...]
    """The APIs that ApiVersions lists on this listener."""
    forwarded_for: str | None = None
    """The client's host, where a broker has forwarded the request."""
    lost_controller: bool = False
    """Set when the answer is NOT_CONTROLLER."""
    is_long: bool = False
    """Whether its body is so large that it may have very many items: what loops over all of them runs outside
    the event loop."""
    cost: RequestCost | None = None
    """What it costs, for the quotas; None while no quota is set."""

    @property
    def listener(self) -> str:
        return self.connection.listener

    @property
    def client_host(self) -> str:
        return self.forwarded_for or self.connection.client_host

    def framed(self, body: Buffers) -> Buffers:
        """The whole reply: length and header before the buffers of its body."""
        first = body[0]
        size = len(first) if len(body) == 1 else sum(map(len, body))
        prefix = response_prefix(self.api_key, self.version, self.correlation_id, size)
        if len(body) == 1 and size < JOIN_BELOW_BYTES and not isinstance(first, FileRegion):
            return (prefix + first,)
        return (prefix, *body)
