"""The lines of the table: what each sample means, and the aim beside the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console

from benchmarks.report import cell, markdown_of, number, table_of
from benchmarks.spark.data import LARGE, LZ4, SHAPES, SMALL, ZSTD
from benchmarks.spark.systems import System

# Samples of all rounds: system -> name -> values.
Samples = Mapping[str, Mapping[str, Sequence[float]]]

THEIRS = "jar"


@dataclass(frozen=True)
class SparkMetric:
    """One line. The aim is in words; a ratio is that to Spark's own."""

    name: str
    title: str
    unit: str
    aim: str = ""


_RATES = {SMALL.name: "≥ 1.5 x", LARGE.name: "≥ 1.2 x", LZ4.name: "≥ 1.2 x", ZSTD.name: "≥ 1.2 x"}
_PER_CORE = {SMALL.name: "≥ 0.9 x", LARGE.name: "≥ 0.7 x"}

METRICS: tuple[SparkMetric, ...] = (
    *(
        metric
        for shape in SHAPES
        for metric in (
            SparkMetric(
                f"batch-{shape.name}.rate", f"batch, {shape.title}", "M rows/s", _RATES.get(shape.name, "")
            ),
            SparkMetric(
                f"batch-{shape.name}.per-core",
                f"batch, {shape.title}: client",
                "M rows/core-s",
                _PER_CORE.get(shape.name, ""),
            ),
            SparkMetric(f"batch-{shape.name}.brokers", f"batch, {shape.title}: brokers", "M rows/core-s"),
        )
    ),
    SparkMetric("catch-up", "availableNow, 100 B, four topics", "M rows/s", "≥ 1.4 x"),
    SparkMetric("catch-up.per-core", "availableNow, 100 B, four topics: client", "M rows/core-s"),
    SparkMetric("copy.p50", "append to sink, p50", "ms", "≤ 500 ms, ≤ 1 x"),
    SparkMetric("copy.max", "append to sink, slowest", "ms"),
    SparkMetric("transactional.p50", "append to sink in transactions, p50", "ms"),
    SparkMetric("idle", "idle stream: client", "% of a core", "≤ 15 %"),
    SparkMetric("idle.brokers", "idle stream: brokers", "% of a core"),
    SparkMetric("first-row.cold", "first row of a session", "s", "≤ 1.2 x the next line"),
    SparkMetric("first-row.least-cold", "first row of a session, of a Python source that does nothing", "s"),
    SparkMetric("first-row.later", "first row, later", "s"),
    SparkMetric("first-row.least", "first row, later, of a Python source that does nothing", "s"),
    SparkMetric("start", "start of the session", "s"),
    SparkMetric("worker-rss", "Python worker, peak RSS", "MB", "≤ 256 MB"),
    SparkMetric("memory", "all processes of the client at the end", "MB"),
)


def headings(systems: Sequence[System]) -> tuple[str, ...]:
    return (
        "",
        "unit",
        *(
            text
            for each in systems
            for text in ((each.title,) if each.name == THEIRS else (each.title, "ratio"))
        ),
        "aim",
    )


def rows(samples: Samples, systems: Sequence[System]) -> list[tuple[str, ...]]:
    """Those for which there are samples, ready to be printed."""
    made = []
    for metric in METRICS:
        if not any(samples[system.name].get(metric.name) for system in systems):
            continue
        cells = []
        theirs = samples.get(THEIRS, {}).get(metric.name)
        for system in systems:
            values = samples[system.name].get(metric.name)
            cells.append(cell([values] if values else []))
            if system.name != THEIRS:
                cells.append(f"{number(median(values) / median(theirs))} x" if values and theirs else "-")
        made.append((metric.title, metric.unit, *cells, metric.aim))
    return made


def print_table(console: Console, samples: Samples, systems: Sequence[System]) -> None:
    console.print(table_of(headings(systems), rows(samples, systems)))


def markdown(samples: Samples, systems: Sequence[System], facts: Mapping[str, str]) -> str:
    return markdown_of(headings(systems), rows(samples, systems), facts)
