"""The node's authorizer: made with the node, replaced when an access control entry changes.

    server.properties -> authorizer_of -> node.authorizer <- follow <- state machine or follower

Until the first metadata arrives only `super.users` may do anything, so the nodes' own principals must be
among them.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.api.context import NodeContext
from kraft.config.node_config import Config, reject
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage
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

    def take(delta: MetadataDelta, image: MetadataImage) -> None:
        now = node.authorizer
        if now is not None and image.features and (delta.changed_acls or now.index is None):
            node.authorizer = now.with_acls(image.acls.values())

    return take
