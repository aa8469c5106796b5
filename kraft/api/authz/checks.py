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

from kraft.api.context import NodeContext, RequestContext
from kraft.api.row import Response
from kraft.monitoring.rate_limited_log import paced
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID
from metadata_quorum.security.acls import CLUSTER_NAME, AclResource, Operation
from metadata_quorum.security.authorizer import Authorizer

log = paced(logging.getLogger("kraft.authorizer"))

Item = TypeVar("Item")

REFUSALS: Final = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Asker(NamedTuple):
    """Who asks, and the one who knows what he may."""

    authorizer: Authorizer
    principal: str
    host: str

    @classmethod
    def of(cls, authorizer: Authorizer, ctx: RequestContext) -> Asker:
        return cls(authorizer, ctx.principal, ctx.client_host)

    def may(self, operation: Operation, resource: AclResource, name: str = CLUSTER_NAME) -> bool:
        return self.authorizer.allows(self.principal, self.host, operation, resource, name)

    def must(self, operation: Operation, resource: AclResource, name: str = CLUSTER_NAME) -> None:
        """Raises `BrokerError`."""
        if not self.may(operation, resource, name):
            self.note_refusal(operation, resource, name)
            raise BrokerError(REFUSALS[resource])

    def operations(self, resource: AclResource, name: str = CLUSTER_NAME) -> int:
        return self.authorizer.operations(self.principal, self.host, resource, name)

    def note_refusal(self, operation: Operation, resource: AclResource, name: str) -> None:
        log.info("%r at %s is denied %s on %s %r", *self[1:], operation.name, resource.name, name)


class Question(NamedTuple):
    """What an item asks for."""

    operation: Operation
    resource: AclResource
    name: str


class Judge(Protocol):
    """Judges a request of one API."""

    def __call__(
        self, asker: Asker, node: NodeContext, ctx: RequestContext, request: Message
    ) -> Response | None:
        """The answer, where the handler has nothing left to do."""


def amend(ctx: RequestContext, change: Callable[[Response], Response]) -> None:
    """Change the handler's answer, after whatever else does."""
    before = ctx.amend
    ctx.amend = change if before is None else lambda response: change(before(response))


def with_items(request: Message, name: str, items: Sequence[Any]) -> Message:
    """The same request with another list in it."""
    copied = type(request)()
    vars(copied).update(vars(request))
    vars(copied)[name] = list(items)
    return copied


def parted(items: Iterable[Item], fits: Callable[[Item], bool]) -> tuple[list[Item], list[Item]]:
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
class Whole:
    """Any of the operations is enough. `field` names the resource; the cluster has no field."""

    operations: tuple[Operation, ...]
    resource: AclResource = AclResource.CLUSTER
    field: str | None = None

    def __call__(self, asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> None:
        name = CLUSTER_NAME if self.field is None else getattr(request, self.field)
        if not any(asker.may(operation, self.resource, name) for operation in self.operations):
            asker.must(self.operations[0], self.resource, name)


Ask = Callable[[NodeContext, Message, Any], Question | None]
"""What an item of a request asks for; None: nothing that has to be judged."""


@dataclass(frozen=True, slots=True)
class Each:
    """`items` of the request are answered as `answers` of the response. `failed` makes the answer to a
    refused one; without it the API's own error response does, asked for the refused alone."""

    items: str
    answers: str
    ask: Ask
    failed: Callable[[Any, ErrorCode], dict[str, Any]] | None = None

    def __call__(
        self, asker: Asker, node: NodeContext, ctx: RequestContext, request: Message
    ) -> Response | None:
        allowed: list[Any] = []
        refused: dict[ErrorCode, list[Any]] = {}
        for item in getattr(request, self.items) or ():
            question = self.ask(node, request, item)
            if question is None or asker.may(*question):
                allowed.append(item)
            else:
                asker.note_refusal(*question)
                refused.setdefault(REFUSALS[question.resource], []).append(item)
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
        amend(ctx, lambda response: {**response, self.answers: [*response.get(self.answers, ()), *failed]})
        return None


@dataclass(frozen=True, slots=True)
class Seen:
    """Of `answers`, those stay whose `name` the asker may see; all of them where `unless` of the cluster
    is allowed."""

    answers: str
    name: str
    operation: Operation
    resource: AclResource
    unless: Operation | None = None

    def __call__(self, asker: Asker, node: NodeContext, ctx: RequestContext, request: Message) -> None:
        if self.unless is not None and asker.may(self.unless, AclResource.CLUSTER):
            return

        def seen(response: Response) -> Response:
            found = response.get(self.answers) or ()
            kept = [each for each in found if asker.may(self.operation, self.resource, each[self.name])]
            return {**response, self.answers: kept}

        amend(ctx, seen)


def each_topic(operation: Operation, items: str = "topics", answers: str = "topics", **more: Any) -> Each:
    """An operation on every topic that a request lists."""

    def ask(node: NodeContext, request: Message, topic: Message) -> Question | None:
        name = topic_name(node, topic)
        return None if name is None else Question(operation, AclResource.TOPIC, name)

    return Each(items, answers, ask, **more)
