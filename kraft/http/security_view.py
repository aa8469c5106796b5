"""Who may do what, and how much: users, access control entries, quotas, from the cluster's metadata.

Passwords are not in it, nor what is derived from them.
"""

from __future__ import annotations

from typing import Any, Final

from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import AccessControlEntryRecord
from metadata_quorum.security.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from metadata_quorum.security.scram import ScramMechanism

MOST: Final = 500
"""Rows of one answer."""

Json = dict[str, Any]


def users(image: MetadataImage) -> Json:
    """The SCRAM users; those of PLAIN are in each node's own file."""
    by_name: dict[str, list[str]] = {}
    for name, mechanism in sorted(image.scram):
        by_name.setdefault(name, []).append(ScramMechanism(mechanism).sasl_name)
    rows = [{"name": name, "mechanisms": mechanisms} for name, mechanisms in by_name.items()]
    return {"users": rows[:MOST], "more": max(len(rows) - MOST, 0)}


def acls(image: MetadataImage) -> Json:
    rows = sorted(map(_acl, image.acls.values()), key=lambda row: [str(value) for value in row.values()])
    return {"acls": rows[:MOST], "more": max(len(rows) - MOST, 0)}


def _acl(acl: AccessControlEntryRecord) -> Json:
    return {
        "resource_type": AclResourceType(acl.resource_type).name,
        "resource": acl.resource_name,
        "pattern": PatternType(acl.pattern_type).name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": AclOperation(acl.operation).name,
        "permission": AclPermissionType(acl.permission_type).name,
    }


def quotas(image: MetadataImage) -> Json:
    """An entity's name is None if the quota is the default for all who have none of their own."""
    rows = [
        {"entity": [{"type": kind, "name": name} for kind, name in entity], "limits": dict(limits)}
        for entity, limits in image.quotas.items()
    ]
    rows.sort(key=lambda row: str(row["entity"]))
    return {"quotas": rows[:MOST], "more": max(len(rows) - MOST, 0)}
