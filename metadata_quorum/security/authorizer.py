"""Who may do what: the rules of Kafka's StandardAuthorizer over the cluster's access control entries.

    image.acls -> AclIndex.of -> Authorizer.allows(principal, host, operation, resource type, name)

In this order: a super user may do all; any entry that denies, denies; any that allows, allows; where entries
exist for the resource and none of them is about this, no; where there are none, what
`allow.everyone.if.no.acl.found` says.
Entries for a resource are those of its literal name, of every prefix of it, and of the name "*".

An immutable value: the next image makes another. Decisions are cached, since every request asks the same
again; nothing here knows of requests (kraft/api/authz/authorization.py does).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final

from metadata_quorum.metadata.records import AccessControlEntryRecord
from metadata_quorum.security.acls import (
    EVERYONE,
    OPERATIONS_OF,
    WILDCARD,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)

IMPLYING: Final[Mapping[int, frozenset[int]]] = {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}),
}
"""Operations whose ALLOW allows an operation too. DENY implies nothing."""

MAX_CACHED: Final = 65_536
"""Decisions in the cache. When it is full, it is emptied."""
MAX_CACHED_NAME_CHARS: Final = 256
"""Decisions on longer names are not cached, nor on those beyond ASCII, each character of which takes four
bytes: clients choose them, and only groups have such names."""

AuthorizationKey = tuple[str, str, int, int, str]
Acls = tuple[AccessControlEntryRecord, ...]


@dataclass(frozen=True, slots=True)
class AclIndex:
    """Entries by resource, so that a check reads few."""

    literal: Mapping[tuple[int, str], Acls] = field(default_factory=dict)
    prefixed: Mapping[tuple[int, str], Acls] = field(default_factory=dict)
    lengths: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The lengths of the prefixes that there are, by resource type."""

    @staticmethod
    def of(acls: Iterable[AccessControlEntryRecord]) -> AclIndex:
        found: dict[int, dict[tuple[int, str], list[AccessControlEntryRecord]]] = {
            PatternType.LITERAL: {},
            PatternType.PREFIXED: {},
        }
        lengths: dict[int, set[int]] = {}
        for acl in acls:
            found[acl.pattern_type].setdefault((acl.resource_type, acl.resource_name), []).append(acl)
            if acl.pattern_type == PatternType.PREFIXED:
                lengths.setdefault(acl.resource_type, set()).add(len(acl.resource_name))
        return AclIndex(
            {key: tuple(each) for key, each in found[PatternType.LITERAL].items()},
            {key: tuple(each) for key, each in found[PatternType.PREFIXED].items()},
            {kind: tuple(sorted(each)) for kind, each in lengths.items()},
        )

    def about(self, resource_type: int, name: str) -> Iterator[AccessControlEntryRecord]:
        """All entries for the resource of that name."""
        yield from self.literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self.literal.get((resource_type, WILDCARD), ())
        for length in self.lengths.get(resource_type, ()):
            if length > len(name):
                break
            yield from self.prefixed.get((resource_type, name[:length]), ())

    def of_type(self, resource_type: int) -> Iterator[AccessControlEntryRecord]:
        for entries in (self.literal, self.prefixed):
            for (kind, _), acls in entries.items():
                if kind == resource_type:
                    yield from acls


@dataclass(frozen=True, slots=True)
class Authorizer:
    """The authorizer of one image."""

    super_users: frozenset[str] = frozenset()
    allow_if_no_acl: bool = False
    index: AclIndex | None = None
    """None while the entries are not known yet: then only super users may do anything."""
    _cache: dict[AuthorizationKey, bool] = field(default_factory=dict, repr=False, compare=False)

    def with_acls(self, acls: Iterable[AccessControlEntryRecord]) -> Authorizer:
        """The authorizer after a change of the metadata."""
        return Authorizer(self.super_users, self.allow_if_no_acl, AclIndex.of(acls))

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        if len(name) > MAX_CACHED_NAME_CHARS or not name.isascii():
            return self._decide(principal, host, operation, resource_type, name)
        key = (principal, host, operation, resource_type, name)
        allowed = self._cache.get(key)
        if allowed is None:
            allowed = self._decide(principal, host, operation, resource_type, name)
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[key] = allowed
        return allowed

    def _decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        if principal in self.super_users:
            return True
        if self.index is None:
            return False
        allowed, any_acl = False, False
        for acl in self.index.about(resource_type, name):
            any_acl = True
            if not _concerns(acl, principal, host):
                continue
            if acl.permission_type == AclPermissionType.DENY:
                if acl.operation in (AclOperation.ALL, operation):
                    return False
            elif acl.operation == AclOperation.ALL or acl.operation in IMPLYING.get(operation, (operation,)):
                allowed = True
        return allowed if any_acl else self.allow_if_no_acl

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there is a resource of that type, existing or not, that the operation is allowed on
        (Kafka's authorizeByResourceType: here nothing implies anything)."""
        if self.allows(principal, host, operation, resource_type, "hardcode"):
            return True
        if self.index is None:
            return False
        allowed: list[AccessControlEntryRecord] = []
        denied: set[tuple[int, str]] = set()
        for acl in self.index.of_type(resource_type):
            if acl.operation not in (AclOperation.ALL, operation) or not _concerns(acl, principal, host):
                continue
            if acl.permission_type == AclPermissionType.DENY:
                denied.add((acl.pattern_type, acl.resource_name))
            else:
                allowed.append(acl)
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not _dominated(acl, denied) for acl in allowed)

    def operations(self, principal: str, host: str, resource_type: AclResourceType, name: str) -> int:
        """All that is allowed on a resource; bit n stands for operation n."""
        return sum(
            1 << operation
            for operation in OPERATIONS_OF[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )


def _concerns(acl: AccessControlEntryRecord, principal: str, host: str) -> bool:
    if acl.principal not in (principal, EVERYONE):
        return False
    return acl.host in (WILDCARD, host) or (":" in acl.host and _as_sockets_write(acl.host) == host)


@lru_cache(maxsize=1024)
def _as_sockets_write(host: str) -> str:
    """An address of IPv6 has many forms. Java writes it in full, and so do entries that Kafka has matched."""
    try:
        return str(IPv6Address(host))
    except ValueError:
        return host


def _dominated(acl: AccessControlEntryRecord, denied: set[tuple[int, str]]) -> bool:
    """Whether everything that the entry allows is denied by another."""
    name = acl.resource_name
    if acl.pattern_type == PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if (PatternType.LITERAL, name) in denied:
            return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
