"""How this installation runs: its hot modules compiled by mypyc (setup.py), or all of it as Python.

The same source either way: Python finds an extension module before the .py beside it. Also one that was built
before that source was changed: it then answers callers that are newer with errors. In a checkout a node does
not start so (`make fast` or `make pure`); an installation has both from one wheel.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

from kraft.own_packages import PACKAGES
from metadata_quorum.foundation.errors import ExitCode, FatalError

LIBRARY: Final = "kraft.compiled__mypyc"


def variant() -> str:
    """`compiled` or `pure Python`."""
    return "pure Python" if find_spec(LIBRARY) is None else "compiled"


def described() -> str:
    """`kraft 0.1.0, compiled`."""
    try:
        number = version("kraft")
    except PackageNotFoundError:  # a checkout on PYTHONPATH
        number = "(not installed)"
    return f"kraft {number}, {variant()}"


def refuse_stale_modules() -> None:
    """Raises FatalError where a checkout's compiled modules are not its sources."""
    is_checkout = Path(__file__).parents[1].joinpath("pyproject.toml").exists()
    if is_checkout and (names := stale_modules(list(sys.modules.values()))):
        raise FatalError(
            ExitCode.REFUSED,
            f"compiled from an older source: {', '.join(names)}. `make fast` compiles them again,"
            " `make pure` removes them",
        )


def stale_modules(imported: Iterable[ModuleType]) -> list[str]:
    """Our extension modules among them that are older than the source beside them."""
    suffix = EXTENSION_SUFFIXES[0]
    names = []
    for each in imported:
        path = getattr(each, "__file__", None)
        is_ours = each.__name__.partition(".")[0] in PACKAGES
        if is_ours and path is not None and path.endswith(suffix):
            source = Path(path.removesuffix(suffix) + ".py")
            if source.exists() and Path(path).stat().st_mtime < source.stat().st_mtime:
                names.append(each.__name__)
    return sorted(names)
