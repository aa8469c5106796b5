"""SCRAM users over the wire: DescribeUserScramCredentials, AlterUserScramCredentials.

    alter      forwarded to the active controller -> decisions/scram.py -> metadata log -> broker/scram_users
    describe   from the metadata image: which mechanisms a user has, never what is stored of the password

Clients hash the password before they send it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from kraft.api.authz.checks import ALTER_CLUSTER, DESCRIBE_CLUSTER
from kraft.api.context import ControllerContext, NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import in_batches, in_slices
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import UserScramCredentialRecord
from metadata_quorum.protocol.commands import AlterUserScram, ScramDeletion
from metadata_quorum.protocol.replies import UserResult
from metadata_quorum.security.scram import ScramMechanism, derive

Alteration = ScramDeletion | UserScramCredentialRecord

NAMED_PER_SLICE: Final = 500
CREDENTIALS_PER_SLICE: Final = 200
"""Each credential costs two HMACs, some 10 µs."""
TOO_MANY: Final = len(ScramMechanism) + 1
"""Alterations of one user: one of them is refused, or the mechanism is named twice, and with it all."""

_NO_MECHANISM: Final = 0


async def handle_describe(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    image = node.image
    named: Counter[str] = Counter()
    if request.users:
        async for each in in_slices(node.long_work, request.users, NAMED_PER_SLICE):
            named[each.name] += 1
    else:
        named.update({user for user, _ in image.scram})
    results = [
        _described(image, user, named[user])
        async for user in in_slices(node.long_work, list(named), NAMED_PER_SLICE)
    ]
    return {"error_code": int(ErrorCode.NONE), "error_message": None, "results": results}


def _described(image: MetadataImage, user: str, times: int) -> dict[str, Any]:
    infos = [
        {"mechanism": int(mechanism), "iterations": found.iterations}
        for mechanism in ScramMechanism
        if (found := image.scram.get((user, int(mechanism)))) is not None
    ]
    error, message = ErrorCode.NONE, ""  # as Kafka says it
    if times > 1:
        error = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    elif not infos:
        error = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    return {
        "user": user,
        "error_code": int(error),
        "error_message": message,
        "credential_infos": [] if error is not ErrorCode.NONE else infos,
    }


async def handle_alter(controller: ControllerContext, ctx: RequestContext, request: Message) -> Response:
    """Users are independent of each other, so very many of them become several commands."""
    wanted: dict[str, list[Alteration]] = {}
    refused: dict[str, UserResult] = {}
    async for each in in_slices(controller.node.long_work, request.deletions, NAMED_PER_SLICE):
        wanted.setdefault(each.name, []).append(ScramDeletion(name=each.name, mechanism=each.mechanism))
    async for each in in_slices(controller.node.long_work, request.upsertions, CREDENTIALS_PER_SLICE):
        try:
            wanted.setdefault(each.name, []).append(_credential(each))
        except BrokerError as error:
            refused[each.name] = UserResult(each.name, error.code, error.message)
    taken = [alterations for user, alterations in wanted.items() if user not in refused]
    decided = await in_batches(controller.node.long_work, taken, lambda users: _propose(controller, users))
    results = [*refused.values(), *decided]
    return {
        "results": [
            _altered(each.user, each.error, each.message)
            async for each in in_slices(controller.node.long_work, results, NAMED_PER_SLICE)
        ]
    }


async def _propose(
    controller: ControllerContext, users: Sequence[Sequence[Alteration]]
) -> Sequence[UserResult]:
    alterations = [each for user in users for each in user[:TOO_MANY]]
    command = AlterUserScram(
        deletions=tuple(each for each in alterations if isinstance(each, ScramDeletion)),
        upsertions=tuple(each for each in alterations if not isinstance(each, ScramDeletion)),
    )
    return await controller.quorum_controller.propose(command)


def _credential(wanted: Message) -> UserScramCredentialRecord:
    """Only the two keys are stored. Values that the decision will refuse are passed on unchanged; what it
    cannot see any more raises `BrokerError`."""
    mechanisms = {int(each): each for each in ScramMechanism}
    if (mechanism := mechanisms.get(wanted.mechanism)) is not None:
        if not wanted.salted_password:  # everybody knows it
            raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty")
        return derive(wanted.name, mechanism, wanted.salted_password, wanted.salt, wanted.iterations)
    return UserScramCredentialRecord(
        name=wanted.name, mechanism=_NO_MECHANISM, salt=b"", stored_key=b"", server_key=b"", iterations=0
    )


def _altered(user: str, error: ErrorCode, message: str) -> dict[str, Any]:
    return {"user": user, "error_code": int(error), "error_message": message or None}


def alter_error(request: Message, code: ErrorCode, message: str) -> Response:
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return {"results": [_altered(user, code, message) for user in users]}


ROWS: Final = (
    ApiRow(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), (DESCRIBE_CLUSTER,),
        node=handle_describe
    ),
    ApiRow(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), (ALTER_CLUSTER,),
        forwarded=handle_alter, on_error=alter_error
    ),
)  # fmt: skip
