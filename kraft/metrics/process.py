"""The process as the operating system sees it: CPU time, memory, files, disk. From /proc, if there is one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_NS: Final = 1_000_000_000


class ProcessStats:
    """Made in the loop's thread, whose CPU time it tells."""

    def __init__(self, now_ms: Callable[[], int], proc: Path = Path("/proc/self")) -> None:
        self._proc = proc
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._began_ns = time.monotonic_ns()
        self._cpu_at_begin_ns = time.clock_gettime_ns(self._clock)
        self.start_time_s = now_ms() / 1000

    @property
    def cpu_s(self) -> float:
        return time.process_time()

    @property
    def idle_ns(self) -> int:
        """For how long the loop has not used the CPU, since it started."""
        busy_ns = time.clock_gettime_ns(self._clock) - self._cpu_at_begin_ns
        return max(time.monotonic_ns() - self._began_ns - busy_ns, 0)

    @property
    def idle_share(self) -> float:
        """The share of time in which the loop was idle, up to 1."""
        return self.idle_ns / max(time.monotonic_ns() - self._began_ns, 1)

    @property
    def open_fds(self) -> int | None:
        try:
            return len(os.listdir(self._proc / "fd"))
        except OSError:
            return None

    @property
    def resident_bytes(self) -> int | None:
        text = self._read("statm")
        return None if text is None else int(text.split()[1]) * _PAGE_BYTES

    def disk_bytes(self, direction: str) -> int | None:
        """`direction`: read or write. What reached the device, or is to reach it."""
        for line in (self._read("io") or "").splitlines():
            name, _, value = line.partition(": ")
            if name == f"{direction}_bytes":
                return int(value)
        return None

    def _read(self, name: str) -> str | None:
        try:
            return (self._proc / name).read_text()
        except OSError:
            return None
