"""A process in which all of Python stands still is ended, and tells where it stood."""

from __future__ import annotations

import subprocess
import sys

# PyDLL keeps the interpreter's lock while the function runs, as the client library's callbacks do.
HANGING = """
import ctypes, sys
from chaos import watchdog

def stand_still():
    ctypes.PyDLL(None).sleep(60)

watchdog.HANG_S = 0.1
with watchdog.ended_if_it_hangs(0.1, sys.stderr):
    stand_still()
"""


def test_what_hangs_is_ended_with_its_stacks() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert "in stand_still" in ended.stderr


def test_what_ends_in_time_is_left_alone() -> None:
    quick = HANGING.replace("    stand_still()\n", "    pass\n") + "print('done')\n"
    ended = subprocess.run([sys.executable, "-c", quick], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (0, "done\n")
