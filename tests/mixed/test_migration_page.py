"""docs/MIGRATION.md as it stands: every block of it, in its order, in one shell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.kafka.kafka_node import KafkaNode

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.row("M4")]

PAGE = Path(__file__).parents[2] / "docs" / "MIGRATION.md"
PATIENCE_S = 600
BASE_PORT = 9092


def blocks(section: str) -> str:
    """The commands of the page's beginning and of one section."""
    beginning, *sections = PAGE.read_text().split("\n## ")
    (wanted,) = [each for each in sections if each.startswith(section)]
    found = re.findall(r"^```sh\n(.*?)^```", f"{beginning}\n{wanted}", re.MULTILINE | re.DOTALL)
    return "".join(found)


@pytest.mark.parametrize("section", ["At once", "One at a time"])
def test_the_page(section: str, kafka_node: KafkaNode, tmp_path: Path, free_row: Callable[[], int]) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, command in {
        "kraft": f'{sys.executable} -m kraft "$@"',
        "kafka-server-start.sh": f'{kafka_node.command} kafka.Kafka "$@"',
    }.items():
        (commands / name).write_text(f"#!/bin/sh\nexec {command}\n")
        (commands / name).chmod(0o755)
    # From it the row counts the ports of clients, controllers and HTTP of three nodes.
    first = free_row()
    script = re.sub(r"\b9[01]9\d\b", lambda port: str(first + int(port[0]) - BASE_PORT), blocks(section))
    output = tmp_path / "output"
    with output.open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-euxo", "pipefail", "-c", script],
            cwd=tmp_path, env={**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            status = shell.wait(PATIENCE_S)
        finally:
            subprocess.run(
                [commands / "kraft", "down", "--dir", tmp_path / "cluster"], capture_output=True, check=False
            )
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert status == 0, output.read_text()[-3_000:]
    said = output.read_text().splitlines()
    assert said.count("one") == 2  # there, and back
    assert "four" in said
