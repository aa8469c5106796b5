"""Access control entries over the wire: DescribeAcls, CreateAcls, DeleteAcls.

    create, delete   forwarded to the active controller -> decisions/acls.py -> metadata log -> image.acls
    describe         from the metadata image, by the same filters that delete

Without an authorizer (`authorizer.class.name`) there is nothing to describe and nothing to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from kraft.api.authz.checks import ALTER_CLUSTER, DESCRIBE_CLUSTER
from kraft.api.context import ControllerContext, NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import in_batches, in_slices
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.decisions.acls import is_wide
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.uuids import random_uuid
from metadata_quorum.metadata.records import AccessControlEntryRecord
from metadata_quorum.protocol.commands import AclFilter, CreateAcls, DeleteAcls
from metadata_quorum.security.acls import filter_problem, matches

DESCRIBED_PER_SLICE: Final = 1000
LOOKED_AT_AS_ONE: Final = 20
"""A filter that goes through all entries weighs as much as one item for so many of them."""

Pattern = tuple[int, str, int]
"""Resource type, name, pattern type."""


def _require_authorizer(node: NodeContext) -> None:
    if node.authorizer is None:
        raise BrokerError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


# ---- DescribeAcls ------------------------------------------------------------------------------------


async def handle_describe(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    _require_authorizer(node)
    wanted = _filter(request)
    if (problem := filter_problem(wanted)) is not None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, problem)
    by_pattern: dict[Pattern, list[dict[str, Any]]] = {}
    every = node.image.acls.values()
    found = await node.computing(lambda: _sorted(acl for acl in every if matches(wanted, acl)))
    async for acl in in_slices(node.long_work, found, DESCRIBED_PER_SLICE):
        pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
        by_pattern.setdefault(pattern, []).append(_entry(acl))
    resources = [
        {"resource_type": kind, "resource_name": name, "pattern_type": pattern_type, "acls": entries}
        for (kind, name, pattern_type), entries in by_pattern.items()
    ]
    return {"error_code": int(ErrorCode.NONE), "error_message": None, "resources": resources}


def _filter(wanted: Message) -> AclFilter:
    return AclFilter(
        resource_type=wanted.resource_type_filter,
        resource_name=wanted.resource_name_filter,
        pattern_type=wanted.pattern_type_filter,
        principal=wanted.principal_filter,
        host=wanted.host_filter,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )


def _sorted(acls: Iterable[AccessControlEntryRecord]) -> list[AccessControlEntryRecord]:
    return sorted(acls, key=lambda acl: (acl.resource_type, acl.resource_name, acl.pattern_type, acl.id))


def _entry(acl: AccessControlEntryRecord) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission_type,
    }


def describe_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"error_code": int(code), "error_message": message or None, "resources": []}


# ---- CreateAcls --------------------------------------------------------------------------------------


async def handle_create(controller: ControllerContext, ctx: RequestContext, request: Message) -> Response:
    _require_authorizer(controller.node)

    async def create(creations: Sequence[Message]) -> list[dict[str, Any]]:
        acls = tuple(_new_acl(controller.node, each) for each in creations)
        results = await controller.quorum_controller.propose(CreateAcls(acls=acls))
        return [_result(each.error, each.message) for each in results]

    return {"results": await in_batches(controller.node.long_work, request.creations, create)}


def _new_acl(node: NodeContext, wanted: Message) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=random_uuid(node.random),
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        pattern_type=wanted.resource_pattern_type,
        principal=wanted.principal,
        host=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )


def _result(code: ErrorCode, message: str) -> dict[str, Any]:
    return {"error_code": int(code), "error_message": message or None}


def create_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"results": [_result(code, message) for _ in request.creations]}


# ---- DeleteAcls --------------------------------------------------------------------------------------


class _Deleted:
    """What earlier commands of the same request have deleted: later filters that match it name it, too."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[UUID, AccessControlEntryRecord]] = {}

    def add(self, acls: Iterable[AccessControlEntryRecord]) -> None:
        for acl in acls:
            self._by_name.setdefault(acl.resource_name, {})[acl.id] = acl

    def matching(self, acl_filter: AclFilter) -> Iterator[AccessControlEntryRecord]:
        name = acl_filter.resource_name
        among = self._by_name if name is None or is_wide(acl_filter) else (name,)
        return (
            acl for each in among for acl in self._by_name.get(each, {}).values() if matches(acl_filter, acl)
        )


async def handle_delete(controller: ControllerContext, ctx: RequestContext, request: Message) -> Response:
    _require_authorizer(controller.node)

    deleted = _Deleted()

    async def delete(filters: Sequence[Message]) -> list[dict[str, Any]]:
        command = DeleteAcls(filters=tuple(map(_filter, filters)))
        results = await controller.quorum_controller.propose(command)
        named = [
            (*each.deleted, *deleted.matching(acl_filter)) if each.error is ErrorCode.NONE else ()
            for acl_filter, each in zip(command.filters, results, strict=True)
        ]
        for each in results:
            deleted.add(each.deleted)
        return [
            {
                **_result(each.error, each.message),
                "matching_acls": [
                    {
                        **_result(ErrorCode.NONE, ""),
                        "resource_type": acl.resource_type,
                        "resource_name": acl.resource_name,
                        "pattern_type": acl.pattern_type,
                        **_entry(acl),
                    }
                    for acl in _sorted(acls)
                ],
            }
            for each, acls in zip(results, named, strict=True)
        ]

    # What one command looks at, others wait for: a fence too.
    wide = 1 + len(controller.quorum_controller.image.acls) // LOOKED_AT_AS_ONE
    results = await in_batches(
        controller.node.long_work,
        request.filters,
        delete,
        lambda each: wide if is_wide(_filter(each)) else 1,
    )
    return {"filter_results": results}


def delete_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"filter_results": [{**_result(code, message), "matching_acls": []} for _ in request.filters]}


ROWS: Final = (
    ApiRow(
        ApiKey.DESCRIBE_ACLS,
        (1, 3),
        (DESCRIBE_CLUSTER,),
        node=handle_describe,
        on_error=describe_error,
    ),
    ApiRow(
        ApiKey.CREATE_ACLS,
        (1, 3),
        (ALTER_CLUSTER,),
        forwarded=handle_create,
        on_error=create_error,
    ),
    ApiRow(
        ApiKey.DELETE_ACLS,
        (1, 3),
        (ALTER_CLUSTER,),
        forwarded=handle_delete,
        on_error=delete_error,
    ),
)
