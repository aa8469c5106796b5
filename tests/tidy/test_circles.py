"""No module imports itself by way of others, not even for its types, nor inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from tests.tidy.sources import FLOORS, nodes_of, python_files


def _files(module: str) -> Iterator[str]:
    """Where a module of that name may lie."""
    place = module.replace(".", "/")
    yield f"{place}.py"
    yield f"{place}/__init__.py"


def _imports(file: str) -> Iterator[str]:
    """The files that it may import, wherever in it; those of TYPE_CHECKING too."""
    for node in nodes_of(file):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield from _files(alias.name)
            case ast.ImportFrom(module=module, names=names):
                assert module is not None, f"{file}: a relative import"
                for name in (module, *(f"{module}.{alias.name}" for alias in names)):
                    yield from _files(name)


def test_no_circle_of_imports() -> None:
    files = frozenset(python_files(*FLOORS))
    try:
        TopologicalSorter({file: files.intersection(_imports(file)) for file in files}).prepare()
    except CycleError as error:
        circle = error.args[1]
        raise AssertionError(" -> ".join(circle)) from None
