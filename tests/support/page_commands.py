"""The commands of a page of docs/: its ```sh blocks in their order, in one shell.

A page that is run as it stands cannot promise what does not work.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
KRAFT = f"{sys.executable} -m kraft"


def page(name: str) -> str:
    return (DOCS / name).read_text()


def blocks(text: str) -> str:
    """Every block of commands in it, as one script."""
    return "".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


def run_commands(
    script: str, directory: Path, patience_s: float, commands: Mapping[str, str] | None = None
) -> list[str]:
    """Run it in `directory` up to the first command that fails; gives the lines of its output.

    `kraft` is on its PATH, and so are `commands`: names, each with the command line that it stands for. What
    the script leaves running is killed. Raises AssertionError with the end of the output if a command fails.
    """
    path = directory / "bin"
    path.mkdir()
    for name, command in {"kraft": KRAFT, **(commands or {})}.items():
        (path / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    output = directory / "output"
    with output.open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-euxo", "pipefail", "-c", script],
            cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            status = shell.wait(patience_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    lines = output.read_text().splitlines()
    assert status == 0, "\n".join(lines[-80:])
    return lines
