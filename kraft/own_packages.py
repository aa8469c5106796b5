"""The packages that are installed beside `kraft`, and what to do where an application uses their names.

An application may have a fetch.py or a chaos/ of its own, and Python finds it before ours. So

- our own processes (nodes, Toxiproxy's keeper, the command line) look at our packages' place first;
- code that runs in an application's process (kraft.testing, the Spark connector) imports as few of them as it
  can, and calls `require` for those before it does.

They are not installed below `kraft.` instead (setuptools' package-dir): an editable install finds them there,
but mypy and import-linter look a package up by its folder, and find no `kraft.fetch`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGES: Final = ("kraft", "metadata_quorum", "data_plane", "fetch", "spark_connector", "chaos")
PLACE: Final = Path(__file__).resolve().parents[1]
"""The directory that all of them are in: site-packages, or a checkout."""


class ShadowedPackage(ImportError):
    """A file of the application has the name of a package of ours."""


def require(*packages: str) -> None:
    """Raises ShadowedPackage where an import of one of these would find another file or folder."""
    for name in packages:
        found = _found(name)
        if found is not None and not found.resolve().is_relative_to(PLACE / name):
            raise ShadowedPackage(
                f"{found} shadows kraft's package {name}: give it another name, or take {_entry(found)} off "
                "Python's path"
            )


def _found(name: str) -> Path | None:
    """The file (of a namespace package: the folder) that the import has found, or would; None: nothing."""
    loaded = sys.modules.get(name)
    spec = loaded.__spec__ if loaded is not None else find_spec(name)
    if spec is None:
        return None
    place = spec.origin if spec.has_location else next(iter(spec.submodule_search_locations or ()), None)
    return None if place is None else Path(place).absolute()


def _entry(found: Path) -> Path:
    """The entry of sys.path that a top-level module or package was found by."""
    return found.parents[1] if found.name == "__init__.py" else found.parent


def find_first() -> None:
    """For a process of ours, before it imports them: ours are found where the path would shadow one."""
    try:
        require(*PACKAGES)
    except ShadowedPackage:
        sys.path.insert(0, str(PLACE))


def own_environment() -> Mapping[str, str]:
    """This process's environment for a process of ours: PYTHONPATH cannot put another package before ours."""
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{PLACE}{os.pathsep}{path}"} if path else os.environ


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours; -P: the working directory is not on Python's path."""
    return [sys.executable, "-P", "-m", module, *arguments]
