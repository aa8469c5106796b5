"""Requests that only the active controller can decide, sent on by the broker that received them.

    client -> broker: forward -> Envelope -> controller: dispatch.py opens it -> the wrapped request's handler
    client <- broker <-------- response bytes as they are <---------------- its response

What the envelope holds is in envelope.py.
"""

from __future__ import annotations

from typing import Final

from kraft.api.context import NodeContext
from kraft.api.envelope import ENVELOPE_VERSION, seal_request
from kraft.api.request_context import RequestContext
from kraft.api.throttling import MS_PER_S, THROTTLE_TIME_MS, throttle_connection
from kraft.net.connection import Buffers
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import response_has
from kraft.wire.header import response_body
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.primitives import INT32

ENVELOPE_BYTES: Final = 256
"""What an envelope and its header add to the request inside, at most."""


async def forward(node: NodeContext, ctx: RequestContext, body: memoryview) -> Buffers:
    """The whole reply to a client's request, as the active controller gave it. Raises `BrokerError`
    if no controller answered, or if it refused the envelope."""
    envelope = seal_request(ctx, body)
    if sum(map(len, envelope.values())) + ENVELOPE_BYTES > node.config.socket_request_max_bytes:
        # The controller would end the connection, on which other clients' requests wait.
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{len(body)} bytes are too many to be forwarded")
    answer = await node.controller_channel.request(ApiKey.ENVELOPE, ENVELOPE_VERSION, envelope)
    if answer.error_code != ErrorCode.NONE:
        raise BrokerError(ErrorCode(answer.error_code))
    wrapped = memoryview(answer.response_data)
    reply = wrapped[response_body(ctx.api_key, ctx.version, wrapped) :]
    if ctx.cost is not None and response_has(ctx.api_key, THROTTLE_TIME_MS):
        (pause_ms,) = INT32.unpack_from(reply)  # the first field of all that are forwarded and have it
        throttle_connection(ctx, pause_ms / MS_PER_S)
    return ctx.framed((reply,))
