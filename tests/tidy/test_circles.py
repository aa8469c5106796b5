"""No module imports itself by way of others of its room, not even for its types."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePath
from typing import Final

from tests.tidy.sources import FLOORS, python_files, tree_of

KNOWN: Final = frozenset({"chaos/simulator"})
"""Rooms with a circle."""


def _imports(file: str) -> Iterator[str]:
    """The files that it may import by name; those of TYPE_CHECKING too."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            place = node.module.replace(".", "/")
            yield f"{place}.py"
            yield from (f"{place}/{alias.name}.py" for alias in node.names)


def test_no_circle_within_a_room():
    rooms: dict[str, dict[str, set[str]]] = {}
    for file in python_files(*FLOORS):
        room = str(PurePath(file).parent)
        rooms.setdefault(room, {})[file] = {f for f in _imports(file) if str(PurePath(f).parent) == room}
    circles = {}
    for room, imports in rooms.items():
        try:
            TopologicalSorter(imports).prepare()
        except CycleError as error:
            circles[room] = error.args[1]
    assert circles.keys() == KNOWN, circles
