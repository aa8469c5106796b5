"""Golden scenarios: text files of commands and what they must print.

A file is a row of blocks: lines of commands, a line `----`, the expected output up to an empty
line. `#` opens a comment. Run with REWRITE_GOLDEN=1 to write the actual output into the files, then
read the diff: it is the review.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

SEPARATOR = "----"


def run_scenario(path: Path, execute: Callable[[str], list[str]]) -> None:
    """Feed every command to `execute`, which returns lines; compare, or rewrite."""
    blocks = path.read_text().split("\n\n")
    actual = [_run_block(block, execute) for block in blocks]
    text = "\n\n".join(actual).rstrip("\n") + "\n"
    if os.environ.get("REWRITE_GOLDEN"):
        path.write_text(text)
    else:
        assert text == path.read_text(), f"{path.name} says otherwise; see REWRITE_GOLDEN"


def _run_block(block: str, execute: Callable[[str], list[str]]) -> str:
    lines = block.strip("\n").splitlines()
    commands = lines[: lines.index(SEPARATOR)] if SEPARATOR in lines else lines
    output = [
        line
        for command in commands
        if command.strip() and not command.startswith("#")
        for line in execute(command)
    ]
    return "\n".join([*commands, SEPARATOR, *output] if output else commands)
