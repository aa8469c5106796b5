"""Golden scenarios: text files of commands and what they print, in the format of etcd's data-driven tests.

    # a comment
    command word word
    another command
    ----
    what the two print

    command of the next block

An empty line ends a block. A block that prints nothing has no `----`. What the commands of a family mean says
the docstring of its test; its scenarios are the *.txt files of the folder of the same name (test_raft.py:
raft/*.txt). A new family is a folder and a test:

    @pytest.mark.row("Q1")
    @pytest.mark.parametrize("path", scenarios("raft"))
    def test_scenario(path: Path) -> None:
        run_scenario(path, Scenario())

Scenario has a method `do_NAME` per command, which takes the words and returns the lines to print, or None.

    REWRITE_GOLDEN=1 pytest tests/golden        writes what is printed into the files; the diff is the review
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

GOLDEN = Path(__file__).parent
SEPARATOR = "----"


def scenarios(folder: str) -> list[ParameterSet]:
    """The scenarios of a folder, as parameters of a test. A test of no scenario would pass unseen."""
    paths = sorted((GOLDEN / folder).glob("*.txt"))
    assert paths, f"no scenarios in tests/golden/{folder}"
    return [pytest.param(path, id=path.stem) for path in paths]


def run_scenario(path: Path, scenario: object) -> None:
    """Execute the commands of a file with the `do_` methods of `scenario`; compare, or rewrite."""
    run_commands(path, lambda command: _call(scenario, command))


def run_commands(path: Path, execute: Callable[[str], Iterable[str]]) -> None:
    """For commands without a name in front: `execute` takes the whole line and returns lines to print."""
    expected = path.read_text()
    blocks = expected.strip("\n").split("\n\n")
    actual = "\n\n".join(_run_block(block, execute) for block in blocks) + "\n"
    if os.environ.get("REWRITE_GOLDEN"):
        path.write_text(actual)
    else:
        assert actual == expected, f"{path.relative_to(GOLDEN)}: REWRITE_GOLDEN=1 writes what is printed now"


def _run_block(block: str, execute: Callable[[str], Iterable[str]]) -> str:
    lines = block.strip("\n").splitlines()
    commands = lines[: lines.index(SEPARATOR)] if SEPARATOR in lines else lines
    output = [line for command in commands if not command.startswith("#") for line in execute(command)]
    return "\n".join([*commands, SEPARATOR, *output] if output else commands)


def _call(scenario: object, command: str) -> list[str]:
    name, *words = command.split()
    method: Callable[..., Iterable[str] | None] = getattr(scenario, "do_" + name.replace("-", "_"))
    return list(method(*words) or ())
