"""Access control entries over the wire: DescribeAcls, CreateAcls, DeleteAcls.

    create, delete   forwarded to the active controller -> decisions/acls.py -> metadata log -> image.acls
    describe         from the metadata image, by the same filters that delete

Without an authorizer (`authorizer.class.name`) there is nothing to describe and nothing to change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kraft.api.authz.checks import ALTER_CLUSTER, DESCRIBE_CLUSTER
from kraft.api.context import ControllerContext, NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.uuids import random_uuid
from metadata_quorum.metadata.records import AccessControlEntryRecord
from metadata_quorum.protocol.commands import AclFilter, CreateAcls, DeleteAcls
from metadata_quorum.security.acls import filter_problem, matches

Pattern = tuple[int, str, int]
"""Resource type, name, pattern type."""


def _require_authorizer(node: NodeContext) -> None:
    if node.authorizer is None:
        raise BrokerError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


# ---- DescribeAcls ------------------------------------------------------------------------------------


def handle_describe(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    _require_authorizer(node)
    wanted = _filter(request)
    if (problem := filter_problem(wanted)) is not None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, problem)
    by_pattern: dict[Pattern, list[dict[str, Any]]] = {}
    for acl in _sorted(acl for acl in node.image.acls.values() if matches(wanted, acl)):
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
    acls = tuple(
        AccessControlEntryRecord(
            id=random_uuid(controller.node.random),
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            pattern_type=each.resource_pattern_type,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission_type,
        )
        for each in request.creations
    )
    results = await controller.quorum_controller.propose(CreateAcls(acls=acls))
    return {"results": [_result(each.error, each.message) for each in results]}


def _result(code: ErrorCode, message: str) -> dict[str, Any]:
    return {"error_code": int(code), "error_message": message or None}


def create_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"results": [_result(code, message) for _ in request.creations]}


# ---- DeleteAcls --------------------------------------------------------------------------------------


async def handle_delete(controller: ControllerContext, ctx: RequestContext, request: Message) -> Response:
    _require_authorizer(controller.node)
    command = DeleteAcls(filters=tuple(map(_filter, request.filters)))
    results = await controller.quorum_controller.propose(command)
    return {
        "filter_results": [
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
                    for acl in _sorted(each.deleted)
                ],
            }
            for each in results
        ]
    }


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
