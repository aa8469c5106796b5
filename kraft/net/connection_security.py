"""TLS and SASL, the client's end: which certificates a connection trusts, and as which user it logs in.

    client = await dial(loop, address, client_id, ConnectionSecurity(renewable(tls), login), timeout_s=5)

SCRAM (RFC 5802, RFC 7677) is a plain object that turns the server's messages into ours; PLAIN is one message.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import os
import secrets
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from kraft.monitoring.rate_limited_log import rate_limited
from kraft.net.client import MAX_RESPONSE_BYTES, Address, OnLost, PeerClient, UnsupportedVersion
from kraft.net.renewable_tls import RenewableTls, new_context, what_failed
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage
from metadata_quorum.foundation.errors import ErrorCode

log = rate_limited(logging.getLogger(__name__))

_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSIONS: Final = (0, 2)

PLAIN: Final = "PLAIN"
SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = (PLAIN, *SCRAM_HASHES)

_AGREEMENT_S: Final = 5.0
_SAID_AGAIN_S: Final = 60.0

_NONCE_BYTES: Final = 24
_FEWEST_ITERATIONS: Final = 4096
_SHORT_ITERATIONS: Final = 16_384
"""The most that Kafka stores: some ten milliseconds of hashing. More of it is done beside the event loop."""
_MOST_ITERATIONS: Final = 1 << 20
"""A second of hashing; a server that requests more is hostile."""


class LoginRefused(ConnectionAbortedError):
    """The other end is there and does not let us in."""


class AuthenticationFailed(Exception):
    """The two ends do not accept each other. Trying again is no use."""


# ---- connections -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """How a connection is made: under TLS or not, with a login or without."""

    tls: RenewableTls | None = None
    login: Login | None = None


PLAINTEXT: Final = ConnectionSecurity()


async def dial(
    loop: asyncio.AbstractEventLoop,
    address: Address,
    client_id: str,
    security: ConnectionSecurity,
    *,
    timeout_s: float,
    on_lost: OnLost | None = None,
    max_response_bytes: int = MAX_RESPONSE_BYTES,
) -> PeerClient:
    """A connection that is ready for requests. Raises `OSError`; a refused login is one,
    `ConnectionAbortedError`. The TLS handshake and the login have `_AGREEMENT_S` instead, where that is
    longer."""
    if security is not PLAINTEXT:
        timeout_s = max(timeout_s, _AGREEMENT_S)
    tls = None if security.tls is None else security.tls.context
    try:
        client = await PeerClient.connect(
            loop,
            address,
            client_id,
            timeout_s=timeout_s,
            on_lost=on_lost,
            tls=tls,
            max_response_bytes=max_response_bytes,
        )
    except ssl.SSLError as error:
        if security.tls is not None:
            _say(security.tls, address, what_failed(error), loop.time())
        raise
    if security.login is None:
        return client
    try:
        await client.negotiate(timeout_s=timeout_s)
        await authenticate(client, security.login, timeout_s=timeout_s)
    except (AuthenticationFailed, UnsupportedVersion, MalformedMessage) as error:
        client.close()
        log.warning("%s does not let us in: %s", address, error)
        raise LoginRefused(str(error)) from None
    except BaseException:
        client.close()
        raise
    return client


def _say(tls: RenewableTls, address: Address, why: str, now: float) -> None:
    """Now and then, for it is tried again several times a second."""
    name = str(address)
    if now - tls.said_at.get(name, float("-inf")) >= _SAID_AGAIN_S:
        tls.said_at[name] = now
        log.warning("no connection to %s: TLS fails: %s", name, why)


# ---- TLS ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files, or their text where there is no path; without either, what the system trusts."""

    ca_path: str | None = None
    ca_pem: str | None = None
    certificate_path: str | None = None
    certificate_pem: str | None = None
    key_path: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    checks_certificate: bool = True
    checks_host: bool = True


def renewable(tls: Tls) -> RenewableTls:
    """As `tls_context`."""
    return RenewableTls(tls_context(tls))


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Raises `OSError` for files that cannot be read or are no PEM."""
    directory = tls.ca_path if tls.ca_path is not None and os.path.isdir(tls.ca_path) else None
    context = new_context(cafile=None if directory else tls.ca_path, capath=directory, cadata=tls.ca_pem)
    if not tls.checks_host or not tls.checks_certificate:
        context.check_hostname = False
    if not tls.checks_certificate:
        context.verify_mode = ssl.CERT_NONE
    if tls.certificate_path is not None or tls.certificate_pem is not None:
        with (
            _path_of(tls.certificate_path, tls.certificate_pem) as certificate,
            _path_of(tls.key_path, tls.key_pem) as key,
        ):
            # An empty password where none is given: else OpenSSL would prompt for it on the terminal.
            context.load_cert_chain(certificate or "", key, password=tls.key_password or "")
    return context


@contextmanager
def _path_of(path: str | None, pem: str | None) -> Iterator[str | None]:
    """OpenSSL reads certificates and keys from files only."""
    if path is not None or pem is None:
        yield path
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # readable by its owner alone
        file.write(pem)
        file.flush()
        yield file.name


# ---- SASL --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Login:
    """A user, and how the password is proved."""

    mechanism: str
    username: str
    password: str = field(repr=False)


async def authenticate(client: PeerClient, login: Login, *, timeout_s: float = 10.0) -> None:
    """After `negotiate`, before anything else. Raises `AuthenticationFailed`, or `OSError`."""
    handshake = {"mechanism": login.mechanism}
    answer = await client.request(ApiKey.SASL_HANDSHAKE, _HANDSHAKE_VERSION, handshake, timeout_s=timeout_s)
    if answer.error_code != ErrorCode.NONE:
        offered = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationFailed(f"SASL mechanism {login.mechanism} is not offered; these are: {offered}")
    version = client.version_of(ApiKey.SASL_AUTHENTICATE, *_AUTHENTICATE_VERSIONS)

    async def exchange(message: bytes) -> bytes:
        answer = await client.request(
            ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": message}, timeout_s=timeout_s
        )
        if answer.error_code != ErrorCode.NONE:
            raise AuthenticationFailed(answer.error_message or ErrorCode(answer.error_code).name)
        return bytes(answer.auth_bytes)

    if login.mechanism == PLAIN:
        await exchange(b"\0".join((b"", login.username.encode(), login.password.encode())))
        return
    scram = ScramClient(login, nonce=base64.b64encode(secrets.token_bytes(_NONCE_BYTES)).decode())
    challenge = await exchange(scram.first_message())
    if scram.takes_long(challenge):
        proof = await asyncio.get_running_loop().run_in_executor(None, scram.answer, challenge)
    else:
        proof = scram.answer(challenge)
    scram.check(await exchange(proof))


class ScramClient:
    """One authentication: `first_message`, then `answer` to the server's, then `check` its last."""

    def __init__(self, login: Login, *, nonce: str) -> None:
        self._hash = SCRAM_HASHES[login.mechanism]
        self._password = login.password.encode()
        self._nonce = nonce
        name = login.username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._signature = b""

    def first_message(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def takes_long(self, challenge: bytes) -> bool:
        """Whether the answer takes more hashing than an event loop should wait for."""
        try:
            return _SHORT_ITERATIONS < int(_fields(challenge)["i"]) <= _MOST_ITERATIONS
        except (KeyError, ValueError):
            return False

    def answer(self, challenge: bytes) -> bytes:
        """The proof that we know the password. Raises AuthenticationFailed."""
        fields = _fields(challenge)
        try:
            nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
        except (KeyError, ValueError):
            raise AuthenticationFailed("the server's SCRAM challenge is malformed") from None
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationFailed("the server's SCRAM nonce is not made from ours")
        if not _FEWEST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
            raise AuthenticationFailed(f"the server asks for {iterations} SCRAM iterations")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        without_proof = f"c=biws,r={nonce}"  # biws: "n,,", that is, no channel binding
        signed = b",".join((self._first_bare.encode(), challenge, without_proof.encode()))
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored_key, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, verdict: bytes) -> None:
        """Check that the server knows the password too. Raises AuthenticationFailed if it does not."""
        fields = _fields(verdict)
        if "e" in fields:
            raise AuthenticationFailed(f"SCRAM: {fields['e']}")
        if not hmac.compare_digest(fields.get("v", "").encode(), base64.b64encode(self._signature)):
            raise AuthenticationFailed("the server does not know the password that it asks for")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    """r=...,s=...,i=...: by their one-letter names."""
    pairs = (part.partition("=") for part in message.decode("ascii", "replace").split(","))
    return {name: value for name, _, value in pairs}
