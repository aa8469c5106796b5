"""An authority and certificates of its making, by openssl: PEM files as nodes and clients read them.

For clusters on this machine (`kraft up --tls`) and for tests; nobody else should trust it.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraft.local.free_ports import HOST
from metadata_quorum.foundation.disk import PRIVATE_FILE
from metadata_quorum.foundation.errors import ExitCode, FatalError

DAYS: Final = 3650


@dataclass(frozen=True)
class Authority:
    """Signs with its own key."""

    directory: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.directory / f"{self.name}.crt"

    def keystore(self, name: str) -> Path:
        """What `issue` makes under this name."""
        return self.directory / f"{name}.pem"

    @classmethod
    def create(cls, directory: Path, name: str) -> Authority:
        """Raises FatalError where there is no openssl."""
        made = cls(directory, name)
        _openssl(
            "req", "-x509", *_NEW_KEY, "-keyout", directory / f"{name}.key", "-out", made.certificate,
            "-subj", f"/CN={name}", "-days", str(DAYS), "-addext", _SIGNS,
        )  # fmt: skip
        return made

    def issue(self, name: str, subject: str, *, days: int = DAYS) -> Path:
        """A private key and its certificate in one file, good for the loopback's address and so many days
        from now on; -1: until yesterday."""
        key, request, certificate = (self.directory / f"{name}.{end}" for end in ("key", "csr", "crt"))
        extensions = self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName=IP:{HOST},DNS:localhost\nauthorityKeyIdentifier=keyid\n")
        _openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", subject)
        signer = ("-CA", self.certificate, "-CAkey", self.directory / f"{self.name}.key", "-CAcreateserial")
        wanted = ("-days", str(days), "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, *signer, *wanted, "-out", certificate)
        both = self.keystore(name)
        both.touch(PRIVATE_FILE)
        both.write_text(key.read_text() + certificate.read_text())
        return both


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_SIGNS = "keyUsage=critical,keyCertSign,cRLSign"
"""RFC 5280 wants it of an authority, and its key's identifier in what it signs; clients in Python from 3.13
on take no less."""


def _openssl(*arguments: str | Path) -> None:
    if shutil.which("openssl") is None:
        raise FatalError(ExitCode.MISSING_TOOL, "certificates are made by openssl, which is not on PATH")
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FatalError(ExitCode.MISSING_TOOL, f"openssl {arguments[0]}: {done.stderr.strip()}")
