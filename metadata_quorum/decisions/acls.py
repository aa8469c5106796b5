"""CreateAcls and DeleteAcls: access control entries come and go, each judged for itself."""

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
    """One result per entry; an entry that says what another says already is no news, and no error."""
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
    """One result per filter: what it matched. What two filters match is named by both, and removed once."""
    results = []
    gone: dict[UUID, None] = {}
    by_name: dict[str | None, list[AccessControlEntryRecord]] = {}
    for acl in image.acls.values():
        by_name.setdefault(acl.resource_name, []).append(acl)
    for wanted in command.filters:
        try:
            among = image.acls.values() if is_wide(wanted) else by_name.get(wanted.resource_name, ())
            found = _found(among, wanted)
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


def is_wide(wanted: AclFilter) -> bool:
    """Whether entries of more than one resource's name can match, so that all have to be looked at."""
    return wanted.resource_name is None or wanted.pattern_type == PatternType.MATCH


def _found(
    among: Iterable[AccessControlEntryRecord], wanted: AclFilter
) -> tuple[AccessControlEntryRecord, ...]:
    if (problem := filter_problem(wanted)) is not None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, problem)
    # In one order on every node, however it came by its image.
    return tuple(sorted((acl for acl in among if matches(wanted, acl)), key=lambda acl: acl.id.bytes))
