"""Both ends of the control files: what is asked outside is in force inside when the call returns."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.live import control
from chaos.live.clock import ClockSwitch, ShiftedClock
from chaos.live.control import Conditions, Control
from chaos.live.disk_faults import GROW, SYNC
from chaos.live.disk_switch import DiskSwitch
from tests.support.waiting import wait_until

NODE = """
import sys
from pathlib import Path
from chaos.live.control import obey

def meet(now):
    print(*(fault.operations[0] for fault in now.faults), now.clock_shift_ms, flush=True)

obey(Path(sys.argv[1]), meet)
sys.stdin.read()
"""


class RecordingProcess:
    """A process that obeys, and the switches it was given."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def next(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def node_in(home: Path) -> Iterator[RecordingProcess]:
    command = [sys.executable, "-c", NODE, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield RecordingProcess(process)
        finally:
            process.kill()


def in_force(home: Path) -> Conditions:
    return control.Notice.read(home / control.TAKEN).conditions


def test_a_change_is_in_force_when_the_call_returns(tmp_path: Path) -> None:
    disk, clock = DiskSwitch(tmp_path), ClockSwitch(tmp_path)
    with node_in(tmp_path) as node:
        assert node.next() == "0"
        wait_for_lock(tmp_path)
        disk.full("data/t-0")
        assert [fault.below for fault in in_force(tmp_path).faults] == [f"{tmp_path}/data/t-0"]
        disk.fail_sync(times=1)
        clock.shift(-3_600_000)
        assert [node.next() for _ in range(3)] == ["grow 0", "grow sync 0", "grow sync -3600000"]
        disk.full("data/t-0", lasting=True)  # takes the other's place
        assert [f.operations for f in in_force(tmp_path).faults] == [(SYNC,), (GROW,)]
        disk.heal()
        assert in_force(tmp_path) == Conditions(clock_shift_ms=-3_600_000)


def wait_for_lock(home: Path) -> None:
    """The process prints what it found before it lets others wait for it."""
    wait_until(lambda: _is_held(home / control.RUNNING), "the process holds its lock")


def _is_held(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def test_what_outlives_a_process(tmp_path: Path) -> None:
    disk = DiskSwitch(tmp_path)
    disk.fail_sync()  # nobody runs: it waits for the next start
    with node_in(tmp_path) as node:
        assert node.next() == "sync 0"
        wait_for_lock(tmp_path)
        disk.full(lasting=True)
        assert node.next() == "sync grow 0"
    with node_in(tmp_path) as node:
        assert node.next() == "grow 0"
        wait_for_lock(tmp_path)
        disk.slow(5)
        assert node.next() == "grow read 0"
    disk.heal()
    with node_in(tmp_path) as node:
        assert node.next() == "0"


def test_a_node_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with open(tmp_path / control.RUNNING, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="is it paused"):
            Control(tmp_path).change(lambda now: now, patience_s=0.05)


def test_a_shifted_clock() -> None:
    clock = ShiftedClock(lambda: 1_000)
    clock.shift_ms = -300
    assert clock.now_ms() == 700
