"""A file is read in one sitting, a function seen at once. The lists of longer ones only shrink."""

from __future__ import annotations

import ast
from typing import Final

from tests.tidy.sources import nodes_of, python_files, text_of

FILE_LINES: Final = 500
FUNCTION_LINES: Final = 70

LONG_FILES: Final[frozenset[str]] = frozenset()
LONG_FUNCTIONS: Final[frozenset[str]] = frozenset(
    {
        "metadata_quorum/foundation/record_walk.py: _some",
    }
)


def test_files_are_short():
    long = {file for file in python_files() if text_of(file).count("\n") > FILE_LINES}
    assert long == LONG_FILES, "longer than 500 lines; or listed, and no longer so long"


def test_functions_are_short():
    long = {
        f"{file}: {node.name}"
        for file in python_files()
        for node in nodes_of(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES
    }
    assert long == LONG_FUNCTIONS, "longer than 70 lines; or listed, and no longer so long"
