"""No test has a limit of CPU time that a slower machine exceeds (tests/support/cpu_time.py)."""

from __future__ import annotations

import ast
from typing import Final

from tests.tidy.sources import nodes_of, python_files

CLOCKS: Final = frozenset({"thread_time", "process_time"})
MAY_READ_THEM: Final = {
    "tests/support/cpu_time.py": "compares with the yardstick",
    "tests/unit/monitoring/test_stall_watch.py": "uses so much of it up",
    "tests/unit/groups/test_loads_of_what_clients_wrote.py": "turns of a loop, compared with the yardstick",
    "tests/unit/chaos/test_checker_at_scale.py": "minutes, compared with the yardstick",
}


def test_only_who_knows_how_slow_the_machine_is_reads_its_cpu_clock() -> None:
    readers = {
        file
        for file in python_files("tests")
        for node in nodes_of(file)
        if isinstance(node, ast.Attribute | ast.Name)
        and (node.attr if isinstance(node, ast.Attribute) else node.id) in CLOCKS
    }
    assert readers == MAY_READ_THEM.keys()
