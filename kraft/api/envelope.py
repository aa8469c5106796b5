"""What an Envelope carries: a client's request that a broker forwards, and the response to it.

    broker, forwarding.py: seal_request -> Envelope -> controller, dispatch.py: open_envelope -> its handler
    client <- header and body of the response <- EnvelopeResponse <- seal_reply <--------------- response

The request travels as it came (header and body), with its principal and the client's address: the controller
authorizes the client, and answers in the client's version.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, cast

from kraft.api.authz.checks import CLUSTER_ACTION
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.net.connection import Buffers, BytesLike
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Fields, MalformedMessage, Message
from kraft.wire.header import MalformedHeader, RequestHeader, read_request_header, request_header
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.primitives import compact_string, read_compact_string

ENVELOPE_VERSION: Final = 0

_PRINCIPAL_VERSION: Final = struct.pack(">h", 0)


class EnclosedRequest(NamedTuple):
    """A client's request in an envelope, not decoded yet."""

    row: ApiRow
    header: RequestHeader
    body: memoryview


def seal_request(ctx: RequestContext, body: memoryview) -> Fields:
    """The envelope around a client's request."""
    header = request_header(ctx.api_key, ctx.version, ctx.correlation_id, ctx.client_id)
    return {
        "request_data": header + bytes(body),
        "request_principal": encode_principal(ctx.principal),
        "client_host_address": encode_address(ctx.client_host),
    }


def open_envelope(envelope: Message, rows: Mapping[int, ApiRow]) -> EnclosedRequest:
    """The request inside. Raises `BrokerError` (INVALID_REQUEST) unless `rows` has its API and version, and
    brokers forward it."""
    try:
        frame = memoryview(envelope.request_data)
        header = read_request_header(frame)
    except (MalformedHeader, MalformedMessage) as error:
        raise BrokerError(ErrorCode.INVALID_REQUEST) from error
    row = rows.get(header.api_key)
    if row is None or row.forwarded is None or not row.answers(header.version):
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    return EnclosedRequest(row, header, frame[header.body :])


def client_context(ctx: RequestContext, envelope: Message, enclosed: EnclosedRequest) -> RequestContext:
    """The context of the request inside: its client's, on the connection of the envelope. Raises
    `BrokerError` (PRINCIPAL_DESERIALIZATION_FAILURE, INVALID_REQUEST)."""
    header = enclosed.header
    return replace(
        ctx,
        api_key=enclosed.row.key,
        version=header.version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        principal=decode_principal(envelope.request_principal or b""),
        forwarded_for=decode_address(envelope.client_host_address),
    )


def seal_reply(client: RequestContext, reply: Buffers) -> Response:
    """The envelope around the reply to the request of `client`."""
    if client.lost_controller:  # of no use to the client: its broker looks for the new one
        return {"error_code": int(ErrorCode.NOT_CONTROLLER), "response_data": None}
    return {"error_code": int(ErrorCode.NONE), "response_data": _joined(reply)[4:]}  # without its length


def _joined(reply: Buffers) -> bytes:
    return b"".join(cast(Sequence[BytesLike], reply))  # nobody's fetches come in envelopes


def envelope_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"error_code": int(code), "response_data": None}


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


def encode_address(host: str) -> bytes:
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


ROWS: Final = (ApiRow(ApiKey.ENVELOPE, (0, 0), (CLUSTER_ACTION,), on_error=envelope_error),)
"""Envelopes have no handler: the dispatcher opens them."""
