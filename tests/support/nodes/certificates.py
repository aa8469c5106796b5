"""An authority and certificates of its making, by openssl: PEM files as nodes and clients read them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from kraft.local.free_ports import HOST


@dataclass(frozen=True)
class Authority:
    """Signs with its own key."""

    directory: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.directory / f"{self.name}.crt"

    @classmethod
    def create(cls, directory: Path, name: str) -> Authority:
        made = cls(directory, name)
        _openssl(
            "req", "-x509", *_NEW_KEY, "-keyout", directory / f"{name}.key", "-out", made.certificate,
            "-subj", f"/CN={name}", "-days", "2",
        )  # fmt: skip
        return made

    def issue(self, name: str, subject: str, *, days: int = 2) -> Path:
        """A private key and its certificate in one file, good for the loopback's address and so many days
        from now on; -1: until yesterday."""
        key, request, certificate = (self.directory / f"{name}.{end}" for end in ("key", "csr", "crt"))
        extensions = self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName=IP:{HOST}\n")
        _openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", subject)
        signer = ("-CA", self.certificate, "-CAkey", self.directory / f"{self.name}.key", "-CAcreateserial")
        wanted = ("-days", str(days), "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, *signer, *wanted, "-out", certificate)
        both = self.directory / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return both


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
