"""The lines of the table: what each sample name means, its unit, which way is better, and the aim."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.coordination import COMMIT_RATE, PRODUCERS
from benchmarks.percentiles import QUANTILES
from benchmarks.session import FULL
from benchmarks.workloads import BACKLOG_RATE, MANY_PARTITIONS, PARTITIONS


@dataclass(frozen=True)
class Metric:
    """One line. `aim` is the design's, in words, empty where it gives none.

    `parts` are the ends of the names of its samples: a latency line shows three quantiles side by side.
    """

    name: str
    title: str
    unit: str
    higher_is_better: bool = False
    aim: str = ""
    parts: tuple[str, ...] = ("",)

    def sample_names(self) -> list[str]:
        return [self.name + part for part in self.parts]


def _throughput() -> list[Metric]:
    aims = {"produce-1k.all": "≥ 4 x", "produce-100.all": "≥ 2.5 x"}
    lines = []
    for size, label in (("1k", "1 KiB"), ("100", "100 B")):
        for acks in ("all", "1"):
            name = f"produce-{size}.{acks}"
            title = f"produce {label}, acks={acks}"
            cpu_aim = "≤ 1/7" if name == "produce-1k.all" else ""
            lines += [
                Metric(f"{name}.rate", title, "MB/s", True, aims.get(name, "")),
                Metric(f"{name}.broker-cpu", f"{title}: broker CPU", "s/GB", aim=cpu_aim),
                Metric(f"{name}.client-cpu", f"{title}: client CPU", "s/GB"),
            ]
    for size, label in (("1k", "1 KiB"), ("100", "100 B")):
        lines += [
            Metric(f"consume-{size}.rate", f"consume {label}", "MB/s", True, "≥ 1.5 x"),
            Metric(
                f"consume-{size}.ceiling", f"consume {label}: as fast as the client's thread is", "MB/s", True
            ),
            Metric(
                f"consume-{size}.waits", f"consume {label}: of its time that thread waits for records", "%"
            ),
            Metric(f"consume-{size}.client-cpu", f"consume {label}: client CPU", "s/GB"),
            Metric(f"consume-{size}.broker-cpu", f"consume {label}: broker CPU", "s/GB"),
            Metric(f"consume-{size}.cores", f"consume {label}: client and brokers together", "cores"),
            Metric(f"consume-{size}.c.rate", f"consume {label}, a client in C", "MB/s", True, "≥ 1.5 x"),
            Metric(f"consume-{size}.c.client-cpu", f"consume {label}, a client in C: client CPU", "s/GB"),
            Metric(f"consume-{size}.c.broker-cpu", f"consume {label}, a client in C: broker CPU", "s/GB"),
            Metric(f"consume-{size}.c.cores", f"consume {label}, a client in C: both together", "cores"),
        ]
    return lines


def _cold_backlog() -> list[Metric]:
    parts = tuple(f".{quantile}" for quantile in QUANTILES)
    ways = {
        "alone": "nobody reads",
        "warm": "a backlog is read from the page cache",
        "cold": "a backlog is read from the disk",
        "computing": "nobody reads, a process computes as long as that consumer",
    }
    lines = [
        Metric(
            f"cold-backlog.{way}", f"ack {' / '.join(QUANTILES)}, {BACKLOG_RATE:,}/s, {said}", "ms",
            aim="p99 ≤ 2 x alone" if way == "cold" else "", parts=parts,
        )
        for way, said in ways.items()
    ]  # fmt: skip
    return [
        *lines,
        Metric("cold-backlog.warm.rate", "consume 1 KiB from the page cache, beside 1,000/s", "MB/s", True),
        Metric("cold-backlog.cold.rate", "consume 1 KiB from the disk, beside 1,000/s", "MB/s", True),
    ]


def _latencies() -> list[Metric]:
    parts = tuple(f".{quantile}" for quantile in QUANTILES)
    lines = []
    for partitions in (PARTITIONS, MANY_PARTITIONS):
        for kind in ("ack", "end-to-end"):
            for rate in FULL.latency_rates:
                title = f"{kind} {' / '.join(QUANTILES)}, {rate:,}/s, {partitions} partitions"
                aim = ""
                if kind == "ack":
                    aim = "≤ 1/3" if rate == FULL.latency_rates[0] else "p99 ≤ 20 ms"
                name = f"latency-{partitions}.{rate}.{kind}"
                lines.append(Metric(name, title, "ms", aim=aim, parts=parts))
    return lines


def _coordination() -> list[Metric]:
    parts = tuple(f".{quantile}" for quantile in QUANTILES)
    quantiles = " / ".join(QUANTILES)
    lines = [
        Metric("group.rebalance", f"a group of {FULL.group_members:,} rebalances", "s"),
        Metric("commits", f"commit {quantiles}, {COMMIT_RATE:,}/s, one coordinator", "ms", parts=parts),
    ]
    for producers in PRODUCERS:
        name = f"transactions-{producers}"
        by = "one producer" if producers == 1 else f"{producers} producers"
        lines += [
            Metric(f"{name}.rate", f"transactions, {by}", "1/s", True),
            Metric(name, f"transaction {quantiles}, {by}", "ms", parts=parts),
        ]
    partitions = f"{FULL.idle_partitions:,} idle partitions, a node's"
    return [
        *lines,
        Metric("topics", f"{FULL.topics:,} topics created", "s"),
        Metric("idle-partitions.cpu", f"{partitions} CPU", "%", aim="< 5 %"),
        Metric("idle-partitions.rss", f"{partitions} RSS", "MB", aim="< 300 MB"),
    ]


_FAILOVER_AIM = "median < 0.5 s, worst < 1.5 s"

METRICS: tuple[Metric, ...] = (
    Metric("start", "start to first acks=all ack", "s", aim="≤ 1.5 s"),
    Metric("memory.idle", "RSS of three nodes, idle", "MB", aim="≤ 1/10"),
    Metric("memory.loaded", "RSS of three nodes, loaded", "MB", aim="≤ 1/10"),
    Metric("floor", "this machine: CPU to write three copies to files", "s/GB"),
    *_throughput(),
    *_cold_backlog(),
    *_latencies(),
    *_coordination(),
    Metric("failover-leader", "acks=all gap, leader killed", "s", aim=_FAILOVER_AIM),
    Metric("failover-controller", "acks=all gap, controller killed", "s", aim=_FAILOVER_AIM),
)
