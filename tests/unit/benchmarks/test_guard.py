"""What the guard lets pass, and that its script runs."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.guard import compared
from benchmarks.memory_loop import MemoryLoop
from benchmarks.scripted import script


@pytest.mark.parametrize(
    ("cost", "passes", "said"),
    [
        (100.0, True, "produce: 100 instructions, baseline 100 (+0.0%)"),
        (104.0, True, "(+4.0%)"),
        (96.0, True, "(-4.0%)"),
        (106.0, False, "it costs more"),
        (94.0, False, "make bench-guard WRITE=1"),
    ],
)
def test_five_percent_either_way(cost: float, passes: bool, said: str) -> None:
    passed, line = compared("produce", "instructions", cost, 100.0)
    assert passed is passes
    assert said in line


def test_three_nodes_serve_the_script(tmp_path) -> None:
    """The script itself checks that every replica has every record, and that fetches get some."""
    loop = MemoryLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        spent = runner.run(script(tmp_path, loop, 2, 2))
    assert min(spent) > 0
