"""What an API requires before its handler runs, and what authorization leaves of a request.

    dispatch.py -> authorize -> each Authorization of the row -> AuthorizedRequest -> handler
                                                             `-> Response, nothing left for the handler

Used only where `authorizer.class.name` is set. A forwarded request is authorized by the active controller,
for the principal and the host that its envelope names. Operations, resources and errors are those of Apache
Kafka 4.1. A request is never changed: what is left of it is another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.response import Response
from kraft.monitoring.rate_limited_log import rate_limited
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from metadata_quorum.security.authorizer import Authorizer

log = rate_limited(logging.getLogger("kraft.authorizer"))

AUTHORIZATION_ERRORS: Final = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

ResponseCompletion = Callable[[Response], Response]


class RequestPrincipal(NamedTuple):
    """Who sent a request, and the authorizer that knows what this principal may do."""

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
        """All operations that are allowed: a bit for each `AclOperation`."""
        return self.authorizer.operations(self.principal, self.host, resource, name)

    def log_denied(self, operation: AclOperation, resource: AclResourceType, name: str) -> None:
        log.info("%r at %s is denied %s on %s %r", *self[1:], operation.name, resource.name, name)


class Action(NamedTuple):
    """What a principal must be allowed for one item of a request."""

    operation: AclOperation
    resource: AclResourceType
    name: str


class AuthorizedRequest(NamedTuple):
    """What is left of a request for its handler, and what completes the handler's response."""

    request: Message
    complete: ResponseCompletion | None = None
    """Adds the refused items to the response, or takes out what the principal may not see."""

    def then(self, later: AuthorizedRequest) -> AuthorizedRequest:
        """Combine this with what a later check has left of it."""
        if self.complete is None:
            return later
        if later.complete is None:
            return AuthorizedRequest(later.request, self.complete)
        first, second = self.complete, later.complete
        return AuthorizedRequest(later.request, lambda response: second(first(response)))


class Authorization(Protocol):
    """One thing that an API requires."""

    @property
    def required(self) -> str:
        """Operation and resource, for docs/APIS.md."""

    def __call__(
        self, requester: RequestPrincipal, node: NodeContext, ctx: RequestContext, request: Message
    ) -> AuthorizedRequest | Response:
        """What is left of the request; a response if nothing is. Raises `BrokerError` if the request is
        refused as a whole."""


def authorize(
    authorizations: Iterable[Authorization],
    authorizer: Authorizer,
    node: NodeContext,
    ctx: RequestContext,
    request: Message,
) -> AuthorizedRequest | Response:
    """What all of them leave of a request; a response if that is nothing. Raises `BrokerError`."""
    requester = RequestPrincipal.of(authorizer, ctx)
    authorized = AuthorizedRequest(request)
    for authorization in authorizations:
        result = authorization(requester, node, ctx, authorized.request)
        if not isinstance(result, AuthorizedRequest):
            return result if authorized.complete is None else authorized.complete(result)
        authorized = authorized.then(result)
    return authorized
