"""SaslHandshake and SaslAuthenticate: a connection gets its principal.

dispatcher: nothing but BEFORE_LOGIN until `Peer.authenticated`
SaslHandshake v1 -> net/sasl.PlainExchange or net/scram.ScramExchange -> SaslAuthenticate -> Peer.principal

With `connections.max.reauth.ms` set, a connection is no longer authenticated after that time; a client
logs in again before, as the same user by the same mechanism.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Final

from kraft.api.context import NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.net.connection_security import PLAIN, AuthenticationFailed
from kraft.net.peer import Peer
from kraft.net.sasl import Exchange, LoginRules, PlainExchange
from kraft.net.scram import ScramExchange
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.security.scram import BY_SASL_NAME

BEFORE_LOGIN: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})

_NONCE_BYTES: Final = 24
_MS: Final = 0.001


def handle_handshake(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    peer = ctx.connection
    rules = node.logins.get(peer.listener)
    again = peer.authenticated and not (rules and rules.lifetime_ms)
    if rules is None or again or peer.state.sasl_failed or peer.state.sasl_exchange is not None:
        return {"error_code": int(ErrorCode.ILLEGAL_SASL_STATE), "mechanisms": []}
    # Version 0 goes on with bare SASL messages instead of SaslAuthenticate; no client in use does.
    if ctx.version == 0 or request.mechanism not in rules.mechanisms:
        error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return {"error_code": int(error), "mechanisms": list(rules.mechanisms)}
    peer.state.sasl_exchange = _begin(node, rules, request.mechanism)
    return {"error_code": int(ErrorCode.NONE), "mechanisms": list(rules.mechanisms)}


def _begin(node: NodeContext, rules: LoginRules, mechanism: str) -> Exchange:
    if mechanism == PLAIN:
        return PlainExchange(rules.plain_users)
    users = node.scram_users
    assert users is not None
    nonce = base64.b64encode(node.random.randbytes(_NONCE_BYTES)).decode()
    return ScramExchange(BY_SASL_NAME[mechanism], users.find, nonce, users.decoy)


async def handle_authenticate(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    peer = ctx.connection
    exchange = peer.state.sasl_exchange
    if exchange is None:
        raise BrokerError(
            ErrorCode.ILLEGAL_SASL_STATE,
            "SaslAuthenticate request received after successful authentication or without a handshake",
        )
    rules = node.logins[peer.listener]
    try:
        if len(request.auth_bytes) > rules.max_message_bytes:
            raise AuthenticationFailed("Authentication failed: the message is longer than allowed")
        answer = exchange.step(bytes(request.auth_bytes))
        if exchange.user is not None:
            _admit(node, peer, exchange.mechanism, exchange.user, rules)
    except AuthenticationFailed as error:
        peer.state.sasl_exchange = None
        peer.state.sasl_failed = True
        peer.authenticated = False
        await asyncio.sleep(rules.refusal_delay_s)
        raise BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None
    lifetime_ms = rules.lifetime_ms if exchange.user is not None else 0
    return {
        "error_code": int(ErrorCode.NONE),
        "error_message": None,
        "auth_bytes": answer,
        "session_lifetime_ms": lifetime_ms,
    }


def _admit(node: NodeContext, peer: Peer, mechanism: str, user: str, rules: LoginRules) -> None:
    state = peer.state
    state.sasl_exchange = None
    if state.sasl_login is None:
        state.sasl_login = (mechanism, user)
    elif state.sasl_login != (mechanism, user):
        raise AuthenticationFailed("Cannot change principals during re-authentication")
    peer.principal = f"User:{user}"
    peer.authenticated = True
    if not rules.lifetime_ms:
        return
    if state.sasl_expiry is not None:
        peer.parked.pop(state.sasl_expiry)()
    key = state.sasl_expiry = node.loop.create_future()
    timer = node.loop.call_later(rules.lifetime_ms * _MS, setattr, peer, "authenticated", False)
    peer.parked[key] = timer.cancel


def handshake_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"error_code": int(code), "mechanisms": []}


ROWS: Final = (
    ApiRow(
        ApiKey.SASL_HANDSHAKE, (0, 1), (),
        node=handle_handshake, on_error=handshake_error, in_turn=True, exempt_from_quotas=True
    ),
    ApiRow(
        ApiKey.SASL_AUTHENTICATE, (0, 2), (),
        node=handle_authenticate, in_turn=True, exempt_from_quotas=True
    ),
)  # fmt: skip
