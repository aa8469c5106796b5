"""The authorizer against a naive model of StandardAuthorizer's rules, and a table of its cases."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_quorum.metadata.records import AccessControlEntryRecord
from metadata_quorum.protocol.commands import AclFilter
from metadata_quorum.security.acls import (
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    matches,
)
from metadata_quorum.security.authorizer import AclIndex, Authorizer

pytestmark = pytest.mark.row("U4")

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL


def entry(
    name: str,
    operation: int,
    permission: int = ALLOW,
    *,
    principal: str = "User:anna",
    host: str = "*",
    pattern: int = LITERAL,
    resource: int = TOPIC,
    number: int = 0,
) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=UUID(int=number),
        resource_type=resource,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def anna_may(*acls: AccessControlEntryRecord, operation: AclOperation = READ, name: str = "flights") -> bool:
    return Authorizer().with_acls(acls).allows("User:anna", "10.0.0.1", operation, TOPIC, name)


@pytest.mark.parametrize(
    ("acls", "operation", "allowed"),
    [
        ([], READ, False),
        ([entry("flights", READ)], READ, True),
        ([entry("flights", READ)], WRITE, False),
        ([entry("flights", ALL)], WRITE, True),
        ([entry("*", READ)], READ, True),
        ([entry("*", READ, pattern=PREFIXED)], READ, False),  # only names that begin with an asterisk
        ([entry("fli", READ, pattern=PREFIXED)], READ, True),
        ([entry("fli", READ)], READ, False),
        ([entry("flightss", READ, pattern=PREFIXED)], READ, False),
        ([entry("flights", READ, resource=GROUP)], READ, False),
        # who, and from where
        ([entry("flights", READ, principal="User:bert")], READ, False),
        ([entry("flights", READ, principal="User:*")], READ, True),
        ([entry("flights", READ, principal="Group:*")], READ, False),
        ([entry("flights", READ, host="10.0.0.1")], READ, True),
        ([entry("flights", READ, host="10.0.0.2")], READ, False),
        # what is implied: only by ALLOW
        ([entry("flights", READ)], DESCRIBE, True),
        ([entry("flights", WRITE)], DESCRIBE, True),
        ([entry("flights", AclOperation.DELETE)], DESCRIBE, True),
        ([entry("flights", AclOperation.ALTER)], DESCRIBE, True),
        ([entry("flights", READ, DENY), entry("flights", WRITE)], DESCRIBE, True),
        ([entry("flights", AclOperation.CREATE)], DESCRIBE, False),
        ([entry("flights", AclOperation.ALTER_CONFIGS)], AclOperation.DESCRIBE_CONFIGS, True),
        ([entry("flights", AclOperation.ALTER_CONFIGS)], DESCRIBE, False),
        ([entry("flights", DESCRIBE)], READ, False),
        ([entry("flights", ALL), entry("flights", READ, DENY)], DESCRIBE, True),
        # who denies wins, whatever allows
        ([entry("flights", READ), entry("*", READ, DENY)], READ, False),
        ([entry("flights", READ), entry("f", ALL, DENY, pattern=PREFIXED)], READ, False),
        ([entry("flights", READ), entry("flights", READ, DENY, host="10.0.0.2")], READ, True),
        ([entry("flights", READ), entry("flights", READ, DENY, principal="User:*")], READ, False),
    ],
)  # fmt: skip
def test_cases(acls: list[AccessControlEntryRecord], operation: AclOperation, allowed: bool) -> None:
    assert anna_may(*acls, operation=operation) is allowed
    assert anna_may(*reversed(acls), operation=operation) is allowed


def test_super_users_and_what_nothing_is_said_about() -> None:
    strict = Authorizer(frozenset({"User:root"})).with_acls([entry("flights", ALL, DENY, principal="User:*")])
    assert strict.allows("User:root", "h", READ, TOPIC, "flights")
    assert not strict.allows("User:anna", "h", READ, TOPIC, "else")
    easy = Authorizer(allow_if_no_acl=True).with_acls([entry("flights", READ, principal="User:bert")])
    assert easy.allows("User:anna", "h", READ, TOPIC, "else")
    assert not easy.allows("User:anna", "h", READ, TOPIC, "flights")  # of this one something is said


def test_before_the_entries_are_known() -> None:
    early = Authorizer(frozenset({"User:root"}), allow_if_no_acl=True)
    assert early.allows("User:root", "h", READ, TOPIC, "flights")
    assert not early.allows("User:anna", "h", READ, TOPIC, "flights")


def test_names_of_any_length_are_decided_on_and_short_ones_are_cached() -> None:
    strict = Authorizer().with_acls([entry("a", READ, pattern=PatternType.PREFIXED)])
    tracemalloc.start()
    try:
        for number in range(300):
            assert strict.allows("User:anna", "h", READ, TOPIC, f"{'a' * 30_000}{number}")
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


# ---- against a naive model -----------------------------------------------------------------------------

names = st.text("ab*", min_size=1, max_size=3)
principals = st.sampled_from(["User:anna", "User:bert", "User:*"])
hosts = st.sampled_from(["*", "h1", "h2"])
operations = st.sampled_from(
    [ALL, READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, DESCRIBE, AclOperation.DESCRIBE_CONFIGS,
     AclOperation.ALTER_CONFIGS, AclOperation.CREATE]
)  # fmt: skip
entries = st.builds(
    entry,
    names,
    operations,
    st.sampled_from([ALLOW, DENY]),
    principal=principals,
    host=hosts,
    pattern=st.sampled_from([LITERAL, PREFIXED]),
    resource=st.sampled_from([TOPIC, GROUP]),
)


def applies(acl: AccessControlEntryRecord, resource: int, name: str) -> bool:
    if acl.resource_type != resource:
        return False
    if acl.pattern_type == PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def naive(
    acls: list[AccessControlEntryRecord], principal: str, host: str, operation: int, resource: int, name: str
) -> bool | None:
    """None: nothing is said about the resource."""
    about = [acl for acl in acls if applies(acl, resource, name)]
    if not about:
        return None
    mine = [acl for acl in about if acl.principal in (principal, "User:*") and acl.host in (host, "*")]
    if any(acl.permission_type == DENY and acl.operation in (operation, ALL) for acl in mine):
        return False
    enough = {operation, ALL}
    if operation == DESCRIBE:
        enough |= {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if operation == AclOperation.DESCRIBE_CONFIGS:
        enough |= {AclOperation.ALTER_CONFIGS}
    return any(acl.permission_type == ALLOW and acl.operation in enough for acl in mine)


@given(st.lists(entries, max_size=8), principals, hosts, operations, names, st.booleans())
def test_the_index_decides_as_a_walk_over_all_entries_does(
    acls: list[AccessControlEntryRecord], principal: str, host: str, operation: int, name: str, easy: bool
) -> None:
    judged = Authorizer(allow_if_no_acl=easy).with_acls(acls)
    expected = naive(acls, principal, host, operation, TOPIC, name)
    for _ in range(2):  # the second answer is a cached one
        assert judged.allows(principal, host, operation, TOPIC, name) is (
            easy if expected is None else expected
        )


@given(st.lists(entries, max_size=6), hosts, st.sampled_from([READ, WRITE]))
def test_some_resource_of_a_type(acls: list[AccessControlEntryRecord], host: str, operation: int) -> None:
    """True only where there is such a name; and where there is one among few, it is found."""
    judged = Authorizer().with_acls(acls)
    alphabet = ["a", "b", "*"]
    some = [*alphabet, *(x + y for x in alphabet for y in alphabet), *(acl.resource_name for acl in acls)]
    candidates = [*some, *(name + "z" for name in some), "z"]
    implied = any(judged.allows("User:anna", host, operation, TOPIC, name) for name in candidates)
    assert judged.allows_any("User:anna", host, operation, TOPIC) is implied


def _as_sets(index: AclIndex) -> object:
    by_key = (index.literal, index.prefixed, index.of_principals)
    entries_of = [{key: {acl.id for acl in acls} for key, acls in each.items()} for each in by_key]
    return entries_of, {kind: list(counts.items()) for kind, counts in index.lengths.items() if counts}


@given(st.lists(st.tuples(entries, st.integers(0, 5)), max_size=20), st.integers(1, 4))
def test_an_index_that_was_changed_is_as_one_made_anew(
    changes: list[tuple[AccessControlEntryRecord, int]], at_once: int
) -> None:
    """Of each change, the number says which of the entries that there are goes; 5: none."""
    index, there = AclIndex(), list[AccessControlEntryRecord]()
    for first in range(0, len(changes), at_once):
        gone, come = [], []
        for number, (acl, which) in enumerate(changes[first : first + at_once], first):
            if which < len(there):
                gone.append(there.pop(which))
            come.append(replace(acl, id=UUID(int=number)))
        before = _as_sets(index)
        after = index.changed(gone, come)
        assert _as_sets(index) == before, "others read it"
        there += come
        index = after
        assert _as_sets(index) == _as_sets(AclIndex.of(there))


# ---- filters -------------------------------------------------------------------------------------------


def wanted(name: str | None, pattern: PatternType) -> AclFilter:
    return AclFilter(
        resource_type=AclResourceType.ANY,
        resource_name=name,
        pattern_type=pattern,
        principal=None,
        host=None,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )


@given(entries, names)
def test_match_finds_exactly_what_applies(acl: AccessControlEntryRecord, name: str) -> None:
    applied = applies(acl, acl.resource_type, name)
    assert matches(wanted(name, PatternType.MATCH), acl) is applied
    assert matches(wanted(name, PatternType.ANY), acl) is (acl.resource_name == name)
    exact = acl.pattern_type == LITERAL and acl.resource_name == name
    assert matches(wanted(name, PatternType.LITERAL), acl) is exact
    assert matches(wanted(None, PatternType.PREFIXED), acl) is (acl.pattern_type == PREFIXED)
