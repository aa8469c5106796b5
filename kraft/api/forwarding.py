"""Requests that only the active controller can decide, sent on by the broker that received them.

    client -> broker: forward -> Envelope -> controller: dispatch.py opens it -> the wrapped request's handler
    client <- broker <-------- response bytes as they are <---------------- its response

The envelope carries the request as it came (header and body), its principal and the client's address, so
the controller authorizes the client, and answers in the client's version.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final

from kraft.api.authz.checks import CLUSTER_ACTION
from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.throttling import MS_PER_S, THROTTLE_TIME_MS, throttle_connection
from kraft.net.connection import Buffers
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, response_has
from kraft.wire.header import request_header, response_body
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.primitives import INT32, compact_string, read_compact_string

ENVELOPE_VERSION: Final = 0

_PRINCIPAL_VERSION: Final = struct.pack(">h", 0)


async def forward(node: NodeContext, ctx: RequestContext, body: memoryview) -> Buffers:
    """The whole reply to a client's request, as the active controller gave it. Raises `BrokerError`
    if no controller answered, or if it refused the envelope."""
    header = request_header(ctx.api_key, ctx.version, ctx.correlation_id, ctx.client_id)
    envelope = {
        "request_data": header + bytes(body),
        "request_principal": encode_principal(ctx.principal),
        "client_host_address": _encode_address(ctx.client_host),
    }
    answer = await node.controller_channel.request(ApiKey.ENVELOPE, ENVELOPE_VERSION, envelope)
    if answer.error_code != ErrorCode.NONE:
        raise BrokerError(ErrorCode(answer.error_code))
    wrapped = memoryview(answer.response_data)
    reply = wrapped[response_body(ctx.api_key, ctx.version, wrapped) :]
    if ctx.work is not None and response_has(ctx.api_key, THROTTLE_TIME_MS):
        (pause_ms,) = INT32.unpack_from(reply)  # the first field of all that are forwarded and have it
        throttle_connection(ctx, pause_ms / MS_PER_S)
    return ctx.framed((reply,))


def encode_principal(principal: str) -> bytes:
    """Kafka's DefaultPrincipalData, version 0:
    int16 version | compact string type | compact string name | bool by token | no tagged fields."""
    kind, _, name = principal.partition(":")
    words = b"".join(compact_string(word) for word in (kind, name))
    return _PRINCIPAL_VERSION + words + b"\x00\x00"


def decode_principal(data: bytes) -> str:
    """Such as User:anna. Raises `BrokerError` (PRINCIPAL_DESERIALIZATION_FAILURE)."""
    view = memoryview(data)
    try:
        if bytes(view[:2]) != _PRINCIPAL_VERSION:
            raise ValueError("an unknown version")
        kind, pos = read_compact_string(view, 2)
        name, pos = read_compact_string(view, pos)
    except (ValueError, IndexError) as error:
        raise BrokerError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    return f"{kind}:{name}"


def _encode_address(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)


def decode_address(packed: bytes) -> str:
    """The client's host in an envelope. Raises `BrokerError` (INVALID_REQUEST)."""
    try:
        return str(ipaddress.ip_address(packed))
    except ValueError:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "the client's address is none") from None


def envelope_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"error_code": int(code), "response_data": None}


ROWS: Final = (ApiRow(ApiKey.ENVELOPE, (0, 0), (CLUSTER_ACTION,), on_error=envelope_error),)
"""Without a handler: the dispatcher opens envelopes."""
