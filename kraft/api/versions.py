"""ApiVersions: the first request of every client; derived from the API table."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import Final

from kraft.api.context import NodeContext
from kraft.api.request_context import ApiVersionRange, RequestContext, Role
from kraft.api.row import ApiRow, Response
from kraft.wire import record_counts, software
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.features import SUPPORTED_FEATURES

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What Kafka allows for a client's name and version."""

RECORD_COUNTS: Final = ApiVersionRange(ApiKey.RECORD_COUNTS, record_counts.VERSION, record_counts.VERSION)

_REMEMBERED_LETTERS: Final = 256
"""How much of the client software's name and version is kept while the connection is open."""


def handle(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    if ctx.version >= 3:
        for word in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(word):
                raise BrokerError(ErrorCode.INVALID_REQUEST)
        state = ctx.connection.state
        state.client_software_name = request.client_software_name[:_REMEMBERED_LETTERS]
        state.client_software_version = request.client_software_version[:_REMEMBERED_LETTERS]
    finalized = node.image.features
    return {
        "error_code": int(ErrorCode.NONE),
        "api_keys": [api._asdict() for api in (*ctx.advertised, *_ours(ctx, request))],
        "supported_features": [
            {"name": name, "min_version": low, "max_version": high}
            for name, (low, high) in SUPPORTED_FEATURES.items()
            if low > 0 or ctx.version >= 4  # older clients choke on a lowest level of 0
        ],
        "finalized_features_epoch": node.image.offset,
        "finalized_features": [
            {"name": name, "min_version_level": level, "max_version_level": level}
            for name, level in finalized.items()
        ],
    }


def _ours(ctx: RequestContext, request: Message) -> tuple[ApiVersionRange, ...]:
    """What our commands ask, and nobody else: so they know whether a broker is one of ours."""
    of_ours = ctx.version >= 3 and request.client_software_name == software.NAME
    return (RECORD_COUNTS,) if of_ours and ctx.role is Role.BROKER else ()


def advertised(rows: Iterable[ApiRow], also: Container[ApiKey] = ()) -> tuple[ApiVersionRange, ...]:
    """Those rows in the response of ApiVersions. Like Kafka 4 we answer Produce from version 3 on and
    advertise 0: without the old versions, librdkafka before 2.11 would take a broker for one that knows no
    compression."""
    return tuple(
        ApiVersionRange(row.key, 0 if row.key is ApiKey.PRODUCE else row.min_version, row.max_version)
        for row in rows
        if (row.advertised or row.key in also) and not row.internal
    )


ROWS: Final = (ApiRow(ApiKey.API_VERSIONS, (0, 4), (), node=handle),)
