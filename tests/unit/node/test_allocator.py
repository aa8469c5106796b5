"""Blocks of memory that were large go back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.row("P7"),
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator"),
]

STORY = """
import sys
from kraft.node.allocator import give_large_blocks_back

MIB = 1024 * 1024

def resident_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("RssAnon"))

give_large_blocks_back({name: "1" for name in sys.argv[1:]})
before = resident_mib()
largest = bytearray(b"x") * (30 * MIB)
del largest  # from now on, glibc would say, blocks of this size are usual
blocks = [bytearray(b"x") * (8 * MIB) for _ in range(3)]
small = [bytes(1000) for _ in range(10_000)]  # above them in the heap
del blocks
print(resident_mib() - before)
"""


def left_mib(*environment: str) -> int:
    return int(subprocess.check_output([sys.executable, "-c", STORY, *environment], timeout=60))


def test_what_was_large_is_given_back() -> None:
    assert left_mib() < 16


def test_what_the_operator_has_set_stays() -> None:
    assert left_mib("MALLOC_ARENA_MAX") > 24
