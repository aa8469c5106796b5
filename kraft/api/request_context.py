"""One request as its handler sees it, besides its message: who asks, by which listener, in which version."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from kraft.api.request_cost import RequestCost
from kraft.net.connection import Buffers
from kraft.net.server import Peer
from kraft.wire.api_keys import ApiKey
from kraft.wire.header import response_prefix

JOIN_BELOW_BYTES: Final = 64 * 1024
"""A reply of one buffer up to here is joined with its header: one write is cheaper than two."""


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
    """One request, besides its message."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    role: Role
    """Which kind of listener it came in by."""
    connection: Peer
    principal: str
    advertised: tuple[ApiVersionRange, ...]
    """What ApiVersions says of its listener."""
    forwarded_for: str | None = None
    """The client's host, where a broker has passed its request on."""
    lost_controller: bool = False
    """Set when the answer is NOT_CONTROLLER."""
    is_long: bool = False
    """Its frame has room for very many items: whatever goes through all of them does so beside the loop."""
    work: RequestCost | None = None
    """What it costs; None while nothing is limited."""

    @property
    def listener(self) -> str:
        return self.connection.listener

    @property
    def client_host(self) -> str:
        return self.forwarded_for or self.connection.client_host

    def framed(self, body: Buffers) -> Buffers:
        """The whole reply to this request around the buffers of its body."""
        size = len(body[0]) if len(body) == 1 else sum(map(len, body))
        prefix = response_prefix(self.api_key, self.version, self.correlation_id, size)
        if len(body) == 1 and size < JOIN_BELOW_BYTES:
            return (prefix + body[0],)
        return (prefix, *body)
