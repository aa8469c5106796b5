"""The aims, and whether a run meets them: no figure of that table is typed either.

    python -m benchmarks.aims bench-results/20261122-031502.json bench-results/20261122-034010-spark.json

puts both tables into docs/PERFORMANCE.md. An aim is a bound on one sample, or on its ratio to another: to
that of Apache Kafka (or of Spark's own source), or to a second one of the same system.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer

from benchmarks.page import PAGE, filled
from benchmarks.report import COMPILED, OURS, THEIRS, Samples, number
from benchmarks.spark.lines import THEIRS as SPARKS_OWN
from benchmarks.workloads import MANY_PARTITIONS, PARTITIONS

NOT_MEASURED: Final = "-"
THE_OTHERS: Final = "the other system's"


@dataclass(frozen=True)
class Aim:
    """One line."""

    title: str
    metric: str
    bound: float
    at_least: bool = False
    """Or at most."""
    of: str = ""
    """What the sample is divided by: another one of the same system, or THE_OTHERS of the same name."""
    unit: str = ""

    def wanted(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {number_or_part(self.bound)} {'x' if self.of else self.unit}"

    def value(self, samples: Samples, system: str, other: str) -> float | None:
        """None where something was not measured."""
        figure = _median(samples, system, self.metric)
        if self.of:
            by_others = self.of == THE_OTHERS
            against = _median(samples, other, self.metric) if by_others else _median(samples, system, self.of)
        else:
            against = 1.0
        return figure / against if figure is not None and against else None

    def is_met_by(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


def _median(samples: Samples, system: str, metric: str) -> float | None:
    values = samples.get(system, {}).get(metric)
    return median(values) if values else None


def number_or_part(value: float) -> str:
    """A third is 1/3 and not 0.33, and 20 is not 20.0."""
    if value < 0.5:
        return f"1/{1 / value:.0f}"
    return f"{value:g}"


def at_least(title: str, metric: str, bound: float) -> Aim:
    """So many times what the other system has."""
    return Aim(title, metric, bound, at_least=True, of=THE_OTHERS)


def at_most(title: str, metric: str, bound: float, of: str = THE_OTHERS) -> Aim:
    return Aim(title, metric, bound, of=of)


P99_MS: Final = 20.0
RATES: Final = (1000, 4000, 10_000)

AIMS: Final = (
    at_least("produce 1 KiB, acks=all: MB/s, of Kafka's", "produce-1k.all.rate", 4),
    at_most("produce 1 KiB, acks=all: broker CPU, of Kafka's", "produce-1k.all.broker-cpu", 1 / 7),
    at_most("produce 1 KiB, acks=all: broker CPU, of the floor", "produce-1k.all.broker-cpu", 1.3, "floor"),
    at_least("produce 100 B, acks=all: MB/s, of Kafka's", "produce-100.all.rate", 2.5),
    at_least("consume 1 KiB in C: MB/s, of Kafka's", "consume-1k.c.rate", 1.5),
    at_least("consume 1 KiB in Python: MB/s, of Kafka's", "consume-1k.rate", 1.5),
    at_least("consume 100 B in C: MB/s, of Kafka's", "consume-100.c.rate", 1.5),
    at_least("consume 100 B in Python: MB/s, of Kafka's", "consume-100.rate", 1.5),
    at_most(
        "ack p99 beside a cold backlog's reader, of that beside nobody",
        "cold-backlog.cold.p99",
        2,
        "cold-backlog.alone.p99",
    ),
    *(
        at_most(
            f"ack p99, 200/s, {partitions} partitions, of Kafka's", f"latency-{partitions}.200.ack.p99", 1 / 3
        )
        for partitions in (PARTITIONS, MANY_PARTITIONS)
    ),
    *(
        Aim(
            f"ack p99, {rate:,}/s, {partitions} partitions",
            f"latency-{partitions}.{rate}.ack.p99",
            P99_MS,
            unit="ms",
        )
        for partitions in (PARTITIONS, MANY_PARTITIONS)
        for rate in RATES
    ),
    at_most("a group of 1,000 rebalances, of Kafka's time", "group.rebalance", 1),
    Aim("transactions of one producer", "transactions-1.rate", 100, at_least=True, unit="a second"),
    Aim("transaction p50, one producer", "transactions-1.p50", 10, unit="ms"),
    Aim("start to first acks=all ack", "start", 1.5, unit="s"),
    Aim("acks=all gap, leader killed", "failover-leader", 0.5, unit="s"),
    Aim("acks=all gap, controller killed", "failover-controller", 0.5, unit="s"),
    at_most("memory at rest, of Kafka's", "memory.idle", 1 / 10),
    at_most("memory under load, of Kafka's", "memory.loaded", 1 / 10),
)

SPARK_AIMS: Final = (
    at_least("batch, 100 B: rows/s, of Spark's own source's", "batch-100.rate", 1.5),
    at_least("batch, 1 KiB: rows/s, of its", "batch-1k.rate", 1.2),
    at_least("batch, 100 B, keys, lz4: rows/s, of its", "batch-lz4.rate", 1.2),
    at_least("batch, 100 B, keys, zstd: rows/s, of its", "batch-zstd.rate", 1.2),
    at_least("availableNow: rows/s, of its", "catch-up", 1.4),
    Aim("append to sink, p50", "copy.p50", 500, unit="ms"),
    at_most("append to sink, p50, of its", "copy.p50", 1),
    Aim("idle stream: client", "idle", 15, unit="% of a core"),
    at_most(
        "first row of a session, of a source's that does nothing",
        "first-row.cold",
        1.2,
        "first-row.least-cold",
    ),
    at_most("first row later, of a source's that does nothing", "first-row.later", 1.2, "first-row.least"),
    Aim("Python worker, peak RSS", "worker-rss", 256, unit="MB"),
)


def rows(aims: Sequence[Aim], samples: Samples, other: str, systems: Sequence[str]) -> list[tuple[str, ...]]:
    """A cell for each system: its value, and whether that is within the bound."""
    made = []
    for aim in aims:
        values = (aim.value(samples, system, other) for system in systems)
        cells = (
            NOT_MEASURED
            if value is None
            else f"{number(value)} {'met' if aim.is_met_by(value) else '**missed**'}"
            for value in values
        )
        made.append((aim.title, aim.wanted(), *cells))
    return made


def table(titles: Sequence[str], made: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (titles, ("-",) * len(titles), *made))


def both_tables(brokers: Samples, spark: Samples, spark_titles: Mapping[str, str]) -> str:
    """As the page has them; either may have no samples."""
    tables = []
    if brokers:
        made = rows(AIMS, brokers, THEIRS, (OURS, COMPILED))
        tables.append(table(("aim", "bound", "kraft", "compiled"), made))
    if spark:
        ours = [name for name in spark_titles if name != SPARKS_OWN]
        titles = ("aim, Spark", "bound", *(spark_titles[name] for name in ours))
        tables.append(table(titles, rows(SPARK_AIMS, spark, SPARKS_OWN, ours)))
    return "\n\n".join(tables)


def main(
    brokers: Annotated[Path, typer.Argument(help="Samples that `make bench` has written.", exists=True)],
    spark: Annotated[Path | None, typer.Argument(help="Those of benchmarks.spark.", exists=True)] = None,
    page: Annotated[Path, typer.Option(help="The page.", exists=True)] = PAGE,
) -> None:
    """Put the tables of the aims into the page."""
    of_spark = json.loads(spark.read_text()) if spark else {"samples": {}, "systems": []}
    titles = dict(zip(of_spark["samples"], of_spark["systems"], strict=True))
    text = both_tables(json.loads(brokers.read_text())["samples"], of_spark["samples"], titles)
    page.write_text(filled(page.read_text(), "aims", text))
    typer.echo(text)


if __name__ == "__main__":
    typer.run(main)
