"""The commands that pages, docstrings and messages name are there, with the options and arguments given."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import pytest
import typer

from kraft.cli import main
from tests.tidy.sources import FLOORS, documents, nodes_of, prose_of_code, python_files, text_of

TREE: Final[Any] = typer.main.get_command(main.cli)
FENCED: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED: Final = re.compile(r"^ {4}(.+)$", re.MULTILINE)
IN_SHELL: Final = re.compile(r"""(?:^|[|;&({]|\b(?:do|until|while|then|!)|\$\()\s*(kraft [a-z-].*)""")
BETWEEN_BACKTICKS: Final = re.compile(r"(?<!`)`(?:\$ )?(kraft [a-z-][^`]*)`")
END: Final = re.compile(r"\s#\s|\s(?:\|\||\||&&|&|>>?|<|2>&1)(?:\s|$)|;|\)(?:\"|$)")
"""What ends a command in a shell."""
CHOICE: Final = re.compile(r"[a-z-]+(?:\|[a-z-]+)+")
AND_SO_ON: Final = ("...", "\N{HORIZONTAL ELLIPSIS}")
FILLED_IN: Final = "X"
"""Stands for what a message says there."""


def in_blocks(text: str) -> Iterator[str]:
    """Commands of a page's blocks."""
    blocks = [found[2] for found in FENCED.finditer(text) if found[1] in ("sh", "bash")]
    blocks += INDENTED.findall(FENCED.sub("", text))
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        within = re.findall(r"\$\(([^()]*)\)", line)
        for piece in (re.sub(r"\$\([^()]*\)", FILLED_IN, line), *within):
            if found := IN_SHELL.search(piece.strip()):
                yield END.split(found[1])[0].strip()


def in_prose(text: str) -> Iterator[str]:
    """Commands between backticks, which may be only the beginning of one; `a, b` are two of them."""
    for found in BETWEEN_BACKTICKS.finditer(INDENTED.sub("", FENCED.sub("", text))):
        command = END.split(" ".join(found[1].split()))[0].strip()
        yield re.sub(r"(?<=[a-z]), (?=[a-z])", "|", command)


def texts_of(file: str) -> Iterator[str]:
    """Strings of a module, of which some are messages, its docstrings and comments."""
    yield from (each.text for each in prose_of_code(file))
    for node in nodes_of(file):
        match node:
            case ast.JoinedStr(values=values):
                yield "".join(str(v.value) if isinstance(v, ast.Constant) else FILLED_IN for v in values)
            case ast.Constant(value=str(text)):
                yield text


def named() -> Iterator[tuple[str, str]]:
    for page in documents():
        yield from ((page, command) for command in (*in_blocks(text_of(page)), *in_prose(text_of(page))))
    for file in python_files(*FLOORS):
        yield from ((file, command) for text in texts_of(file) for command in in_prose(text))


def mistake(command: str) -> str | None:
    """What the command line would refuse, whatever the cluster is like. `a|b` are two commands."""
    try:
        words = shlex.split(command)[1:]
    except ValueError as error:
        return str(error)
    for each in product(*(word.split("|") if CHOICE.fullmatch(word) else [word] for word in words)):
        if (found := _mistake(list(each))) is not None:
            return found
    return None


def _mistake(words: list[str]) -> str | None:
    node, context = TREE, TREE.make_context("kraft", [], resilient_parsing=True)
    rest = words[: next((i for i, word in enumerate(words) if word in AND_SO_ON), None)]
    while hasattr(node, "list_commands") and rest and not rest[0].startswith("-"):
        name, *rest = rest
        if (below := node.get_command(context, name)) is None:
            return f"there is no {name}"
        node, context = below, below.context_class(below, parent=context, info_name=name)
    try:
        _, left, _ = node.make_parser(context).parse_args(list(rest))
    except Exception as error:  # noqa: BLE001 - whose click it is depends on typer's version
        is_only_named = rest[-1].startswith("--") and "requires an argument" in str(error)
        return None if is_only_named else str(error)
    return f"{left} is more than it takes" if left else None


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("kraft up --dir demo --tls", None),
        ("kraft group list|describe", None),
        ("kraft storage format --add-scram", None),
        ("kraft quota set producer_byte_rate=1 --client-id loader", None),
        ("kraft up --drr demo", "No such option: --drr"),
        ("kraft group lst", "there is no lst"),
        ("kraft group list|forget", "there is no forget"),
        ("kraft node kill 2 3", "['3'] is more than it takes"),
        ("kraft node kill 2 --dir", None),
        ("kraft node kill --dir 2 --port 3", "No such option: --port"),
    ],
)
def test_a_wrong_command_is_found(command: str, found: str | None) -> None:
    said = mistake(command)
    assert said is None if found is None else said is not None and said.startswith(found)


def test_commands_that_are_named_are_there() -> None:
    commands = set(named())
    assert len(commands) > 250
    assert sorted((place, command, said) for place, command in commands if (said := mistake(command))) == []
