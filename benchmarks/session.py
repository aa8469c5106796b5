"""One cluster under measurement: its scale, its admin client, and the samples taken so far."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.admin import Admin
from benchmarks.cluster import BenchmarkCluster, rss_bytes

MB = 1e6
GB = 1e9


@dataclass(frozen=True)
class Scale:
    """How long and how much; every load is bounded by both."""

    warm_up_s: float
    throughput_s: float
    throughput_max_bytes: int
    backlog_bytes: int
    """What consumers read, of either system."""
    latency_s: float
    latency_rates: tuple[int, ...]
    idle_s: float
    kills: int
    group_members: int
    topics: int
    idle_partitions: int


FULL = Scale(
    warm_up_s=8.0,
    throughput_s=6.0,
    throughput_max_bytes=1 << 30,
    backlog_bytes=256 << 20,
    latency_s=6.0,
    latency_rates=(200, 1000, 4000, 10_000),
    idle_s=5.0,
    kills=2,
    group_members=1000,
    topics=1000,
    idle_partitions=10_000,
)
SMOKE = Scale(
    warm_up_s=0.2,
    throughput_s=0.3,
    throughput_max_bytes=32 << 20,
    backlog_bytes=8 << 20,
    latency_s=0.5,
    latency_rates=(200, 1000),
    idle_s=0.1,
    kills=1,
    group_members=20,
    topics=20,
    idle_partitions=200,
)


@dataclass
class Session:
    """What a workload is given."""

    cluster: BenchmarkCluster
    scale: Scale
    note: Callable[[str], None]
    admin: Admin = field(init=False)
    # Samples by metric name, in the units that metrics.py gives.
    samples: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    rss_peak: int = 0
    _topic_numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.admin = Admin(self.cluster.bootstrap)

    def new_topic(self, partitions: int) -> str:
        """A fresh topic with three copies."""
        topic = f"bench-{next(self._topic_numbers)}"
        self.admin.create_topic(topic, partitions)
        return topic

    def record(self, metric: str, value: float) -> None:
        self.samples.setdefault(metric, []).append(value)

    def note_memory(self) -> None:
        """Remember the most memory that the nodes were seen to hold."""
        self.rss_peak = max(self.rss_peak, rss_bytes(self.cluster))
