"""SaslHandshake and SaslAuthenticate: a connection becomes somebody's.

dispatcher: nothing but BEFORE_LOGIN until `Peer.authenticated`
SaslHandshake v1 -> net/sasl.PlainExchange -> SaslAuthenticate -> Peer.principal
"""

from __future__ import annotations

import asyncio
from typing import Final

from kraft.api.row import EVERYWHERE, ApiRow, Response
from kraft.context import NodeContext, RequestContext
from kraft.net.sasl import PlainExchange
from kraft.net.security import SASL_AUTHENTICATE, SASL_HANDSHAKE, AuthenticationFailed
from kraft.wire.bridge import Message
from kraft.wire.header import API_VERSIONS
from metadata_quorum.errors import BrokerError, ErrorCode

BEFORE_LOGIN: Final = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})

_EXCHANGE: Final = "sasl_exchange"
"""In a connection's state: the login under way."""
_REFUSED: Final = "sasl_refused"


def handle_handshake(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    peer = ctx.connection
    rules = node.logins.get(peer.listener)
    if rules is None or peer.authenticated or _REFUSED in peer.state or _EXCHANGE in peer.state:
        return {"error_code": int(ErrorCode.ILLEGAL_SASL_STATE), "mechanisms": []}
    # Version 0 goes on with bare SASL messages instead of SaslAuthenticate; no client in use does.
    if ctx.version == 0 or request.mechanism not in rules.mechanisms:
        error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return {"error_code": int(error), "mechanisms": list(rules.mechanisms)}
    peer.state[_EXCHANGE] = PlainExchange(rules.plain_users)
    return {"error_code": int(ErrorCode.NONE), "mechanisms": list(rules.mechanisms)}


async def handle_authenticate(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    peer = ctx.connection
    exchange: PlainExchange | None = peer.state.get(_EXCHANGE)
    if exchange is None:
        raise BrokerError(
            ErrorCode.ILLEGAL_SASL_STATE,
            "SaslAuthenticate request received after successful authentication or without a handshake",
        )
    try:
        answer = exchange.step(bytes(request.auth_bytes))
    except AuthenticationFailed as error:
        del peer.state[_EXCHANGE]
        peer.state[_REFUSED] = True
        await asyncio.sleep(node.logins[peer.listener].refusal_delay_s)
        raise BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None
    if exchange.user is not None:
        del peer.state[_EXCHANGE]
        peer.principal = f"User:{exchange.user}"
        peer.authenticated = True
    return {"error_code": int(ErrorCode.NONE), "error_message": None, "auth_bytes": answer}


def handshake_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"error_code": int(code), "mechanisms": []}


ROWS: Final = (
    ApiRow(
        SASL_HANDSHAKE, "SaslHandshake", 0, 1, EVERYWHERE, handle_handshake,
        on_error=handshake_error, in_turn=True,
    ),
    ApiRow(SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, EVERYWHERE, handle_authenticate, in_turn=True),
)  # fmt: skip
