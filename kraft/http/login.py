"""Who asks over HTTP: the cluster's own users, by HTTP Basic, and what its authorizer lets them see.

Where no listener of the node asks for a login, everybody is User:ANONYMOUS, as on the listeners. Where one
does, a name and a password of PLAIN or SCRAM are asked for. Checking a SCRAM password takes milliseconds by
design, so it is done outside the loop, and the outcome is remembered for a while, by a digest under a key of
this process.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kraft.api.context import NodeContext
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.metadata.records import UserScramCredentialRecord
from metadata_quorum.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from metadata_quorum.security.scram import ScramMechanism, salted

if TYPE_CHECKING:
    from aiohttp import web

ANONYMOUS: Final = "User:ANONYMOUS"
REMEMBERED: Final = 256
REMEMBER_S: Final = 60.0


class LoginRequired(Exception):
    """Nobody, or a wrong password."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks, and what they may see."""

    principal: str
    host: str
    node: NodeContext

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
    """Of one node."""

    node: NodeContext
    _key: bytes = field(init=False)
    _checking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Passwords are checked one after the other: who guesses keeps one thread busy, not all."""
    _known: OrderedDict[bytes, float] = field(default_factory=OrderedDict)
    """Digests of names and passwords that were right, and until when that counts."""

    def __post_init__(self) -> None:
        self._key = self.node.random.randbytes(32)

    async def visitor(self, request: web.BaseRequest) -> Visitor:
        """Raises `LoginRequired`."""
        host = request.remote or ""
        if not self.node.logins:
            return Visitor(ANONYMOUS, host, self.node)
        name, password = _credentials(request.headers.get("Authorization", ""))
        digest = hmac.digest(self._key, f"{name}\0{password}".encode(), "sha256")
        now = self.node.loop.time()
        until = self._known.get(digest)
        if until is None or until < now:
            if not await self._is_right(name, password):
                raise LoginRequired
            self._known[digest] = now + REMEMBER_S
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return Visitor(f"User:{name}", host, self.node)

    async def _is_right(self, name: str, password: str) -> bool:
        for rules in self.node.logins.values():
            plain = rules.plain_users.get(name)
            if plain is not None and password and hmac.compare_digest(plain.encode(), password.encode()):
                return True
        users = self.node.scram_users
        found = [(each, users.find(name, each) or users.decoy(name, each)) for each in ScramMechanism]
        known = [users.find(name, each) is not None for each in ScramMechanism]

        def check(_: MayBlock) -> bool:
            proved = [_proves(password, mechanism, credential) for mechanism, credential in found]
            return any(right and real for right, real in zip(proved, known, strict=True))

        async with self._checking:
            return await self.node.blocking(check)


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
    except (binascii.Error, UnicodeDecodeError):
        raise LoginRequired from None
    if not colon or not name:
        raise LoginRequired
    return name, password
