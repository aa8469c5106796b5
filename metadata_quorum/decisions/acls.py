"""CreateAcls and DeleteAcls: every access control entry is decided by itself."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from metadata_quorum.decisions.decision import Decision
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from metadata_quorum.protocol.commands import AclFilter, CreateAcls, DeleteAcls
from metadata_quorum.protocol.replies import AclResult
from metadata_quorum.security.acls import PatternType, entry_problem, filter_problem, matches, rule_of

MAX_DELETED_AT_ONCE = 10_000
"""More are refused: they would not fit into one batch of the metadata log."""


def create_acls(image: MetadataImage, command: CreateAcls) -> Decision:
    """One result per entry. One that equals another is not added, and is no error."""
    decision = Decision()
    results = []
    known = {rule_of(acl) for acl in image.acls.values()}
    for acl in command.acls:
        if (problem := entry_problem(acl)) is not None:
            results.append(AclResult(ErrorCode.INVALID_REQUEST, problem))
            continue
        if rule_of(acl) not in known:
            known.add(rule_of(acl))
            decision.records.append(acl)
        results.append(AclResult())
    decision.reply = tuple(results)
    return decision


def delete_acls(image: MetadataImage, command: DeleteAcls) -> Decision:
    """One result per filter: what it matched. What two filters match is named by both, and removed once.
    Raises BrokerError."""
    results = []
    gone: dict[UUID, None] = {}
    by_name: dict[str | None, list[AccessControlEntryRecord]] = {}
    for acl in image.acls.values():
        by_name.setdefault(acl.resource_name, []).append(acl)
    for acl_filter in command.filters:
        try:
            among = image.acls.values() if is_wide(acl_filter) else by_name.get(acl_filter.resource_name, ())
            found = _found(among, acl_filter)
            if len(gone) + len(found) > MAX_DELETED_AT_ONCE:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST,
                    f"Cannot remove more than {MAX_DELETED_AT_ONCE} acls in a single delete operation.",
                )
            gone.update((acl.id, None) for acl in found)
            results.append(AclResult(deleted=found))
        except BrokerError as e:
            results.append(AclResult(e.code, e.message))
    return Decision([RemoveAccessControlEntryRecord(id=each) for each in gone], tuple(results))


def is_wide(acl_filter: AclFilter) -> bool:
    """Whether entries of more than one resource's name can match, so that all have to be looked at."""
    return acl_filter.resource_name is None or acl_filter.pattern_type == PatternType.MATCH


def _found(
    among: Iterable[AccessControlEntryRecord], acl_filter: AclFilter
) -> tuple[AccessControlEntryRecord, ...]:
    if (problem := filter_problem(acl_filter)) is not None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, problem)
    # In one order on every node, however it came by its image.
    return tuple(sorted((acl for acl in among if matches(acl_filter, acl)), key=lambda acl: acl.id.bytes))
