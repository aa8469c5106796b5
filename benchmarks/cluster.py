"""The port through which the benchmarks see a cluster of three nodes, whichever broker runs in it.

Two implementations: `kafka.py` (Apache Kafka on a JVM) and `ours.py` (kraft). What both share
is here: child processes that are ended by their pid, and their use of the machine.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import psutil

NODES = 3


class BenchmarkCluster(Protocol):
    """Three combined nodes (broker and controller) on the loopback, each a process of its own."""

    name: str
    directory: Path
    """Where the nodes keep their data."""

    @property
    def bootstrap(self) -> str:
        """`host:port,...` of the client listeners, in the order of the node ids."""

    def start(self) -> float:
        """Spawn the nodes; return `time.monotonic()` of the first spawn. They need not be ready yet."""

    def pids(self) -> Mapping[int, int]:
        """Process id by node id, of the nodes that run."""

    def kill(self, node_id: int) -> float:
        """SIGKILL one node; return `time.monotonic()` right after the signal."""

    def restart(self, node_id: int) -> None:
        """Spawn a killed node again, on its own directory."""

    def close(self) -> None:
        """End every process and remove the data. Safe to call twice and after a failed start."""


class SystemSkipped(Exception):
    """This system cannot run here; the message says why."""


class NodeProcess:
    """One child process in a session of its own, so that Ctrl-C reaches only us and we end it ourselves."""

    def __init__(self, command: Sequence[str], log_path: Path, env: Mapping[str, str] | None = None) -> None:
        self.log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=env,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> float:
        self._process.send_signal(signal.SIGKILL)
        killed_at = time.monotonic()
        self._process.wait()
        return killed_at

    def end(self, grace_s: float = 0.0) -> None:
        """Ask, wait `grace_s`, then kill. Popen keeps the pid ours until it has been waited for."""
        if grace_s > 0 and self.running:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        if self.running:
            self._process.kill()
        self._process.wait()


def cpu_seconds(cluster: BenchmarkCluster) -> float:
    """User and system time of all nodes since they started."""
    total = 0.0
    for pid in cluster.pids().values():
        times = psutil.Process(pid).cpu_times()
        total += times.user + times.system
    return total


def rss_bytes(cluster: BenchmarkCluster) -> int:
    """Resident memory of all nodes together."""
    return sum(psutil.Process(pid).memory_info().rss for pid in cluster.pids().values())
