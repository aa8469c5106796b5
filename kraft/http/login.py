"""Who asks over HTTP: the cluster's own users, by HTTP Basic, and what its authorizer lets them see.

Where no listener of the node asks for a login, everybody is User:ANONYMOUS, as on the listeners. Where one
does, a name and a password of PLAIN or SCRAM are asked for. Checking a SCRAM password takes milliseconds by
design, so it is done outside the loop, and the outcome is remembered, by a digest under a key of this
process, until the credential that it was checked against is changed or deleted.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kraft.api.context import NodeContext
from kraft.http.finish import to_its_end
from metadata_quorum.metadata.records import UserScramCredentialRecord
from metadata_quorum.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from metadata_quorum.security.scram import ScramMechanism, salted

if TYPE_CHECKING:
    from aiohttp import web

ANONYMOUS: Final = "User:ANONYMOUS"
REMEMBERED: Final = 256


class LoginRequired(Exception):
    """Nobody, or a wrong password."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks, and what they may see."""

    principal: str
    host: str
    node: NodeContext
    proved: UserScramCredentialRecord | None = None
    """What the password was checked against, if that can change."""

    @property
    def is_logged_in(self) -> bool:
        """Whether the password still counts: a stream of events outlives many changes."""
        return self.proved is None or _is_current(self.node, self.proved)

    def may(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        authorizer = self.node.authorizer
        return authorizer is None or authorizer.allows(
            self.principal, self.host, operation, resource_type, name
        )

    def may_see_cluster(self) -> bool:
        return self.may(AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME)

    def may_see_topic(self, name: str) -> bool:
        return self.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, name)

    def may_read_topic(self, name: str) -> bool:
        return self.may(AclOperation.READ, AclResourceType.TOPIC, name)

    def may_see_configs(self, topic: str) -> bool:
        return self.may(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, topic)

    def may_write_topic(self, name: str) -> bool:
        return self.may(AclOperation.WRITE, AclResourceType.TOPIC, name)

    def may_alter_cluster(self) -> bool:
        return self.may(AclOperation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME)

    def may_see_transactional_id(self, name: str) -> bool:
        return self.may(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, name)

    def may_see_quotas(self) -> bool:
        return self.may(AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER, CLUSTER_NAME)

    def may_see_group(self, name: str) -> bool:
        return self.may(AclOperation.DESCRIBE, AclResourceType.GROUP, name)


@dataclass(slots=True)
class Logins:
    """Logins to one node over HTTP."""

    node: NodeContext
    _key: bytes = field(init=False)
    _checking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Passwords are checked one at a time, so that guessing keeps only one thread busy."""
    _known: OrderedDict[bytes, UserScramCredentialRecord] = field(default_factory=OrderedDict)
    """Digests of names and passwords that were right, and what they were checked against."""

    def __post_init__(self) -> None:
        self._key = self.node.random.randbytes(32)

    async def visitor(self, request: web.BaseRequest) -> Visitor:
        """Raises `LoginRequired`."""
        host = request.remote or ""
        if not self.node.logins:
            return Visitor(ANONYMOUS, host, self.node)
        name, password = _credentials(request.headers.get("Authorization", ""))
        if self._is_plain_user(name, password):
            return Visitor(f"User:{name}", host, self.node)
        digest = self._digest(name, password)
        proved = self._known.get(digest)
        if proved is None or not _is_current(self.node, proved):
            proved = await self._proved(name, password)
            self._known[digest] = proved
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return Visitor(f"User:{name}", host, self.node, proved)

    def _digest(self, name: str, password: str) -> bytes:
        """Of both, each by itself: no other name and password may come to the same."""
        key = hmac.digest(self._key, name.encode(), "sha256")
        return hmac.digest(key, password.encode(), "sha256")

    def _is_plain_user(self, name: str, password: str) -> bool:
        known = [rules.plain_users.get(name) for rules in self.node.logins.values()]
        return bool(password) and any(
            hmac.compare_digest(each.encode(), password.encode()) for each in known if each is not None
        )

    async def _proved(self, name: str, password: str) -> UserScramCredentialRecord:
        """The credential that the password proves. Raises `LoginRequired`."""
        users = self.node.scram_users
        # An unknown name takes as long, so that guessing shows nothing about names.
        found = [(each, users.find(name, each) or users.decoy(name, each)) for each in ScramMechanism]

        def check() -> list[UserScramCredentialRecord]:
            proofs = [(_proves(password, mechanism, each), each) for mechanism, each in found]
            return [each for proves, each in proofs if proves]

        async with self._checking:
            proved = await to_its_end(self.node.computing(check))
        for each in proved:
            if _is_current(self.node, each):
                return each
        raise LoginRequired


def _is_current(node: NodeContext, credential: UserScramCredentialRecord) -> bool:
    return node.scram_users.find(credential.name, ScramMechanism(credential.mechanism)) == credential


def _proves(password: str, mechanism: ScramMechanism, credential: UserScramCredentialRecord) -> bool:
    salted_password = salted(mechanism, password, credential.salt, credential.iterations)
    client_key = hmac.digest(salted_password, b"Client Key", mechanism.hash_name)
    return hmac.compare_digest(hashlib.new(mechanism.hash_name, client_key).digest(), credential.stored_key)


def _credentials(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise LoginRequired
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:  # no base64, no ASCII even, or no UTF-8 in it
        raise LoginRequired from None
    if not colon or not name:
        raise LoginRequired
    return name, password
