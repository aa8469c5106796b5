"""Whom a truststore makes a node trust: the same under every Python, and what Java's would."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from kraft.local.certificates import Authority
from kraft.local.free_ports import HOST
from kraft.net.connection_security import Tls, tls_context
from kraft.net.renewable_tls import check_agreement, new_context

pytestmark = pytest.mark.row("U4")

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@pytest.fixture
def as_newer_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 3.13 on contexts begin with these."""
    usual = ssl.create_default_context

    def strict(*args: object, **options: object) -> ssl.SSLContext:
        context = usual(*args, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


@pytest.mark.usefixtures("as_newer_pythons")
def test_an_authority_that_does_not_say_what_it_is_for(tmp_path: Path) -> None:
    """As `openssl req -x509` makes one. A cluster that has one ran until its Python was a newer one."""
    signed(tmp_path, "ca", by=None)
    signed(tmp_path, "node", by="ca")
    check_agreement(trusting(tmp_path / "ca.crt"), showing(tmp_path / "node.pem"))


def test_an_authority_in_the_middle_of_a_chain(tmp_path: Path) -> None:
    signed(tmp_path, "root", by=None)
    signed(tmp_path, "middle", by="root", extensions="basicConstraints=critical,CA:true")
    signed(tmp_path, "node", by="middle")
    check_agreement(trusting(tmp_path / "middle.crt"), showing(tmp_path / "node.pem"))


def test_nobody_else(tmp_path: Path) -> None:
    for name in ("ca", "other"):
        signed(tmp_path, name, by=None)
    signed(tmp_path, "node", by="ca")
    with pytest.raises(ssl.SSLCertVerificationError):
        check_agreement(trusting(tmp_path / "other.crt"), showing(tmp_path / "node.pem"))


@pytest.mark.usefixtures("as_newer_pythons")
def test_what_kraft_up_makes_is_trusted_by_clients_in_newer_pythons(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, "ca")
    client = ssl.create_default_context(cafile=str(authority.certificate))
    client.check_hostname = False
    check_agreement(client, showing(authority.issue("node", "/CN=node")))


def trusting(certificate: Path) -> ssl.SSLContext:
    return tls_context(Tls(ca_path=str(certificate), checks_host=False))


def showing(keystore: Path) -> ssl.SSLContext:
    context = new_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keystore)
    return context


def signed(
    directory: Path, name: str, *, by: str | None, extensions: str = f"subjectAltName=IP:{HOST}"
) -> None:
    """A key and its certificate, by itself or by an authority that was made before."""
    key, certificate = directory / f"{name}.key", directory / f"{name}.crt"
    subject = ("-subj", f"/CN={name}", "-keyout", key)
    if by is None:
        openssl("req", "-x509", *NEW_KEY, *subject, "-out", certificate, "-days", "2")
    else:
        request, wanted = directory / f"{name}.csr", directory / f"{name}.ext"
        wanted.write_text(extensions + "\n")
        openssl("req", *NEW_KEY, *subject, "-out", request)
        signer = ("-CA", directory / f"{by}.crt", "-CAkey", directory / f"{by}.key", "-CAcreateserial")
        openssl(
            "x509", "-req", "-in", request, *signer, "-extfile", wanted, "-days", "2", "-out", certificate
        )
    (directory / f"{name}.pem").write_text(key.read_text() + certificate.read_text())


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
