"""Whether the machine was a run's own: how much of it went to processes that do not belong to the run.

At a rate near what the machine can do, a queue grows for as long as others take a core: a p99 of seconds then
says nothing of the brokers.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass

import psutil

from benchmarks.cluster import BenchmarkCluster, cpu_seconds

NOTED_CORES = 0.2


@dataclass(frozen=True)
class CpuUse:
    """Up to one moment, in seconds."""

    at: float
    machine: float
    own: float
    """Of the nodes, of the clients that have ended, and of ourselves."""

    @classmethod
    def of(cls, cluster: BenchmarkCluster) -> CpuUse:
        used = psutil.cpu_times()
        clients = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = cpu_seconds(cluster) + clients.ru_utime + clients.ru_stime + time.process_time()
        return cls(time.monotonic(), used.user + used.nice + used.system, own)

    def others_since(self, before: CpuUse) -> float:
        """Cores that other processes used on average."""
        return ((self.machine - before.machine) - (self.own - before.own)) / (self.at - before.at)


def disturbed(cores: float) -> str | None:
    """What to note of a run beside which others used so many cores."""
    if cores < NOTED_CORES:
        return None
    return f"not alone: other processes used {cores:.1f} cores; latencies near saturation measure those, too"
