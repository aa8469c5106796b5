"""The node's authorizer: made with the node, replaced when an access control entry changes.

    server.properties -> authorizer_of -> node.authorizer <- AuthorizerUpdates <- state machine or follower

Until the first metadata arrives only `super.users` may do anything, so the nodes' own principals must be
among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from kraft.api.context import NodeContext
from kraft.api.prepared import Prepared
from kraft.config.node_config import Config, reject
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import AccessControlEntryRecord
from metadata_quorum.security.authorizer import AclIndex, Authorizer

Entries = Mapping[UUID, AccessControlEntryRecord]


def authorizer_of(config: Config) -> Authorizer | None:
    """None where `authorizer.class.name` names none. Raises `FatalError` (BAD_CONFIG)."""
    if not config.authorizer_class_name:
        return None
    given = [each.strip() for each in config.super_users.split(";")]
    users = frozenset(each for each in given if each)
    for user in users:
        if ":" not in user:
            reject(
                "super.users",
                config.super_users,
                f"{user} is no principal: those are TYPE:NAME, as User:anna",
            )
    if not users and not config.allow_everyone_if_no_acl_found:
        reject("super.users", "", "an authorizer needs at least one, or nobody could grant anything")
    return Authorizer(users, config.allow_everyone_if_no_acl_found)


class AuthorizerUpdates:
    """Keeps a node's authorizer as the entries in the metadata are."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._used: Entries | None = None
        """Of the image: they are in the authorizer."""
        self._prepared = Prepared[Entries, AclIndex](_index_of)

    def prepare(self, image: MetadataImage) -> None:
        """In another thread, before `take`."""
        if self._node.authorizer is not None:
            self._prepared.prepare(image.acls)

    def take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Subscribed to the metadata."""
        now, used = self._node.authorizer, self._used
        if now is None or not image.features or image.acls is used:
            return
        prepared = self._prepared.take(image.acls)
        if prepared is None and used is not None and delta.image.acls is used:
            gone = [used[each] for each in delta.changed_acls if each in used]
            self._node.authorizer = now.changed(gone, filter(None, delta.changed_acls.values()))
        else:
            self._node.authorizer = now.with_index(prepared or _index_of(image.acls))
        self._used = image.acls


def _index_of(entries: Entries) -> AclIndex:
    return AclIndex.of(entries.values())
