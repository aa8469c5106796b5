"""The Spark benchmark runs from end to end, briefly and without Spark's own source, so that it cannot rot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_a_quick_round(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.spark", "--quick", "--rounds", "1", "--no-jar"]
    done = subprocess.run(
        [*command, "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (page,) = tmp_path.glob("*.md")
    text = page.read_text()
    for title in ("batch, 1 KiB", "availableNow", "append to sink, p50", "idle stream", "first row", "RSS"):
        assert title in text
