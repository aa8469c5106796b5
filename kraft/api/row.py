"""One row of the API table: everything that a node knows about an API except the schemas of its messages.

ROWS of each family -> table.py -> ApiVersions, dispatch, authorization, docs/APIS.md, tests of every API
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from kraft.api.authz.authorization import Authorization
from kraft.api.context import BrokerContext, ControllerContext, NodeContext
from kraft.api.request_context import RequestContext, Role
from kraft.api.response import OnError, Response
from kraft.net.peer import Reply
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
"""Answers a decoded message; None for no reply at all. May raise `BrokerError`."""

RawHandler = Callable[[Context, RequestContext, memoryview], Reply]
"""Decodes a message itself (Produce, Fetch, Raft). Returns the whole reply as `RequestContext.framed` makes
it (no buffers: no reply), or an object that will provide it."""

EVERYWHERE = frozenset({Role.BROKER, Role.CONTROLLER})
BROKER = frozenset({Role.BROKER})
CONTROLLER = frozenset({Role.CONTROLLER})


@dataclass(frozen=True, slots=True)
class ApiRow:
    """An API that a node answers. The field in which its handler is set decides which listeners serve it, and
    which context the handler gets."""

    key: ApiKey
    versions: tuple[int, int]
    """The lowest and the highest, as in Apache Kafka 4.1."""
    authorization: tuple[Authorization, ...]
    """Everything that a principal must be allowed, if the node has an authorizer."""
    node: Handler[NodeContext] | None = None
    """On every listener of every node."""
    broker: Handler[BrokerContext] | None = None
    """On brokers' listeners."""
    controller: Handler[ControllerContext] | None = None
    """On controllers' listeners."""
    forwarded: Handler[ControllerContext] | None = None
    """On every listener; a broker sends it on to the active controller, in an envelope."""
    raw_broker: RawHandler[BrokerContext] | None = None
    raw_controller: RawHandler[ControllerContext] | None = None
    on_error: OnError | None = None
    """None: the response has an error code at its top, and perhaps a message."""
    is_local: Callable[[Message], bool] | None = None
    """For an API with both `node` and `forwarded`: which requests `node` answers."""
    exclusive: bool = False
    """Whether its replies may be large, so that a connection has only one such request in progress."""
    in_turn: bool = False
    """Whether it starts only when all requests before it on its connection are answered, because its reply
    must still be true when it is sent."""
    concurrent: bool = False
    """Whether a client's later requests on the connection are served while this one waits: it takes little
    memory, and may wait for other clients. Kafka's brokers serve one request of a connection at a time."""
    exempt_from_quotas: bool = False
    """Like everything that only nodes send."""
    from_broker: Callable[[int, Message], bool] | None = None
    """For an API of clients: which requests, by version and message, are those that brokers send each other.
    They are exempt from quotas too, if the requester may send them."""
    advertised: bool = True
    """Whether ApiVersions lists it."""
    internal: bool = False
    """Whether it is not one of Kafka's APIs, but one between our nodes that is never advertised."""

    @property
    def listeners(self) -> frozenset[Role]:
        """Which listeners serve it. Envelopes have no handler (the dispatcher opens them); they are for
        controllers."""
        if self.node is not None or self.forwarded is not None:
            return EVERYWHERE
        if self.broker is None and self.raw_broker is None:
            return CONTROLLER
        return BROKER if self.controller is None and self.raw_controller is None else EVERYWHERE

    @property
    def is_throttled(self) -> bool:
        return not self.exempt_from_quotas and self.listeners != CONTROLLER

    def is_from_broker(self, version: int, request: Message) -> bool:
        return self.from_broker is not None and self.from_broker(version, request)

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
