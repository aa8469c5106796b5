"""Why a node gave no answer, from whoever it is that listens there."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kraft.cli.bootstrap import first_broker
from kraft.cli.errors import CliError
from kraft.cli.silence import silence_of
from kraft.net.connection_security import ConnectionSecurity
from kraft.net.renewable_tls import RenewableTls
from kraft.peers.blocking_client import SECURITY


@pytest.fixture
def closing() -> Iterator[str]:
    """An address where every connection is closed at its first bytes, as a TLS port does to plain text."""
    with answering(b"") as address:
        yield address


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """An address where that is the answer to anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_plain_text_to_who_wants_something_else(closing: str) -> None:
    with pytest.raises(CliError, match=f"^{closing} closes the connection: it may want TLS or a login"):
        first_broker(closing)


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x0a", b"\x7f\xff\xff\xff", b"\0\0\0\0"],
    ids=["HTTP", "TLS", "two gigabytes", "nothing"],
)
def test_what_is_no_answer_of_a_broker_is_refused_at_its_first_bytes(answer: bytes) -> None:
    says = "does not answer as a broker .*a frame of .* it may want TLS or a login"
    with answering(answer) as address, pytest.raises(CliError, match=says):
        first_broker(address)


def test_tls_to_who_does_not_speak_it(closing: str) -> None:
    token = SECURITY.set(ConnectionSecurity(RenewableTls(ssl.create_default_context()), None))
    try:
        with pytest.raises(CliError, match=f"^{closing} .*not speak TLS"):
            first_broker(closing)
    finally:
        SECURITY.reset(token)


def test_a_name_that_is_none() -> None:
    assert silence_of(socket.gaierror(-2, "Name or service not known")) == "is not the name of a host"


def test_a_certificate_of_somebody_else() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.reason, error.verify_message = "CERTIFICATE_VERIFY_FAILED", "self-signed certificate"
    assert silence_of(error) == "has a certificate that we do not trust: self-signed certificate"
