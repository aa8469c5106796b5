"""Who may do what: the rules of Kafka's StandardAuthorizer over the cluster's access control entries.

    image.acls -> AclIndex -> Authorizer.allows(principal, host, operation, resource type, name)

In this order: a super user may do all; any entry that denies, denies; any that allows, allows; where entries
exist for the resource and none of them is about this, no; where there are none, what
`allow.everyone.if.no.acl.found` says.
Entries for a resource are those of its literal name, of every prefix of it, and of the name "*".

An immutable value: a change makes another, and costs as much as what it concerns, for there may be fifty
thousand entries. Decisions are cached, since every request asks the same again; nothing here knows of
requests (kraft/api/authz/authorization.py does).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv6Address
from itertools import chain
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

AuthorizationKey = tuple[str, str, int, int, str | None]
"""None in the place of a name: some resource of the type."""
Acls = tuple[AccessControlEntryRecord, ...]
AclKey = tuple[int, str]
"""A resource type, and the name of a resource or a principal."""


@dataclass(frozen=True, slots=True)
class AclIndex:
    """Entries by resource, so that a check reads few."""

    literal: Mapping[AclKey, Acls] = field(default_factory=dict)
    prefixed: Mapping[AclKey, Acls] = field(default_factory=dict)
    of_principals: Mapping[AclKey, Acls] = field(default_factory=dict)
    lengths: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """How many prefixes there are of each length, the shortest first, by resource type."""

    @staticmethod
    def of(acls: Iterable[AccessControlEntryRecord]) -> AclIndex:
        return AclIndex().changed((), acls)

    def changed(
        self, gone: Iterable[AccessControlEntryRecord], come: Iterable[AccessControlEntryRecord]
    ) -> AclIndex:
        """Without the entries that are `gone`, and with those that have `come`."""
        before, after = _by_pattern(gone), _by_pattern(come)
        literal = _merged(
            self.literal,
            _by_key(before[PatternType.LITERAL], resource_of),
            _by_key(after[PatternType.LITERAL], resource_of),
        )
        prefixes_gone = _by_key(before[PatternType.PREFIXED], resource_of)
        prefixes_come = _by_key(after[PatternType.PREFIXED], resource_of)
        prefixed = _merged(self.prefixed, prefixes_gone, prefixes_come)
        principals = _merged(
            self.of_principals,
            _by_key(chain(*before.values()), principal_of),
            _by_key(chain(*after.values()), principal_of),
        )
        lengths = {kind: dict(each) for kind, each in self.lengths.items()}
        for key in prefixes_gone | prefixes_come:
            kind, length = key[0], len(key[1])
            counts = lengths.setdefault(kind, {})
            counts[length] = counts.get(length, 0) + (key in prefixed) - (key in self.prefixed)
        by_length = {
            kind: {length: counts[length] for length in sorted(counts) if counts[length]}
            for kind, counts in lengths.items()
        }
        return AclIndex(literal, prefixed, principals, by_length)

    def about(self, resource_type: int, name: str) -> Iterator[AccessControlEntryRecord]:
        """All entries for the resource of that name."""
        yield from self.literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self.literal.get((resource_type, WILDCARD), ())
        for length in self.lengths.get(resource_type, ()):
            if length > len(name):
                break
            yield from self.prefixed.get((resource_type, name[:length]), ())

    def of_type(self, resource_type: int, principal: str) -> Iterator[AccessControlEntryRecord]:
        """All entries for resources of the type that may concern the principal."""
        for each in dict.fromkeys((principal, EVERYONE)):
            yield from self.of_principals.get((resource_type, each), ())


def resource_of(acl: AccessControlEntryRecord) -> AclKey:
    return acl.resource_type, acl.resource_name


def principal_of(acl: AccessControlEntryRecord) -> AclKey:
    return acl.resource_type, acl.principal


def _by_pattern(acls: Iterable[AccessControlEntryRecord]) -> Mapping[int, list[AccessControlEntryRecord]]:
    found: dict[int, list[AccessControlEntryRecord]] = {PatternType.LITERAL: [], PatternType.PREFIXED: []}
    for acl in acls:
        found[acl.pattern_type].append(acl)
    return found


def _by_key(
    acls: Iterable[AccessControlEntryRecord], key_of: Callable[[AccessControlEntryRecord], AclKey]
) -> dict[AclKey, list[AccessControlEntryRecord]]:
    found: dict[AclKey, list[AccessControlEntryRecord]] = {}
    for acl in acls:
        found.setdefault(key_of(acl), []).append(acl)
    return found


def _merged(
    base: Mapping[AclKey, Acls],
    gone: Mapping[AclKey, Sequence[AccessControlEntryRecord]],
    come: Mapping[AclKey, Sequence[AccessControlEntryRecord]],
) -> Mapping[AclKey, Acls]:
    """Only what the changed keys have is looked at; the copy of the rest takes a millisecond."""
    if not gone and not come:
        return base
    merged = dict(base)
    for key, acls in gone.items():
        ids = {acl.id.int for acl in acls}
        kept = tuple(acl for acl in merged.pop(key, ()) if acl.id.int not in ids)
        if kept:
            merged[key] = kept
    for key, acls in come.items():
        merged[key] = (*merged.get(key, ()), *acls)
    return merged


@dataclass(frozen=True, slots=True)
class Authorizer:
    """The authorizer of one image."""

    super_users: frozenset[str] = frozenset()
    allow_if_no_acl: bool = False
    index: AclIndex | None = None
    """None while the entries are not known yet: then only super users may do anything."""
    _cache: dict[AuthorizationKey, bool] = field(default_factory=dict, repr=False, compare=False)

    def with_acls(self, acls: Iterable[AccessControlEntryRecord]) -> Authorizer:
        """The authorizer with these entries instead of those that it has."""
        return self.with_index(AclIndex.of(acls))

    def with_index(self, index: AclIndex) -> Authorizer:
        """The same with the index of these entries, where there is one already."""
        return Authorizer(self.super_users, self.allow_if_no_acl, index)

    def changed(
        self, gone: Iterable[AccessControlEntryRecord], come: Iterable[AccessControlEntryRecord]
    ) -> Authorizer:
        """The authorizer after a change of the metadata."""
        return self.with_index((self.index or AclIndex()).changed(gone, come))

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        if len(name) > MAX_CACHED_NAME_CHARS or not name.isascii():
            return self._decide(principal, host, operation, resource_type, name)
        key = (principal, host, operation, resource_type, name)
        allowed = self._cache.get(key)
        if allowed is None:
            allowed = self._decide(principal, host, operation, resource_type, name)
            self._remember(key, allowed)
        return allowed

    def _remember(self, key: AuthorizationKey, allowed: bool) -> None:
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        self._cache[key] = allowed

    def _decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        if principal in self.super_users:
            return True
        if self.index is None:
            return False
        allowed, any_acl = False, False
        for acl in self.index.about(resource_type, name):
            any_acl = True
            if not concerns(acl, principal, host):
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
        key = (principal, host, operation, resource_type, None)
        known = self._cache.get(key)
        if known is None:
            known = self._decide_any(principal, host, operation, resource_type)
            self._remember(key, known)
        return known

    def _decide_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        if self.index is None:
            return False
        allowed: list[AccessControlEntryRecord] = []
        denied: set[tuple[int, str]] = set()
        for acl in self.index.of_type(resource_type, principal):
            if acl.operation not in (AclOperation.ALL, operation) or not concerns(acl, principal, host):
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


def concerns(acl: AccessControlEntryRecord, principal: str, host: str) -> bool:
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
