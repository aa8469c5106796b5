"""SCRAM by the examples of its RFCs, and a server that does not play by them; TLS files that are no use."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.net import connection_security
from kraft.net.connection_security import (
    AuthenticationFailed,
    Login,
    ScramClient,
    Tls,
    authenticate,
    tls_context,
)
from kraft.wire.api_keys import ApiKey

pytestmark = pytest.mark.row("U4")

# RFC 7677, section 3.
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram(username: str = "user", password: str = "pencil") -> ScramClient:
    return ScramClient(Login("SCRAM-SHA-256", username, password), nonce="rOprNGfwEbeRWgbNEkqO")


def test_the_exchange_of_the_rfc() -> None:
    client = scram()
    assert client.first_message() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.answer(CHALLENGE) == PROOF
    client.check(VERDICT)


def test_names_are_escaped() -> None:
    assert scram("a=b,c").first_message() == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",  # adds nothing of its own
        b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO1,s=?,i=x",
        b"r=rOprNGfwEbeRWgbNEkqO1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1",  # gives the password away
        b"r=rOprNGfwEbeRWgbNEkqO1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=2000000000",
        b"r=rOprNGfwEbeRWgbNEkqO1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1048577",  # more than a second of hashing
    ],
)
def test_challenges_that_are_not_answered(challenge: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        scram().answer(challenge)


class Server:
    """Asks for that many iterations, and never lets anybody in."""

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations

    def version_of(self, api_key: ApiKey, low: int, high: int) -> int:
        return high

    async def request(self, api_key: ApiKey, version: int, fields: Any, *, timeout_s: float) -> Any:
        said = fields.get("auth_bytes", b"").decode()
        salt = base64.b64encode(b"salt of the sea").decode()
        nonce = said.partition(",r=")[2]
        text = f"r={nonce}1,s={salt},i={self.iterations}" if said.startswith("n,,") else "v=nothing"
        return SimpleNamespace(error_code=0, auth_bytes=text.encode())


@pytest.mark.parametrize(("iterations", "beside"), [(4096, False), (16_384, False), (16_385, True)])
def test_many_iterations_are_hashed_beside_the_loop(
    iterations: int, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def hashed(*args: Any) -> bytes:
        threads.append(threading.get_ident())
        return hashlib.pbkdf2_hmac(*args)

    monkeypatch.setattr(connection_security, "hashlib", SimpleNamespace(pbkdf2_hmac=hashed, new=hashlib.new))
    server: Any = Server(iterations)
    with pytest.raises(AuthenticationFailed, match="does not know the password"):
        asyncio.run(authenticate(server, Login("SCRAM-SHA-256", "anna", "geheim")))
    assert (threads != [threading.get_ident()]) == beside


@pytest.mark.parametrize("verdict", [b"", b"e=invalid-proof", VERDICT.replace(b"6", b"7"), b"v=\xff"])
def test_servers_that_prove_nothing(verdict: bytes) -> None:
    client = scram()
    client.answer(CHALLENGE)
    with pytest.raises(AuthenticationFailed):
        client.check(verdict)


def test_secrets_are_not_shown() -> None:
    shown = repr(Login("PLAIN", "anna", "geheim")) + repr(Tls(key_pem="geheim", key_password="geheim"))
    assert "anna" in shown
    assert "geheim" not in shown


def test_what_is_no_certificate(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    with pytest.raises(OSError):
        tls_context(Tls(ca_path=str(tmp_path / "ca.pem")))
    with pytest.raises(OSError):
        tls_context(Tls(ca_path=str(tmp_path / "nothing.pem")))
