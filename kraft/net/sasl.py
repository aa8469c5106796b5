"""SASL, the server's end: the mechanisms of a listener, and a login in progress.

    SaslHandshake -> an Exchange -> SaslAuthenticate -> step(message) -> response, until `user` is set

PLAIN is here, SCRAM in scram.py, the client's end in connection_security.py. Every failure is
`AuthenticationFailed`, whose text does not show whether the name or the password was wrong.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kraft.net.connection_security import PLAIN, AuthenticationFailed


@dataclass(frozen=True, slots=True)
class LoginRules:
    """What a listener accepts."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """PLAIN: user -> password."""
    refusal_delay_s: float = 0.0
    lifetime_ms: int = 0
    """After this a client must log in again; 0: never."""
    max_message_bytes: int = 512 * 1024
    """Bound of the client's SASL messages, even when it logs in again and may send large frames."""


class Exchange(Protocol):
    """One login in progress."""

    mechanism: str
    user: str | None
    """Who has proved to be; None until then."""

    def step(self, message: bytes) -> bytes:
        """The answer to a message. Raises `AuthenticationFailed`."""


class PlainExchange:
    """RFC 4616: authorization id | NUL | user | NUL | password."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.mechanism = PLAIN
        self.user: str | None = None

    def step(self, message: bytes) -> bytes:
        """Raises AuthenticationFailed."""
        try:
            authorization_id, user, password = message.decode().split("\0", 3)
        except ValueError:  # also for what is not UTF-8
            raise AuthenticationFailed("Authentication failed: the PLAIN message is malformed") from None
        known = self._passwords.get(user, "")
        right = hmac.compare_digest(known.encode(), password.encode()) and user in self._passwords
        if not right or not password:
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = user
        return b""
