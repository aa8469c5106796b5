"""Subjects of certificates as Java writes them, by which Kafka's principals and access control entries go."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from kraft.node.certificate_fields import distinguished_name
from tests.support.certificates import (
    BMP,
    COMMON_NAME,
    COUNTRY,
    EMAIL,
    IA5,
    ORGANIZATION,
    PRINTABLE,
    UID,
    UTF8,
    certificate,
)

pytestmark = pytest.mark.row("U4")


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ((), ""),
        ((((COUNTRY, PRINTABLE, b"NO"),), ((COMMON_NAME, UTF8, "Åse".encode()),)), "CN=Åse,C=NO"),
        ((((COMMON_NAME, UTF8, b"Anna"), (UID, UTF8, b"anna")),), "CN=Anna+UID=anna"),
        ((((ORGANIZATION, UTF8, b'Kraft, "Inc." <a+b>;\\'),),), r"O=Kraft\, \"Inc.\" \<a\+b\>\;\\"),
        ((((COMMON_NAME, UTF8, b"a=b#c"),),), r"CN=a\=b\#c"),
        ((((COMMON_NAME, UTF8, b"  two  "),),), r"CN=\ \ two\ \ "),
        ((((COMMON_NAME, UTF8, b"  "),),), r"CN=\ \ "),
        ((((COMMON_NAME, UTF8, b"a\0b"),),), r"CN=a\00b"),
        ((((COMMON_NAME, BMP, "Åse".encode("utf-16-be")),),), "CN=Åse"),
        (
            (((COMMON_NAME, UTF8, b"Anna"),), ((EMAIL, IA5, b"anna@x.no"),)),
            "1.2.840.113549.1.9.1=#1609616e6e6140782e6e6f,CN=Anna",
        ),
        ((((COMMON_NAME, 0x04, b"octets"),),), "CN=#04066f6374657473"),
        ((((COMMON_NAME, UTF8, b"\xff"),),), "CN=#0c01ff"),
        ((((COMMON_NAME, UTF8, b"x" * 300),),), "CN=" + "x" * 300),
        ((((("2.999.1"), UTF8, b"x"),),), "2.999.1=#0c0178"),
    ],
)  # fmt: skip
def test_subjects(subject: tuple[tuple[tuple[str, int, bytes], ...], ...], name: str) -> None:
    assert distinguished_name(certificate(*subject)) == name


@pytest.mark.parametrize("length", [0, 1, 20, 60])
def test_what_ends_too_early_names_nobody(length: int) -> None:
    with pytest.raises(ValueError):
        distinguished_name(certificate(((COMMON_NAME, UTF8, b"Anna"),))[:length])


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_certificate_that_openssl_has_made(tmp_path: Path) -> None:
    subject = "/DC=net/DC=example/C=NO/O=Kraft, Inc./CN=Anna/emailAddress=anna@x.no"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", "key", "-out", "crt", "-subj", subject],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    der = ssl.PEM_cert_to_DER_cert((tmp_path / "crt").read_text())
    email = "1.2.840.113549.1.9.1=#1609616e6e6140782e6e6f"
    assert distinguished_name(der) == rf"{email},CN=Anna,O=Kraft\, Inc.,C=NO,DC=example,DC=net"
