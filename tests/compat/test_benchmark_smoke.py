"""The benchmark runs from end to end, briefly and on kraft alone, so that it cannot rot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_quick_run_measures_every_workload(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (page,) = tmp_path.glob("*.md")
    text = page.read_text()
    for title in (
        "start to first",
        "produce 1 KiB, acks=all",
        "consume 100 B",
        "leader killed",
        "rebalances",
        "transactions, 8 producers",
        "idle partitions",
        "end-to-end",
    ):
        assert title in text
