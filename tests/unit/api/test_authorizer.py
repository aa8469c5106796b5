"""From the keys of server.properties to an authorizer, and from image to image."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraft.api.authz.authorizer import AuthorizerUpdates, authorizer_of
from kraft.config.node_config import Config
from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import (
    AccessControlEntryRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
    TopicRecord,
)
from metadata_quorum.security import authorizer
from metadata_quorum.security.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from metadata_quorum.security.authorizer import MAX_CACHED_NAME_CHARS, AclIndex, Authorizer

pytestmark = pytest.mark.row("U4")

ANNAS = AccessControlEntryRecord(
    id=UUID(int=1),
    resource_type=AclResourceType.TOPIC,
    resource_name="t",
    pattern_type=PatternType.LITERAL,
    principal="User:anna",
    host="*",
    operation=AclOperation.READ,
    permission_type=AclPermissionType.ALLOW,
)


def config(**more: str) -> Config:
    return Config.from_properties(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@a:2",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://a:1,CONTROLLER://a:2",
            "log.dirs": "d",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )


def test_none_is_the_default() -> None:
    assert authorizer_of(config(super_users="User:a")) is None


def test_super_users_are_apart_by_semicolons() -> None:
    made = authorizer_of(config(authorizer_class_name="standard", super_users="User:a; User:CN=b,O=c ;"))
    assert made is not None
    assert made.super_users == {"User:a", "User:CN=b,O=c"}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, "super.users=: an authorizer needs at least one"),
        ({"super_users": "anna"}, "super.users=anna: anna is no principal"),
        ({"authorizer_class_name": "my.Own"}, "authorizer.class.name=my.Own"),
    ],
)
def test_what_stops_the_start(more: dict[str, str], reason: str) -> None:
    with pytest.raises(FatalError) as stopped:
        authorizer_of(config(**{"authorizer_class_name": "standard", **more}))
    assert stopped.value.reason.startswith(reason)


def test_rights_follow_the_metadata() -> None:
    node: Any = SimpleNamespace(
        authorizer=authorizer_of(config(authorizer_class_name="standard", super_users="User:node"))
    )
    take, image = AuthorizerUpdates(node).take, EMPTY_IMAGE

    def after(*records: MetadataRecord) -> MetadataImage:
        delta = MetadataDelta(image)
        for record in records:
            delta.replay(record)
        made = delta.apply()
        take(delta, made)
        return made

    def anna_may() -> bool:
        allowed: bool = node.authorizer.allows(
            "User:anna", "h", AclOperation.READ, AclResourceType.TOPIC, "t"
        )
        return allowed

    assert not anna_may()
    image = after(FeatureLevelRecord(name="metadata.version", feature_level=27), ANNAS)
    assert anna_may()
    before = node.authorizer
    image = after(TopicRecord(name="t", topic_id=UUID(int=7)))
    assert node.authorizer is before  # what it remembers is still true
    image = after(RemoveAccessControlEntryRecord(id=ANNAS.id))
    assert not anna_may()


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The resources of the entries that are looked at, in their order."""
    names: list[str] = []
    resource = authorizer.resource_of

    def noted(acl: AccessControlEntryRecord) -> tuple[int, str]:
        names.append(acl.resource_name)
        return resource(acl)

    monkeypatch.setattr(authorizer, "resource_of", noted)
    return names


def test_a_change_of_one_entry_looks_at_no_others(looked: list[str]) -> None:
    """With fifty thousand of them, making all anew took the loop 0.1 s."""
    node: Any = SimpleNamespace(authorizer=Authorizer())
    take = AuthorizerUpdates(node).take
    many = [replace(ANNAS, id=UUID(int=n), resource_name=f"t{n}") for n in range(100, 200)]
    first = MetadataDelta(EMPTY_IMAGE)
    for record in (FeatureLevelRecord(name="metadata.version", feature_level=27), *many):
        first.replay(record)
    image = first.apply()
    take(first, image)
    assert len(looked) == len(many)
    looked.clear()

    def changed(before: MetadataImage, record: MetadataRecord, *, heard_of: bool = True) -> MetadataImage:
        delta = MetadataDelta(before)
        delta.replay(record)
        after = delta.apply()
        if heard_of:
            take(delta, after)
        return after

    def anna_may(topic: str) -> bool:
        right = AclOperation.READ, AclResourceType.TOPIC, topic
        allowed: bool = node.authorizer.allows("User:anna", "h", *right)
        return allowed

    image = changed(image, ANNAS)
    image = changed(image, RemoveAccessControlEntryRecord(id=many[7].id))
    assert looked == [ANNAS.resource_name, "t107"]
    assert (anna_may("t"), anna_may("t106"), anna_may("t107")) == (True, True, False)
    image = changed(image, RemoveAccessControlEntryRecord(id=many[8].id), heard_of=False)
    changed(image, RemoveAccessControlEntryRecord(id=many[9].id))
    assert (anna_may("t106"), anna_may("t108"), anna_may("t109")) == (True, False, False)


def test_the_entries_of_a_snapshot_are_indexed_before_it_is_taken(looked: list[str]) -> None:
    """Of fifty thousand, that took the loop 50 ms."""
    node: Any = SimpleNamespace(authorizer=Authorizer())
    updates = AuthorizerUpdates(node)

    def image_of(*entries: AccessControlEntryRecord) -> tuple[MetadataDelta, MetadataImage]:
        delta = MetadataDelta(EMPTY_IMAGE)
        for record in (FeatureLevelRecord(name="metadata.version", feature_level=27), *entries):
            delta.replay(record)
        return delta, delta.apply()

    def anna_may(topic: str) -> bool:
        right = AclOperation.READ, AclResourceType.TOPIC, topic
        allowed: bool = node.authorizer.allows("User:anna", "h", *right)
        return allowed

    _, none = image_of()
    updates.take(MetadataDelta.between(EMPTY_IMAGE, none), none)
    _, snapshot = image_of(ANNAS, replace(ANNAS, id=UUID(int=2), resource_name="u"))
    updates.prepare(snapshot)
    assert looked == ["t", "u"]
    looked.clear()
    updates.take(MetadataDelta.between(none, snapshot), snapshot)
    assert (looked, anna_may("t"), anna_may("u"), anna_may("v")) == ([], True, True, False)
    delta = MetadataDelta(snapshot)
    delta.replay(RemoveAccessControlEntryRecord(id=ANNAS.id))
    updates.take(delta, delta.apply())
    assert (looked, anna_may("t"), anna_may("u")) == (["t"], False, True)
    _, other = image_of(ANNAS)
    updates.prepare(snapshot)  # it does not come
    updates.take(MetadataDelta.between(snapshot, other), other)
    assert (anna_may("t"), anna_may("u")) == (True, False)


def test_whether_some_resource_is_allowed_is_asked_of_the_principals_own_entries_and_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """InitProducerId of a user without rights looked at all entries of topics, each time."""
    looked: list[str] = []
    concerns = authorizer.concerns

    def noted(acl: AccessControlEntryRecord, principal: str, host: str) -> bool:
        looked.append(acl.principal)
        return concerns(acl, principal, host)

    monkeypatch.setattr(authorizer, "concerns", noted)
    others = [replace(ANNAS, id=UUID(int=n), principal=f"User:{n}") for n in range(100, 200)]
    rights = Authorizer(index=AclIndex.of([ANNAS, *others]))
    for _ in range(3):
        assert not rights.allows_any("User:bert", "h", AclOperation.READ, AclResourceType.TOPIC)
        assert rights.allows_any("User:100", "h", AclOperation.READ, AclResourceType.TOPIC)
    assert looked == ["User:100"]


@pytest.mark.parametrize("host", ["0:0:0:0:0:0:0:1", "::1", "0::0001"])
def test_an_address_of_ipv6_is_one_in_whatever_form(host: str) -> None:
    """An entry that denied somebody in Apache Kafka, which knows the first form alone, must do so here."""
    denied = replace(ANNAS, id=UUID(int=2), host=host, permission_type=AclPermissionType.DENY)
    rights = Authorizer(index=AclIndex.of([ANNAS, denied]))
    wanted = AclOperation.READ, AclResourceType.TOPIC, "t"
    assert not rights.allows("User:anna", "::1", *wanted)
    assert rights.allows("User:anna", "::2", *wanted)


def test_what_was_decided_is_remembered_but_for_long_names_and_not_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients choose the names of groups and of transactions."""
    looked: list[str] = []
    about = AclIndex.about

    def noted(index: AclIndex, resource_type: int, name: str) -> Any:
        looked.append(name)
        return about(index, resource_type, name)

    monkeypatch.setattr(AclIndex, "about", noted)
    monkeypatch.setattr(authorizer, "MAX_CACHED", 3)
    rights = Authorizer(index=AclIndex.of([ANNAS]))
    short, long, wide = "t", "t" * (MAX_CACHED_NAME_CHARS + 1), "\U0001f600"
    for name in (short, short, long, long, wide, wide, "a", "b", "c", short):
        rights.allows("User:anna", "h", AclOperation.READ, AclResourceType.TOPIC, name)
    assert looked == [short, long, long, wide, wide, "a", "b", "c", short]
