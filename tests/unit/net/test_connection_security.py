"""SCRAM by the examples of its RFCs, and a server that does not play by them; TLS files that are no use."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.net.connection_security import AuthenticationFailed, Login, ScramClient, Tls, tls_context

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
    ],
)
def test_challenges_that_are_not_answered(challenge: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        scram().answer(challenge)


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
