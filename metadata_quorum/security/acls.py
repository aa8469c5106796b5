"""Access control entries: their vocabulary, and which of them a filter selects.

    an entry        PRINCIPAL at HOST is ALLOWed or DENIED an OPERATION on the resources of a pattern
    a pattern       LITERAL (that name, or "*" for every name) or PREFIXED (all names that begin with it)

Numbers and names are those of Kafka's requests and records. authorizer.py evaluates the entries.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # the command line uses these words too, and starts faster without the codec
    from metadata_quorum.metadata.records import AccessControlEntryRecord
    from metadata_quorum.protocol.commands import AclFilter

WILDCARD: Final = "*"
"""As the name of a resource, or as a host: all of them."""
EVERYONE: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""Name of the only resource of type CLUSTER."""


class AclResourceType(IntEnum):
    """What an entry protects; not to be confused with the resources of configurations."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """In filters: all patterns that apply to a resource of that name."""
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS_OF: Final = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (
        AclOperation.DESCRIBE,
        AclOperation.WRITE,
        AclOperation.TWO_PHASE_COMMIT,
    ),
}
"""Operations on resources of each type (AclEntry.supportedOperations)."""

OPERATIONS_OMITTED: Final = -(2**31)
"""Stands in a response whose request does not ask for the authorized operations."""


def operation_bits(resource_type: AclResourceType) -> int:
    """All operations on a resource of this type; bit n stands for operation n."""
    return sum(1 << operation for operation in OPERATIONS_OF[resource_type])


def rule_of(acl: AccessControlEntryRecord) -> tuple[int, str, int, str, str, int, int]:
    """All fields but the id."""
    return (
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def matches(acl_filter: AclFilter, acl: AccessControlEntryRecord) -> bool:
    """Whether the filter selects this entry."""
    return (
        acl_filter.resource_type in (AclResourceType.ANY, acl.resource_type)
        and acl_filter.pattern_type in (PatternType.ANY, PatternType.MATCH, acl.pattern_type)
        and _names(acl_filter, acl)
        and acl_filter.principal in (None, acl.principal)
        and acl_filter.host in (None, acl.host)
        and acl_filter.operation in (AclOperation.ANY, acl.operation)
        and acl_filter.permission_type in (AclPermissionType.ANY, acl.permission_type)
    )


def _names(acl_filter: AclFilter, acl: AccessControlEntryRecord) -> bool:
    name = acl_filter.resource_name
    if name is None or name == acl.resource_name:
        return True
    if acl_filter.pattern_type != PatternType.MATCH:
        return False
    if acl.pattern_type == PatternType.LITERAL:
        return acl.resource_name == WILDCARD
    return name.startswith(acl.resource_name)


def filter_problem(acl_filter: AclFilter) -> str | None:
    """What is wrong with a filter, in Kafka's words."""
    if not (
        _known(AclResourceType, acl_filter.resource_type) and _known(PatternType, acl_filter.pattern_type)
    ):
        return "Unknown patternFilter."
    if not (
        _known(AclOperation, acl_filter.operation) and _known(AclPermissionType, acl_filter.permission_type)
    ):
        return "Unknown entryFilter."
    return None


def entry_problem(acl: AccessControlEntryRecord) -> str | None:
    """What is wrong with a new entry, in Kafka's words."""
    for kind, word, value in (
        (AclResourceType, "resourceType", acl.resource_type),
        (PatternType, "patternType", acl.pattern_type),
        (AclOperation, "operation", acl.operation),
        (AclPermissionType, "permissionType", acl.permission_type),
    ):
        if not _known(kind, value) or value == 1 or (kind is PatternType and value == PatternType.MATCH):
            return f"Invalid {word} {_word(kind, value)}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if acl.resource_type == AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )
    return None


def _known(kind: type[IntEnum], value: int) -> bool:
    return value != 0 and value in kind.__members__.values()


def _word(kind: type[IntEnum], value: int) -> str:
    return kind(value).name if value in kind.__members__.values() else "UNKNOWN"
