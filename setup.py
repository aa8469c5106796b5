"""Compiles the hot modules with mypyc into the wheel, or beside their sources in a checkout (`make fast`).

Only for KRAFT_COMPILE=1; without it the same modules run as Python. pyproject.toml lists them (tool.kraft).
They become one library, kraft/compiled__mypyc, since calls within a library are calls of C functions.
The C compiler is $CC, cc, gcc or clang; where there is none, zig's from PyPI (build_backend/kraft_build.py).

KRAFT_COMPILE=check (`make compiles`) stops before the C compiler: whether mypyc still takes the modules.
KRAFT_COMPILE_OPT is the C compiler's level, otherwise 3; 0 builds in a third of the time, and is slow.
"""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, setup

LIBRARY = "kraft.compiled"

# Types were checked by `make types`. Here nothing but setuptools and mypy is installed: what other packages
# give is Any, which compiles to ordinary Python calls.
MYPY_OPTIONS = ("--config-file=", "--ignore-missing-imports", "--follow-imports=silent")


def compiled_modules() -> list[str]:
    """Paths of the modules to compile."""
    settings = tomllib.loads(Path("pyproject.toml").read_text())
    return [name.replace(".", "/") + ".py" for name in settings["tool"]["kraft"]["compiled"]]


def extensions() -> list[Extension]:
    wanted = os.environ.get("KRAFT_COMPILE")
    if wanted not in ("1", "check") or "sdist" in sys.argv:
        return []
    if wanted == "1" and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        os.environ.setdefault("CC", f"{sys.executable} -m ziglang cc")
    from mypyc.build import mypycify

    level = os.environ.get("KRAFT_COMPILE_OPT", "3")
    paths = compiled_modules()
    made = mypycify([*MYPY_OPTIONS, *paths], group_name=LIBRARY, opt_level=level, debug_level="0")
    return made if wanted == "1" else []


setup(ext_modules=extensions())
