"""The build backend: setuptools', which installs mypy first where the hot modules are to be compiled.

    KRAFT_COMPILE=1 pip install .     a wheel of this platform, with what pyproject.toml lists compiled
    pip install .                     a wheel of Python alone; neither mypy nor a C compiler is asked for

Which modules and how: setup.py. There is no hook for the metadata alone: frontends then take it from the
wheel, and nothing is compiled twice.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

from setuptools.build_meta import build_editable, build_sdist, build_wheel

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


get_requires_for_build_editable = get_requires_for_build_wheel
