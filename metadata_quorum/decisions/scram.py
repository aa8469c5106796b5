"""AlterUserScramCredentials: users get, change and lose what is kept of their passwords.

A user is taken whole or not at all: one wrong alteration of several leaves all of that user's undone.
"""

from __future__ import annotations

from collections.abc import Iterator

from metadata_quorum.decisions.decision import Decision
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from metadata_quorum.protocol.commands import AlterUserScram, ScramDeletion
from metadata_quorum.protocol.replies import UserResult
from metadata_quorum.security.scram import ScramMechanism, iterations_problem

Alteration = ScramDeletion | UserScramCredentialRecord


def alter_user_scram(image: MetadataImage, command: AlterUserScram) -> Decision:
    """One result per user, in the order in which they are first named."""
    by_user: dict[str, list[Alteration]] = {}
    for each in _alterations(command):
        by_user.setdefault(each.name, []).append(each)
    decision = Decision()
    results = []
    for user, alterations in by_user.items():
        try:
            _check(image, user, alterations)
        except BrokerError as e:
            results.append(UserResult(user, e.code, e.message))
            continue
        for each in alterations:
            if isinstance(each, ScramDeletion):
                decision.records.append(RemoveUserScramCredentialRecord(name=user, mechanism=each.mechanism))
            else:
                decision.records.append(each)
        results.append(UserResult(user))
    decision.reply = tuple(results)
    return decision


def _alterations(command: AlterUserScram) -> Iterator[Alteration]:
    yield from command.deletions
    yield from command.upsertions


def _check(image: MetadataImage, user: str, alterations: list[Alteration]) -> None:
    """Raises `BrokerError` with Kafka's code and words."""
    if not user:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    seen: set[int] = set()
    for each in alterations:
        if each.mechanism not in ScramMechanism.__members__.values():
            raise BrokerError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if each.mechanism in seen:
            raise BrokerError(
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
        seen.add(each.mechanism)
        if isinstance(each, ScramDeletion):
            if (user, each.mechanism) not in image.scram:
                raise BrokerError(
                    ErrorCode.RESOURCE_NOT_FOUND,
                    "Attempt to delete a user credential that does not exist",
                )
        elif (problem := iterations_problem(each.iterations)) is not None:
            raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
