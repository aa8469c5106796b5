"""Which of the two the tests run, compiled modules or Python; never the compiled form of an older source."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

import pytest

from kraft.own_packages import PACKAGES
from kraft.variant import LIBRARY, described, variant

ROOT: Final = Path(__file__).parents[3]
SUFFIX: Final = EXTENSION_SUFFIXES[0]


def listed_modules() -> list[str]:
    """What `make fast` compiles."""
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["kraft"]["compiled"])


def stale(root: Path, listed: Collection[str]) -> list[str]:
    """Extension modules that were built before their source last changed, or for an earlier list."""
    found = {
        ".".join(path.relative_to(root).parts).removesuffix(SUFFIX): path
        for package in PACKAGES
        for path in (root / package).rglob(f"*{SUFFIX}")
    }
    found.pop(LIBRARY, None)
    return sorted(
        name
        for name, path in found.items()
        if name not in listed or path.stat().st_mtime < source_of(root, name).stat().st_mtime
    )


def source_of(root: Path, module: str) -> Path:
    return root / f"{module.replace('.', '/')}.py"


def pytest_configure() -> None:
    if older := stale(ROOT, listed_modules()):
        raise pytest.UsageError(
            f"compiled from another source: {', '.join(older)}; `make fast` or `make pure`"
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """C code calls C code: what is put in the place of a compiled method is never called."""
    if variant() == "compiled":
        for item in items:
            if (mark := item.get_closest_marker("pure")) is not None:
                item.add_marker(pytest.mark.skip(reason=f"compiled: {mark.args[0]}"))


def pytest_report_header() -> str:
    return described()
