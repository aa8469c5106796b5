"""The build backend: setuptools', which installs mypy first where the hot modules are to be compiled.

    KRAFT_COMPILE=1 pip install .     a wheel of this platform, with what pyproject.toml lists compiled
    pip install .                     a wheel of Python alone; neither mypy nor a C compiler is asked for

Which modules and how: setup.py. With SOURCE_DATE_EPOCH the same sources give the same bytes, those of the
sdist included. There is no hook for the metadata alone: frontends then take it from the wheel, and nothing is
compiled twice.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import build_editable, build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_wheel",
]

COMPILER = "mypy>=2.4"
C_COMPILER = "ziglang>=0.13"  # clang and a linker in a wheel


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    wanted = os.environ.get("KRAFT_COMPILE")
    if wanted == "check":
        return [COMPILER]
    if wanted != "1":
        return []
    return [COMPILER] if any(map(shutil.which, ("cc", "gcc", "clang"))) else [COMPILER, C_COMPILER]


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    name: str = build_meta.build_sdist(sdist_directory, config_settings)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is not None:
        _make_reproducible(Path(sdist_directory) / name, int(epoch))
    return name


def _make_reproducible(path: Path, epoch: int) -> None:
    """setuptools takes the files' own times and owners, and the time of packing."""
    packed = io.BytesIO()
    with (
        tarfile.open(path) as source,
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
    path.write_bytes(packed.getvalue())


get_requires_for_build_editable = get_requires_for_build_wheel
