"""A test uses what others may use: no private name of a module or an object that is not its own, and nothing
out of another file of tests.

What a test must see is a true observation point, and public; anything else is an implementation that it need
not know. The exceptions are listed, with their reasons, and the lists only shrink.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from tests.tidy.sources import nodes_of, python_files, tree_of

FOREIGN: Final = frozenset({"_replace", "_asdict", "_exit", "_gateway", "_jdf"})
"""Of named tuples, of `os`, and of PySpark, which gives no other way to its JVM."""
FOREIGN_OWNERS: Final = frozenset({"KafkaError"})
"""Its constants begin so."""
REFLECTION: Final = frozenset({"getattr", "setattr", "delattr"})

TEST_FILES: Final = frozenset(f for f in python_files("tests") if f.rpartition("/")[2].startswith("test_"))

EXCEPTIONS: Final[dict[str, dict[str, frozenset[str]]]] = {
    "a mutant takes the place of what is hidden, and the test must fail": {
        "tests/seeds/test_raft_seeds.py": frozenset({"_rewrite"}),
        "tests/unit/raft/test_acks.py": frozenset({"_heard"}),
        "tests/unit/raft/test_every_disk_operation.py": frozenset({"_rewrite"}),
        "tests/unit/raft/test_snapshots.py": frozenset({"_adopt", "_read"}),
    },
    "PySyncObj's own name, which Raft overrides": {
        "tests/unit/raft/test_proposals.py": frozenset({"_applyCommand"}),
    },
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name != "_"


def own_names(tree: ast.Module) -> Iterator[str]:
    """Private names that the file itself gives: to functions, classes, attributes of `self`."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def private_names(tree: ast.Module) -> Iterator[str]:
    """Private names of others that a file reads, sets or imports."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=("self" | "cls"))):
                pass
            case ast.Attribute(value=ast.Name(id=owner)) if owner in FOREIGN_OWNERS:
                pass
            case ast.Attribute(attr=name) if is_private(name):
                yield name
            case ast.ImportFrom(names=names):
                yield from (alias.name for alias in names if is_private(alias.name))
            case ast.Call(func=function, args=[_, ast.Constant(value=str(name)), *_]) if is_private(name):
                if ast.unparse(function).rpartition(".")[2] in REFLECTION:
                    yield name


def found() -> dict[str, frozenset[str]]:
    names: dict[str, frozenset[str]] = {}
    for file in python_files("tests"):
        tree = tree_of(file)
        if used := frozenset(private_names(tree)) - frozenset(own_names(tree)) - FOREIGN:
            names[file] = used
    return names


def test_no_test_reaches_into_others():
    excused: dict[str, frozenset[str]] = defaultdict(frozenset)
    for exceptions in EXCEPTIONS.values():
        for file, names in exceptions.items():
            excused[file] |= names
    assert found() == dict(excused), "another's private name; or listed, and no longer used"


def test_no_file_of_tests_takes_from_another():
    """What two of them need stands beside them in a file of its own, or in tests/support."""
    taken = [
        f"{file}: {node.module}"
        for file in python_files("tests")
        for node in nodes_of(file)
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        if f"{name.replace('.', '/')}.py" in TEST_FILES
    ]
    assert taken == []
