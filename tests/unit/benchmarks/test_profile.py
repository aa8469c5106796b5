"""Collapsed stacks added up by function."""

from __future__ import annotations

from benchmarks.profile import count_functions


def test_lines_of_a_function_are_added_and_recursion_counts_once() -> None:
    stacks = [
        "run (node.py:10);append (log.py:5) 3",
        "run (node.py:11);append (log.py:9);write (disk.py:1) 4",
        "run (node.py:10);run (node.py:10) 2",
        "native_frame 1",
    ]
    own, below = count_functions(stacks)
    assert own == {
        "append (log.py)": 3,
        "write (disk.py)": 4,
        "run (node.py)": 2,
        "native_frame": 1,
    }
    assert below["run (node.py)"] == 9
    assert below["append (log.py)"] == 7
