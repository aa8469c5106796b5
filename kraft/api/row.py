"""One row of the API table: what the node knows about an API before it reads a message of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from kraft.api.authz.authorization import Authorization
from kraft.api.context import BrokerContext, ControllerContext, NodeContext
from kraft.api.request_context import RequestContext, Role
from kraft.api.response import OnError, Response
from kraft.net.connection import Buffers
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message

__all__ = [
    "BROKER",
    "CONTROLLER",
    "EVERYWHERE",
    "ApiRow",
    "Handler",
    "OnError",
    "RawHandler",
    "Response",
    "Result",
]

Context = TypeVar("Context", NodeContext, BrokerContext, ControllerContext)

Result = Response | Awaitable[Response | None] | None
Handler = Callable[[Context, RequestContext, Message], Result]
"""Answers a decoded message. None: no reply at all. May raise `BrokerError`."""

RawHandler = Callable[[Context, RequestContext, memoryview], Buffers | asyncio.Future[Buffers]]
"""Answers a message that it reads by itself (Produce, Fetch, Raft), with the whole reply as
`RequestContext.framed` makes it, no buffers for no reply, or a future of either."""

EVERYWHERE = frozenset({Role.BROKER, Role.CONTROLLER})
BROKER = frozenset({Role.BROKER})
CONTROLLER = frozenset({Role.CONTROLLER})


@dataclass(frozen=True, slots=True)
class ApiRow:
    """An API that we answer; ranges of versions are those of Apache Kafka 4.1.

    The column of a handler says by which listeners it is reached, and what it is given of the node."""

    key: ApiKey
    versions: tuple[int, int]
    """The lowest and the highest."""
    authorization: tuple[Authorization, ...]
    """What a principal must be allowed, where the node has an authorizer: all of these."""
    node: Handler[NodeContext] | None = None
    """On every listener of every node."""
    broker: Handler[BrokerContext] | None = None
    """On brokers' listeners."""
    controller: Handler[ControllerContext] | None = None
    """On controllers' listeners."""
    forwarded: Handler[ControllerContext] | None = None
    """On every listener; a broker hands it on to the active controller, in an envelope."""
    raw_broker: RawHandler[BrokerContext] | None = None
    raw_controller: RawHandler[ControllerContext] | None = None
    on_error: OnError | None = None
    """None: the response begins with an error code (and may have a message), as most do."""
    stays: Callable[[Message], bool] | None = None
    """Of an API with both: the requests that `node` answers, and that are not forwarded."""
    exclusive: bool = False
    """Its replies may be large: one at a time per connection."""
    in_turn: bool = False
    """Begun when all before it on its connection are answered: what it says must be true when it leaves."""
    throttled: bool = True
    """Request quotas count it. What only nodes send is never counted."""
    named: bool = True
    """In the response of ApiVersions."""
    internal: bool = False
    """Ours, between nodes: not named in ApiVersions."""

    @property
    def listeners(self) -> frozenset[Role]:
        """The envelope, which the dispatcher opens, has no handler: it is for controllers."""
        if self.node is not None or self.forwarded is not None:
            return EVERYWHERE
        if self.broker is None and self.raw_broker is None:
            return CONTROLLER
        return BROKER if self.controller is None and self.raw_controller is None else EVERYWHERE

    @property
    def is_throttled(self) -> bool:
        return self.throttled and self.listeners != CONTROLLER

    @property
    def min_version(self) -> int:
        return self.versions[0]

    @property
    def max_version(self) -> int:
        return self.versions[1]

    @property
    def name(self) -> str:
        return self.key.api_name

    def answers(self, version: int) -> bool:
        lowest, highest = self.versions
        return lowest <= version <= highest
