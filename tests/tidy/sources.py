"""What the tidy tests read: Python files, parsed once; prose, which is docstrings, comments and documents."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from metadata_quorum.foundation.garbage import collection_paused

ROOT: Final = Path(__file__).parents[2]
FLOORS: Final = ("chaos", "spark_connector", "kraft", "fetch", "data_plane", "metadata_quorum")
FOLDERS: Final = (*FLOORS, "pyspark_kraft", "benchmarks", "examples", "tests")
COMMENT: Final = re.compile(r"(?:^|\s)# (.*)")


class Prose(NamedTuple):
    place: str
    """File and line."""
    text: str


@cache
def python_files(*folders: str) -> tuple[str, ...]:
    """Relative to the project's root; of all folders where none is named."""
    return tuple(
        str(path.relative_to(ROOT))
        for folder in folders or FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
    )


def documents() -> list[str]:
    """Pages, and the two files whose comments speak of the project."""
    pages = [str(path.relative_to(ROOT)) for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])]
    return [*pages, "pyproject.toml", "Makefile"]


@cache
def text_of(file: str) -> str:
    return (ROOT / file).read_text()


@cache
def _nodes() -> Mapping[str, tuple[ast.AST, ...]]:
    """Of all files at once: a million that stay to the end, at which the garbage collector need not look."""
    with collection_paused():
        nodes = {file: tuple(ast.walk(ast.parse(text_of(file)))) for file in python_files()}
    gc.freeze()
    return nodes


def nodes_of(file: str) -> tuple[ast.AST, ...]:
    return _nodes()[file]


def tree_of(file: str) -> ast.Module:
    tree = nodes_of(file)[0]
    assert isinstance(tree, ast.Module)
    return tree


def prose_of_code(file: str) -> Iterator[Prose]:
    """Docstrings (also those of attributes) and comments."""
    for node in nodes_of(file):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield Prose(f"{file}:{node.lineno}", text)
    for number, line in enumerate(text_of(file).splitlines(), 1):
        if comment := COMMENT.search(line):  # or a string with a # in it, which does no harm
            yield Prose(f"{file}:{number}", comment[1])


@cache
def prose() -> tuple[Prose, ...]:
    """Docstrings, comments and documents, but the change log, which speaks of what was."""
    pages = (Prose(page, text_of(page)) for page in documents() if page != "CHANGELOG.md")
    return (*pages, *(each for file in python_files() for each in prose_of_code(file)))
