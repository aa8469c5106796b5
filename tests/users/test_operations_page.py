"""docs/OPERATIONS.md as it stands: every block of it, in its order, in one shell."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.page_commands import blocks, page, run_commands

PATIENCE_S = 1200
CLIENTS = 9092


def commands(first_port: int) -> str:
    """Of the page: its three machines are one here, each with the ports that `kraft up` would give it."""
    script = blocks(page("OPERATIONS.md"))

    def moved(port: str, machine: str) -> str:
        return f"$(({first_port + int(port) - CLIENTS} + {machine} - 1))"

    script = re.sub(r"DNS:k\$1\.example\.net", "IP:127.0.0.1", script)
    script = re.sub(
        r"k(\d|\$1)\.example\.net:(\d+)", lambda found: f"127.0.0.1:{moved(found[2], found[1])}", script
    )
    script = re.sub(r"://:(\d+)", lambda found: f"://127.0.0.1:{moved(found[1], '$1')}", script)
    return re.sub(r"port=(\d+)", lambda found: f"port={moved(found[1], '$1')}", script)


@pytest.mark.long
@pytest.mark.row("Q6")
@pytest.mark.row("U4")
def test_the_page(tmp_path: Path, free_row: Callable[[], int]) -> None:
    said = run_commands(commands(free_row()), tmp_path, PATIENCE_S)
    assert said.count("two") == 2  # from the machine that was lost, and from the backup
    assert any("end soon: broker 1 in 19 days" in line for line in said)
    log = (tmp_path / "k1" / "node.log").read_text()
    assert '"logger": "kraft.events.partitions"' in log
