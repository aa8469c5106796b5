"""The kinds of authorization, as values for the rows of the API table.

AuthorizeRequest    the request as a whole is about one resource: refused, it is answered with the API's
                    own error
AuthorizeItems      each item of a list is authorized by itself: the refused ones are answered with the
                    error, and the handler gets the others
FilterByAuthorized  what the principal may not see is left out of the response
@requires           a rule of an API's own (topic_checks.py, group_checks.py)
InHandler           Produce, Fetch and Raft read their own bytes, and ask by themselves (raw_requests.py)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from uuid import UUID

from kraft.api.authz.authorization import (
    AUTHORIZATION_ERRORS,
    Action,
    AuthorizedRequest,
    RequestPrincipal,
)
from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.response import OnError, Response, ResponseStruct
from kraft.wire.bridge import Message, replaced
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.security.acls import CLUSTER_NAME, AclOperation, AclResourceType

Item = TypeVar("Item")
"""An item of a list in a request: a `Message`, or a name."""

Check = Callable[[RequestPrincipal, NodeContext, RequestContext, Message], AuthorizedRequest | Response]


@dataclass(frozen=True, slots=True)
class AuthorizeRequest:
    """Any of the operations is enough. `field` of the request names the resource; the cluster has none."""

    operations: tuple[AclOperation, ...]
    resource: AclResourceType = AclResourceType.CLUSTER
    field: str | None = None

    @property
    def required(self) -> str:
        operations = " or ".join(camel_case(operation.name) for operation in self.operations)
        return f"{operations} on {camel_case(self.resource.name)}"

    def __call__(
        self, requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> AuthorizedRequest:
        name = CLUSTER_NAME if self.field is None else getattr(request, self.field)
        if not any(requester.is_authorized(operation, self.resource, name) for operation in self.operations):
            requester.require_authorized(self.operations[0], self.resource, name)
        return AuthorizedRequest(request)


ActionOf = Callable[[NodeContext, Message, Item], Action | None]
"""What an item of a request requires; None where there is nothing to refuse."""


@dataclass(frozen=True, slots=True)
class AuthorizeItems(Generic[Item]):
    """`items` of the request are answered as `answers` of the response."""

    required: str
    items: str
    answers: str
    action_of: ActionOf[Item]
    on_error: OnError
    """Gives the answers to refused items, of a request that has no others."""

    def __call__(
        self, requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> AuthorizedRequest | Response:
        allowed: list[Item] = []
        refused: dict[ErrorCode, list[Item]] = {}
        for item in getattr(request, self.items) or ():
            action = self.action_of(node, request, item)
            if action is None or requester.is_authorized(*action):
                allowed.append(item)
            else:
                requester.log_denied(*action)
                refused.setdefault(AUTHORIZATION_ERRORS[action.resource], []).append(item)
        if not refused:
            return AuthorizedRequest(request)
        failed: list[ResponseStruct] = []
        for code, items in refused.items():
            failed += self.on_error(replaced(request, **{self.items: items}), code, "")[self.answers]
        if not allowed:  # the request as a whole has no error all the same
            return {self.answers: failed}
        return AuthorizedRequest(
            replaced(request, **{self.items: allowed}),
            lambda response: {**response, self.answers: [*response.get(self.answers, ()), *failed]},
        )


@dataclass(frozen=True, slots=True)
class FilterByAuthorized:
    """Of `answers`, those stay whose resource the principal may see; all of them where `unless` of the
    cluster is allowed."""

    answers: str
    name: str
    """The field of an answer that names its resource."""
    operation: AclOperation
    resource: AclResourceType
    unless: AclOperation | None = None

    @property
    def required(self) -> str:
        each = f"{camel_case(self.operation.name)} on each {camel_case(self.resource.name)} listed"
        return each if self.unless is None else f"{each}, or {camel_case(self.unless.name)} on Cluster"

    def __call__(
        self, requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> AuthorizedRequest:
        if self.unless is not None and requester.is_authorized(self.unless, AclResourceType.CLUSTER):
            return AuthorizedRequest(request)

        def filtered(response: Response) -> Response:
            found = response.get(self.answers) or ()
            kept = [
                each
                for each in found
                if requester.is_authorized(self.operation, self.resource, each[self.name])
            ]
            return {**response, self.answers: kept}

        return AuthorizedRequest(request, filtered)


@dataclass(frozen=True, slots=True)
class OwnRule:
    """A rule of one API's own."""

    required: str
    check: Check

    def __call__(
        self, requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> AuthorizedRequest | Response:
        return self.check(requester, node, ctx, request)


def requires(required: str) -> Callable[[Check], OwnRule]:
    """Make a rule of the function below it."""
    return lambda check: OwnRule(required, check)


@dataclass(frozen=True, slots=True)
class InHandler:
    """Nothing is checked before the handler, which asks by itself."""

    required: str

    def __call__(
        self, requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> AuthorizedRequest:
        return AuthorizedRequest(request)


# ---- what many APIs ask for --------------------------------------------------------------------------

ALTER_CLUSTER: Final = AuthorizeRequest((AclOperation.ALTER,))
ALTER_CONFIGS_OF_CLUSTER: Final = AuthorizeRequest((AclOperation.ALTER_CONFIGS,))
CLUSTER_ACTION: Final = AuthorizeRequest((AclOperation.CLUSTER_ACTION,))
DESCRIBE_CLUSTER: Final = AuthorizeRequest((AclOperation.DESCRIBE,))
DESCRIBE_CONFIGS_OF_CLUSTER: Final = AuthorizeRequest((AclOperation.DESCRIBE_CONFIGS,))
READ_GROUP: Final = AuthorizeRequest((AclOperation.READ,), AclResourceType.GROUP, "group_id")
WRITE_TRANSACTIONAL_ID: Final = AuthorizeRequest(
    (AclOperation.WRITE,), AclResourceType.TRANSACTIONAL_ID, "transactional_id"
)


def authorize_topics(
    operation: AclOperation, on_error: OnError, items: str = "topics", answers: str = "topics"
) -> AuthorizeItems[Message]:
    """An operation on every topic that a request lists by its name."""

    def action_of(node: NodeContext, request: Message, topic: Message) -> Action:
        return Action(operation, AclResourceType.TOPIC, topic.name)

    return AuthorizeItems(f"{camel_case(operation.name)} on each Topic", items, answers, action_of, on_error)


def authorize_topics_or_ids(
    operation: AclOperation, on_error: OnError, items: str = "topics", answers: str = "topics"
) -> AuthorizeItems[Message]:
    """The same, where newer versions name topics by their ids."""

    def action_of(node: NodeContext, request: Message, topic: Message) -> Action | None:
        name = topic_name(node, topic.name, topic.topic_id)
        return None if name is None else Action(operation, AclResourceType.TOPIC, name)

    return AuthorizeItems(f"{camel_case(operation.name)} on each Topic", items, answers, action_of, on_error)


def authorize_names(
    operation: AclOperation, resource: AclResourceType, items: str, answers: str, on_error: OnError
) -> AuthorizeItems[str]:
    """An operation on every resource whose name is in a list of names."""

    def action_of(node: NodeContext, request: Message, name: str) -> Action:
        return Action(operation, resource, name)

    required = f"{camel_case(operation.name)} on each {camel_case(resource.name)}"
    return AuthorizeItems(required, items, answers, action_of, on_error)


def partition_by(items: Iterable[Item], fits: Callable[[Item], bool]) -> tuple[list[Item], list[Item]]:
    """The items that fit, and the others."""
    fitting: list[Item] = []
    others: list[Item] = []
    for item in items:
        (fitting if fits(item) else others).append(item)
    return fitting, others


def topic_name(node: NodeContext, topic: str | None, topic_id: UUID) -> str | None:
    """The name of a topic that is given by name or by id; None if no topic has the id."""
    if not topic_id.int:
        return topic
    known = node.image.topic(topic_id)
    return None if known is None else known.name


def camel_case(name: str) -> str:
    """A name as Kafka's documentation writes it: `ALTER_CONFIGS` is AlterConfigs."""
    return "".join(word.capitalize() for word in name.split("_"))
