"""`make grow`: six nodes change their software one after the other, and no client notices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.row("M3", "M4")]

ROOT = Path(__file__).parents[2]


def test_nobody_notices(kafka_jars: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.grow"],
        cwd=ROOT, env={**os.environ, "KRAFT_KAFKA_JARS": str(kafka_jars)},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the quorum is Apache Kafka's" in done.stdout
    assert "nobody noticed" in done.stdout
