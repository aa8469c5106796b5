"""What mypyc compiles gives a handler's name one type in all of a function. Where that is an exception class
that is compiled itself, another one that a later handler gives the same name is a TypeError, only there."""

from __future__ import annotations

import ast
from collections.abc import Collection

from tests.support.suite.compiled import ROOT, listed_modules, source_of
from tests.tidy.sources import nodes_of


def two_kinds(file: str, compiled: Collection[str]) -> list[str]:
    """Lines of handlers whose name is another one's of a compiled class before them in the function."""
    found = []
    for function in nodes_of(file):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        handlers = [node for node in ast.walk(function) if isinstance(node, ast.ExceptHandler) and node.type]
        kinds: dict[str, str] = {}
        for handler in sorted(handlers, key=lambda handler: handler.lineno):
            if handler.name is None or handler.type is None:
                continue
            kind = ast.unparse(handler.type)
            first = kinds.setdefault(handler.name, kind)
            if first in compiled and kind != first:
                found.append(f"{file}:{handler.lineno}: {handler.name}")
    return found


def test_a_name_is_of_one_kind_of_exception() -> None:
    files = [str(source_of(ROOT, module).relative_to(ROOT)) for module in listed_modules()]
    compiled = {node.name for file in files for node in nodes_of(file) if isinstance(node, ast.ClassDef)}
    assert "NamesMore" in compiled
    assert [each for file in files for each in two_kinds(file, compiled)] == []
