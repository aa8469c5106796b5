"""DescribeClientQuotas and AlterClientQuotas: what users, client ids and addresses may use.

describe   from this broker's metadata image
alter      forwarded to the active controller, decided in apply, published back to every node
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

from kraft.api.authz.checks import ALTER_CONFIGS_OF_CLUSTER, DESCRIBE_CONFIGS_OF_CLUSTER
from kraft.api.context import BrokerContext, ControllerContext, NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import in_batches, in_slices
from kraft.api.throttling import addresses_of
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.quota_types import CLIENT_ID, ENTITY_TYPES, IP, USER, QuotaEntityKey
from metadata_quorum.metadata.records import QuotaEntity
from metadata_quorum.protocol.commands import QuotaAlteration, QuotaOperation
from metadata_quorum.protocol.replies import QuotaResult

# ---- DescribeClientQuotas ----------------------------------------------------------------------------


class MatchType(IntEnum):
    """How a filter takes one kind of coordinate."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2
    """Whatever its name, the default included."""


ENTRIES_PER_SLICE: Final = 200
"""Between two turns of the loop."""
DESCRIBED_PER_SLICE: Final = 1000
MOST_IN_ENTRY: Final = 100
"""There are three types of entities, and four keys."""
_ANY_NAME: Final = object()

Filter = Mapping[str, object]
"""For each kind of coordinate: the name, None for the default, or _ANY_NAME."""


async def handle_describe(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    wanted = _filter(request.components)
    every = broker.node.image.quotas.items()
    return {
        "error_code": int(ErrorCode.NONE),
        "error_message": None,
        "entries": [
            {
                "entity": _coordinates(entity),
                "values": [{"key": key, "value": value} for key, value in values.items()],
            }
            async for entity, values in in_slices(broker.node.long_work, every, DESCRIBED_PER_SLICE)
            if _fits(entity, wanted, strict=request.strict)
        ],
    }


def _filter(components: Iterable[Message]) -> Filter:
    wanted: dict[str, object] = {}
    for each in components:
        kind = each.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in wanted:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        wanted[kind] = _name_wanted(each.match_type, each.match)
    if IP in wanted and (USER in wanted or CLIENT_ID in wanted):
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
    return wanted


def _name_wanted(match_type: int, match: str | None) -> object:
    match match_type:
        case MatchType.EXACT:
            if match is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            return match
        case MatchType.DEFAULT | MatchType.SPECIFIED:
            if match is not None:
                match_name = f"MATCH_TYPE_{MatchType(match_type).name}"
                raise _invalid(f"Request specified {match_name}, but also specified a match string.")
            return None if match_type == MatchType.DEFAULT else _ANY_NAME
        case _:
            raise _invalid(f"Unknown match type {match_type}")


def _fits(entity: QuotaEntityKey, wanted: Filter, *, strict: bool) -> bool:
    """`strict`: an entity with more coordinates than the filter names does not fit."""
    names = dict(entity)
    if strict and len(names) != len(wanted):
        return False
    return all(kind in names and (name is _ANY_NAME or names[kind] == name) for kind, name in wanted.items())


def describe_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"error_code": int(code), "error_message": message or None, "entries": None}


# ---- AlterClientQuotas -------------------------------------------------------------------------------


async def handle_alter(controller: ControllerContext, ctx: RequestContext, request: Message) -> Response:
    refused, alterations = [], []
    async for entry in in_slices(controller.node.long_work, request.entries, ENTRIES_PER_SLICE):
        if max(len(entry.entity), len(entry.ops)) > MOST_IN_ENTRY:
            raise _invalid(f"More than {MOST_IN_ENTRY} parts of an entity, or values of it")
        alteration = _alteration(entry)
        host = await _unknown_host(controller.node, alteration)
        if host is None:
            alterations.append(alteration)
        else:
            message = f"{host} is not a valid IP or resolvable host."
            refused.append(QuotaResult(((IP, host),), ErrorCode.INVALID_REQUEST, message))
    results = await in_batches(
        controller.node.long_work,
        alterations,
        lambda items: controller.quorum_controller.alter_client_quotas(
            items, validate_only=request.validate_only
        ),
    )
    return {
        "entries": [
            {
                "error_code": int(each.error),
                "error_message": each.message or None,
                "entity": _coordinates(each.entity),
            }
            async for each in in_slices(controller.node.long_work, (*refused, *results), ENTRIES_PER_SLICE)
        ]
    }


def _alteration(entry: Message) -> QuotaAlteration:
    return QuotaAlteration(
        entity=tuple(
            QuotaEntity(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
        ),
        operations=tuple(
            QuotaOperation(key=each.key, value=each.value, remove=each.remove) for each in entry.ops
        ),
    )


async def _unknown_host(node: NodeContext, alteration: QuotaAlteration) -> str | None:
    """The name of an `ip` entity, if it resolves to no address."""
    match alteration.entity:
        case (QuotaEntity(entity_type=entity_type, entity_name=str(host)),) if entity_type == IP and host:
            if await addresses_of(node.loop, host):
                return None
            return host
    return None


def alter_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {
        "entries": [
            {
                "error_code": int(code),
                "error_message": message or None,
                "entity": [
                    {"entity_type": each.entity_type, "entity_name": each.entity_name}
                    for each in entry.entity
                ],
            }
            for entry in request.entries
        ]
    }


def _coordinates(entity: QuotaEntityKey) -> list[dict[str, Any]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity]


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)


ROWS: Final = (
    ApiRow(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        (0, 1),
        (DESCRIBE_CONFIGS_OF_CLUSTER,),
        broker=handle_describe,
        on_error=describe_error,
    ),
    ApiRow(
        ApiKey.ALTER_CLIENT_QUOTAS,
        (0, 1),
        (ALTER_CONFIGS_OF_CLUSTER,),
        forwarded=handle_alter,
        on_error=alter_error,
    ),
)
