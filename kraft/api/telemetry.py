"""GetTelemetrySubscriptions and PushTelemetry (KIP-714).

With `kraft.client.telemetry.enable` ApiVersions lists them, clients push what subscriptions ask for, and the
newest is kept (kraft/monitoring/client_telemetry.py). Without it, as in an Apache Kafka without a receiver,
they are not listed, so that no client starts to push; one that asks anyway is answered, and what it pushes is
dropped.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kraft.api.context import BrokerContext, NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.response import error_code_only
from kraft.api.row import ApiRow, Response
from kraft.monitoring.client_telemetry import LONGEST_NAME, TelemetryClient
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from kraft.wire.otlp import Point, read_metrics
from metadata_quorum.decisions.client_metrics import (
    CLIENT_METRICS_CONFIGS,
    INTERVAL_MS,
    MATCH,
    METRICS,
    items,
    matches,
)
from metadata_quorum.foundation.compression import TooLargeError, decompress
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID
from metadata_quorum.foundation.uuids import random_uuid

MAX_BYTES: Final = 1024 * 1024
"""telemetry.max.bytes"""
CODECS: Final = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: the first is the one that is liked best."""
MAX_UNPACKED_BYTES: Final = 8 * MAX_BYTES
UNCOMPRESSED: Final = 0
EVERY_METRIC: Final = "*"


@dataclass(frozen=True, slots=True)
class _Subscription:
    """What all subscriptions that fit a client ask of it together."""

    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int


def handle_get(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    client = request.client_instance_id
    if client == ZERO_UUID:
        client = random_uuid(broker.node.random)
    wish = _subscription_of(broker.node, ctx, client)
    return {
        "error_code": int(ErrorCode.NONE),
        "client_instance_id": client,
        "subscription_id": wish.subscription_id,
        "accepted_compression_types": CODECS,
        "push_interval_ms": wish.interval_ms,
        "telemetry_max_bytes": MAX_BYTES,
        "delta_temporality": True,
        "requested_metrics": wish.metrics,
    }


async def handle_push(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    if request.client_instance_id == ZERO_UUID:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    if (
        request.subscription_id
        != _subscription_of(broker.node, ctx, request.client_instance_id).subscription_id
    ):
        raise BrokerError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    if request.compression_type not in (UNCOMPRESSED, *CODECS):
        raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if len(request.metrics or b"") > MAX_BYTES:
        raise BrokerError(ErrorCode.TELEMETRY_TOO_LARGE)
    if broker.node.config.kraft_client_telemetry_enable:
        await _receive(broker.node, ctx, request)
    return {"error_code": int(ErrorCode.NONE)}


async def _receive(node: NodeContext, ctx: RequestContext, request: Message) -> None:
    """Raises `BrokerError`."""
    telemetry, instance_id = node.client_telemetry, request.client_instance_id
    pushed = request.metrics or b""
    try:
        async with telemetry.reading:
            points = await node.loop.run_in_executor(None, _points, request.compression_type, pushed)
    except ValueError as error:
        raise BrokerError(ErrorCode.INVALID_RECORD, str(error)) from None
    if request.terminating:
        telemetry.end(instance_id)
        return
    state = ctx.connection.state
    software = f"{state.client_software_name} {state.client_software_version}".strip()
    client = TelemetryClient(
        instance_id, (ctx.client_id or "")[:LONGEST_NAME], software[:LONGEST_NAME], ctx.client_host
    )
    telemetry.take(client, points, node.loop.time())


def _points(codec: int, data: bytes) -> list[Point]:
    """Raises `ValueError`."""
    try:
        return read_metrics(memoryview(decompress(codec, data, MAX_UNPACKED_BYTES)))
    except TooLargeError as error:
        raise ValueError(f"more than {MAX_UNPACKED_BYTES} bytes when it is unpacked") from error


def _subscription_of(node: NodeContext, ctx: RequestContext, client: UUID) -> _Subscription:
    properties = {
        "client_instance_id": str(client),
        "client_id": ctx.client_id or "",
        "client_software_name": ctx.connection.state.client_software_name,
        "client_software_version": ctx.connection.state.client_software_version,
        "client_source_address": ctx.client_host,
        "client_source_port": str(ctx.connection.client_port),
    }
    metrics: set[str] = set()
    intervals: list[int] = []
    for values in node.client_telemetry.subscriptions(node.image.configs):
        if matches(values.get(MATCH, ""), properties):
            metrics.update(items(values.get(METRICS, "")))
            intervals.append(int(values.get(INTERVAL_MS) or CLIENT_METRICS_CONFIGS[INTERVAL_MS].default or 0))
    interval_ms = min(intervals, default=int(CLIENT_METRICS_CONFIGS[INTERVAL_MS].default or 0))
    chosen = (EVERY_METRIC,) if EVERY_METRIC in metrics else tuple(sorted(metrics))
    checksum = zlib.crc32(f"{chosen}{interval_ms}{client}".encode())
    return _Subscription(chosen, interval_ms, checksum - 2**31)


LISTED_WHERE_RECEIVED: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""What ApiVersions lists on nodes that receive metrics."""

ROWS: Final = (
    ApiRow(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        (0, 0),
        (),
        broker=handle_get,
        on_error=error_code_only,
        advertised=False,
    ),
    ApiRow(ApiKey.PUSH_TELEMETRY, (0, 0), (), broker=handle_push, on_error=error_code_only, advertised=False),
)
