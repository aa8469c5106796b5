"""CreateAcls and DeleteAcls: access control entries come and go, each judged for itself."""

from __future__ import annotations

from uuid import UUID

from metadata_quorum.acls import entry_problem, filter_problem, matches, rule_of
from metadata_quorum.commands import AclFilter, CreateAcls, DeleteAcls
from metadata_quorum.decisions.decision import Decision
from metadata_quorum.errors import BrokerError, ErrorCode
from metadata_quorum.image import MetadataImage
from metadata_quorum.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from metadata_quorum.replies import AclResult

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
    for wanted in command.filters:
        try:
            found = _found(image, wanted)
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


def _found(image: MetadataImage, wanted: AclFilter) -> tuple[AccessControlEntryRecord, ...]:
    if (problem := filter_problem(wanted)) is not None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, problem)
    # In one order on every node, however it came by its image.
    known = (image.acls[acl_id] for acl_id in sorted(image.acls))
    return tuple(acl for acl in known if matches(wanted, acl))
