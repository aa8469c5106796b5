"""Processes that are ended: where all of Python stands still, with its stacks; where nobody waits for one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# PyDLL keeps the interpreter's lock while the function runs, as the client library's callbacks do.
HANGING = """
import ctypes, sys
from chaos import watchdog

def stand_still():
    with watchdog.ended_if_it_hangs(0.1, sys.stderr):
        ctypes.PyDLL(None).sleep(60)

watchdog.HANG_S = 0.1
stand_still()
"""


def test_what_hangs_is_ended_with_its_stacks() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=180)
    assert ended.returncode == 1
    assert "in stand_still" in ended.stderr


def test_what_ends_in_time_is_left_alone() -> None:
    quick = HANGING.replace("ctypes.PyDLL(None).sleep(60)", "pass").replace("0.1", "60.0") + "print('done')\n"
    ended = subprocess.run([sys.executable, "-c", quick], capture_output=True, text=True, timeout=180)
    assert (ended.returncode, ended.stdout) == (0, "done\n")


# What a run does beside its work (nodes, a client library) is left out: the worker only sleeps.
ORPHANED = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from chaos.seeds import end_with_parent

CLEAN_UP_S = 30.0  # on a busy machine, too

def work():
    try:
        print("working", flush=True)  # from now on the parent may be gone
        time.sleep(60)
    finally:
        print("cleaned up", flush=True)

if __name__ == "__main__":
    with ProcessPoolExecutor(
        1, get_context("spawn"), initializer=end_with_parent, initargs=(os.getpid(), CLEAN_UP_S)
    ) as pool:
        pool.submit(work)
        input()
        os._exit(0)
"""


@pytest.mark.heavy  # waits half a minute
def test_a_run_whose_parent_is_gone_ends(tmp_path: Path) -> None:
    program = tmp_path / "orphaned.py"
    program.write_text(ORPHANED)
    with subprocess.Popen(
        [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "working\n"
        # The worker, too, has the output open: it ends with the last of the two.
        assert parent.communicate("\n", timeout=180)[0] == "cleaned up\n"
