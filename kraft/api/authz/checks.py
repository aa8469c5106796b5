"""The kinds of rights that an API may ask for, as values; table.py says which API asks for which.

    Whole   the request as a whole is about one resource: refused, it is answered with the API's own error
    Each    each item of a list is judged for itself: the refused are answered with the error, without
            the handler hearing of them; the others go on
    Seen    what the answer names is left out where the asker may not see it

A judge looks at the request before its handler does. It raises `BrokerError`, or answers in the handler's
place, or takes out of the request what is refused and amends the handler's answer (`RequestContext.amend`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.row import Response
from kraft.monitoring.rate_limited_log import rate_limited
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID
from metadata_quorum.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from metadata_quorum.security.authorizer import Authorizer

log = rate_limited(logging.getLogger("kraft.authorizer"))

Item = TypeVar("Item")

AUTHORIZATION_ERRORS: Final = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class RequestPrincipal(NamedTuple):
    """Who asks, and the one who knows what he may."""

    authorizer: Authorizer
    principal: str
    host: str

    @classmethod
    def of(cls, authorizer: Authorizer, ctx: RequestContext) -> RequestPrincipal:
        return cls(authorizer, ctx.principal, ctx.client_host)

    def is_authorized(
        self, operation: AclOperation, resource: AclResourceType, name: str = CLUSTER_NAME
    ) -> bool:
        return self.authorizer.allows(self.principal, self.host, operation, resource, name)

    def require_authorized(
        self, operation: AclOperation, resource: AclResourceType, name: str = CLUSTER_NAME
    ) -> None:
        """Raises `BrokerError`."""
        if not self.is_authorized(operation, resource, name):
            self.log_denied(operation, resource, name)
            raise BrokerError(AUTHORIZATION_ERRORS[resource])

    def operations(self, resource: AclResourceType, name: str = CLUSTER_NAME) -> int:
        return self.authorizer.operations(self.principal, self.host, resource, name)

    def log_denied(self, operation: AclOperation, resource: AclResourceType, name: str) -> None:
        log.info("%r at %s is denied %s on %s %r", *self[1:], operation.name, resource.name, name)


class Action(NamedTuple):
    """What an item asks for."""

    operation: AclOperation
    resource: AclResourceType
    name: str


class Authorization(Protocol):
    """Judges a request of one API."""

    def __call__(
        self, requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> Response | None:
        """The answer, where the handler has nothing left to do."""


def amend_response(ctx: RequestContext, change: Callable[[Response], Response]) -> None:
    """Change the handler's answer, after whatever else does."""
    before = ctx.amend
    ctx.amend = change if before is None else lambda response: change(before(response))


def with_items(request: Message, name: str, items: Sequence[Any]) -> Message:
    """The same request with another list in it."""
    copied = type(request)()
    vars(copied).update(vars(request))
    vars(copied)[name] = list(items)
    return copied


def partition_by(items: Iterable[Item], fits: Callable[[Item], bool]) -> tuple[list[Item], list[Item]]:
    """Those that fit, and the others."""
    fitting: list[Item] = []
    others: list[Item] = []
    for item in items:
        (fitting if fits(item) else others).append(item)
    return fitting, others


def topic_name(node: NodeContext, topic: Message) -> str | None:
    """Of a topic that a request names by name or by id; None for one that is not named, or by nobody's id."""
    by_id = vars(topic).get("topic_id", ZERO_UUID)
    if by_id == ZERO_UUID:
        name: str | None = vars(topic)["name"]
        return name
    known = node.image.topic(by_id)
    return None if known is None else known.name


def name_of(node: NodeContext, topic: str, topic_id: UUID) -> str | None:
    """The same, where name and id are at hand."""
    if not topic_id.int:
        return topic
    known = node.image.topic(topic_id)
    return None if known is None else known.name


@dataclass(frozen=True, slots=True)
class AuthorizeRequest:
    """Any of the operations is enough. `field` names the resource; the cluster has no field."""

    operations: tuple[AclOperation, ...]
    resource: AclResourceType = AclResourceType.CLUSTER
    field: str | None = None

    def __call__(
        self, requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> None:
        name = CLUSTER_NAME if self.field is None else getattr(request, self.field)
        if not any(requester.is_authorized(operation, self.resource, name) for operation in self.operations):
            requester.require_authorized(self.operations[0], self.resource, name)


ActionOf = Callable[[NodeContext, Message, Any], Action | None]
"""What an item of a request asks for; None: nothing that has to be judged."""


@dataclass(frozen=True, slots=True)
class AuthorizeItems:
    """`items` of the request are answered as `answers` of the response. `failed` makes the answer to a
    refused one; without it the API's own error response does, asked for the refused alone."""

    items: str
    answers: str
    ask: ActionOf
    failed: Callable[[Any, ErrorCode], dict[str, Any]] | None = None

    def __call__(
        self, requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> Response | None:
        allowed: list[Any] = []
        refused: dict[ErrorCode, list[Any]] = {}
        for item in getattr(request, self.items) or ():
            action = self.ask(node, request, item)
            if action is None or requester.is_authorized(*action):
                allowed.append(item)
            else:
                requester.log_denied(*action)
                refused.setdefault(AUTHORIZATION_ERRORS[action.resource], []).append(item)
        if not refused:
            return None
        whole: dict[str, Any] = {}
        failed: list[Any] = []
        for code, items in refused.items():
            if self.failed is not None:
                failed += [self.failed(item, code) for item in items]
                continue
            assert ctx.row.on_error is not None
            whole = dict(ctx.row.on_error(with_items(request, self.items, items), code, ""))
            failed += whole[self.answers]
        if not allowed:
            return {**whole, self.answers: failed}
        vars(request)[self.items] = allowed
        amend_response(
            ctx, lambda response: {**response, self.answers: [*response.get(self.answers, ()), *failed]}
        )
        return None


@dataclass(frozen=True, slots=True)
class FilterByAuthorized:
    """Of `answers`, those stay whose `name` the asker may see; all of them where `unless` of the cluster
    is allowed."""

    answers: str
    name: str
    operation: AclOperation
    resource: AclResourceType
    unless: AclOperation | None = None

    def __call__(
        self, requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> None:
        if self.unless is not None and requester.is_authorized(self.unless, AclResourceType.CLUSTER):
            return

        def seen(response: Response) -> Response:
            found = response.get(self.answers) or ()
            kept = [
                each
                for each in found
                if requester.is_authorized(self.operation, self.resource, each[self.name])
            ]
            return {**response, self.answers: kept}

        amend_response(ctx, seen)


def authorize_topics(
    operation: AclOperation, items: str = "topics", answers: str = "topics", **more: Any
) -> AuthorizeItems:
    """An operation on every topic that a request lists."""

    def ask(node: NodeContext, request: Message, topic: Message) -> Action | None:
        name = topic_name(node, topic)
        return None if name is None else Action(operation, AclResourceType.TOPIC, name)

    return AuthorizeItems(items, answers, ask, **more)
