"""docs/MIGRATION.md as it stands: every block of it, in its order, in one shell."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kafka.kafka_node import KafkaNode
from tests.support.page_commands import KRAFT, blocks, page, run_commands

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.row("M4")]

PATIENCE_S = 600
BASE_PORT = 9092


def commands(section: str) -> str:
    """Of the page's beginning and of one section."""
    beginning, *sections = page("MIGRATION.md").split("\n## ")
    (wanted,) = [each for each in sections if each.startswith(section)]
    return blocks(f"{beginning}\n{wanted}")


@pytest.mark.newest_kafka
@pytest.mark.parametrize("section", ["At once", "One at a time"])
def test_the_page(section: str, kafka_node: KafkaNode, tmp_path: Path, free_row: Callable[[], int]) -> None:
    # From it the row counts the ports of clients, controllers and HTTP of three nodes.
    first = free_row()
    script = re.sub(r"\b9[01]9\d\b", lambda port: str(first + int(port[0]) - BASE_PORT), commands(section))
    try:
        said = run_commands(
            script, tmp_path, PATIENCE_S, {"kafka-server-start.sh": f"{kafka_node.command} kafka.Kafka"}
        )
    finally:
        subprocess.run(
            [*KRAFT.split(), "down", "--dir", tmp_path / "cluster"], capture_output=True, check=False
        )
    assert said.count("one") == 2  # there, and back
    assert "four" in said
