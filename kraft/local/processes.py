"""Processes of a local cluster: how they are started, found again, signalled and awaited."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import psutil

from kraft import own_packages
from kraft.storage.formatter import boot_id
from metadata_quorum.foundation.disk import PRIVATE_FILE
from metadata_quorum.foundation.errors import ExitCode, FatalError

POLL_S: Final = 0.02
_READ_AT_END_BYTES: Final = 64 * 1024
_STARTTIME: Final = 19
"""Its place in /proc/PID/stat, counted from 0 behind the name."""


@dataclass(slots=True, kw_only=True)
class LocalProcess:
    """A process as cluster.json has it."""

    pid: int | None = None
    created: float = 0.0
    """When, see `_created`; with pid and boot it names one process for good, though pids come again."""
    boot: str = ""
    """The machine's boot under which it runs, where the system tells that."""

    @classmethod
    def of(cls, pid: int) -> Self:
        found = cls()
        found.began(pid)
        return found

    def began(self, pid: int) -> None:
        self.pid = pid
        with contextlib.suppress(psutil.NoSuchProcess):
            self.created, self.boot = _created(psutil.Process(pid)), boot_id()

    def take(self, other: LocalProcess) -> None:
        """Be what the other one is."""
        self.pid, self.created, self.boot = other.pid, other.created, other.boot

    def process(self) -> psutil.Process | None:
        """The running process, None where there is none (or only its remains)."""
        if self.pid is None or self.boot != boot_id():
            return None
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            if _created(process) == self.created and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None


def _created(process: psutil.Process) -> float:
    """When it was created, in seconds that do not move when the clock is set (a laptop that wakes, a virtual
    machine that goes on): Linux counts from the boot, to which psutil adds what is taken for the boot's time
    now. Raises psutil.NoSuchProcess."""
    if not psutil.LINUX:
        created: float = process.create_time()
        return created
    try:
        told = Path(f"/proc/{process.pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(process.pid) from None
    behind_its_name = told.rpartition(b")")[2].split()
    return int(behind_its_name[_STARTTIME]) / os.sysconf("SC_CLK_TCK")


def start_in_background(
    command: Sequence[str], output: Path, *, in_our_session: bool
) -> subprocess.Popen[bytes]:
    """Out of reach of a terminal's Ctrl-C. Its output is added to a file that is its owner's alone.

    What this process owns stays in its session: a node that was paused when its owner died cannot notice,
    but the system ends a process group that sleeps there and no longer belongs to anybody.
    """
    group: dict[str, Any] = {"process_group": 0} if in_our_session else {"start_new_session": True}
    with open(output, "ab", opener=_open_private) as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=own_packages.own_environment(), **group,
        )  # fmt: skip


def signal_all(processes: Sequence[LocalProcess], number: signal.Signals) -> None:
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if (process := each.process()) is not None:
                process.send_signal(number)


def await_end(processes: Sequence[LocalProcess], patience_s: float) -> list[LocalProcess]:
    """Wait for their end; returns those that are still there."""
    deadline = time.monotonic() + patience_s
    left = list(processes)
    while left := [each for each in left if each.process() is not None]:
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    return left


def end_all(processes: Sequence[LocalProcess], patience_s: float, force_s: float) -> list[LocalProcess]:
    """End them, by force where one does not end in time; returns those that stay even then."""
    running = [each for each in processes if each.process() is not None]
    for number in (signal.SIGCONT, signal.SIGTERM):
        signal_all(running, number)
    signal_all(await_end(running, patience_s), signal.SIGKILL)
    return await_end(running, force_s)


def end_of(child: subprocess.Popen[bytes], patience_s: float) -> int:
    """The exit code of a child that has ended, or is about to. One of which nothing is written down would be
    waited for in vain: it is killed. Raises FatalError where it does not end."""
    try:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        return child.wait(patience_s)
    except subprocess.TimeoutExpired:
        raise FatalError(ExitCode.REFUSED, f"the system does not end process {child.pid}") from None


def how_ended(code: int) -> str:
    """By its exit code, which is below 0 for a signal."""
    return f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most of the real-time signals
        return f"signal {number}"


def last_line(path: Path, begin: int) -> str:
    """The last line behind the first `begin` bytes; empty where there is none."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(begin, end - _READ_AT_END_BYTES))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def await_stop(paused: LocalProcess, patience_s: float) -> bool:
    """Whether it stops (or ends) in time."""
    deadline = time.monotonic() + patience_s
    while (process := paused.process()) is not None and not has_stopped(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def has_stopped(process: psutil.Process) -> bool:
    """Whether every thread of it has, where the system shows threads."""
    try:
        threads = [psutil.Process(each.id) for each in process.threads()] if psutil.LINUX else [process]
        return all(each.status() == psutil.STATUS_STOPPED for each in threads)
    except psutil.NoSuchProcess:  # one of them has just ended
        return False


def _open_private(path: str, flags: int) -> int:
    fd = os.open(path, flags, PRIVATE_FILE)
    os.fchmod(fd, PRIVATE_FILE)
    return fd
