"""The node's authorizer: made with the node, replaced when an access control entry changes.

    server.properties -> authorizer_of -> node.authorizer <- follow <- state machine or follower

Until the first metadata arrives only `super.users` may do anything, so the nodes' own principals must be
among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from kraft.api.context import NodeContext
from kraft.config.node_config import Config, reject
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import AccessControlEntryRecord
from metadata_quorum.security.authorizer import Authorizer


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


def follow(node: NodeContext) -> Callable[[MetadataDelta, MetadataImage], None]:
    """Its result must be called with every new image."""
    indexed: Mapping[UUID, AccessControlEntryRecord] | None = None

    def take(delta: MetadataDelta, image: MetadataImage) -> None:
        nonlocal indexed
        now = node.authorizer
        if now is None or not image.features or image.acls is indexed:
            return
        if indexed is not None and delta.image.acls is indexed:
            gone = [indexed[each] for each in delta.changed_acls if each in indexed]
            node.authorizer = now.changed(gone, filter(None, delta.changed_acls.values()))
        else:
            node.authorizer = now.with_acls(image.acls.values())
        indexed = image.acls

    return take
