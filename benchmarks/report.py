"""Samples to a table: the median of the rounds per system, the range, and by how much kraft is better.

kraft with its hot modules compiled has columns of its own where it was measured, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.metrics import METRICS, Metric

OURS, COMPILED, THEIRS = "kraft", "compiled", "kafka"
HEADINGS = ("", "unit", "Apache Kafka", "kraft", "kraft is better by", "aim")
WITH_COMPILED = (*HEADINGS[:-1], "kraft, compiled", "is better by", HEADINGS[-1])

# Samples of all rounds: system -> metric -> values.
Samples = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True)
class Line:
    """One printed line, its cells ready."""

    title: str
    unit: str
    theirs: str
    ours: str
    better: str
    aim: str
    compiled: tuple[str, ...] = ()
    """Where it was measured: its figure, and by how much it is better."""

    def cells(self) -> tuple[str, ...]:
        return (self.title, self.unit, self.theirs, self.ours, self.better, *self.compiled, self.aim)


def lines(samples: Samples) -> list[Line]:
    """The lines for which at least one system has samples, in the order of METRICS."""
    made = []
    for metric in METRICS:
        ours, compiled, theirs = (_values(samples.get(name, {}), metric) for name in (OURS, COMPILED, THEIRS))
        if ours or compiled or theirs:
            also = (cell(compiled), _better(metric, compiled, theirs)) if COMPILED in samples else ()
            better = _better(metric, ours, theirs)
            made.append(Line(metric.title, metric.unit, cell(theirs), cell(ours), better, metric.aim, also))
    return made


def _better(metric: Metric, ours: list[Sequence[float]], theirs: list[Sequence[float]]) -> str:
    return " / ".join(factor(metric, median(a), median(b)) for a, b in zip(ours, theirs, strict=False))


def headings(samples: Samples) -> tuple[str, ...]:
    """Of the columns of `lines`."""
    return WITH_COMPILED if COMPILED in samples else HEADINGS


def _values(samples: Mapping[str, Sequence[float]], metric: Metric) -> list[Sequence[float]]:
    """The samples of each part; nothing at all unless every part has some."""
    values = [samples.get(name, ()) for name in metric.sample_names()]
    return values if all(values) else []


def factor(metric: Metric, ours: float, theirs: float) -> str:
    """How many times better kraft is (below 1: worse), so that a reader need not know which direction is
    better."""
    if ours <= 0 or theirs <= 0:
        return "-"
    better = ours / theirs if metric.higher_is_better else theirs / ours
    return f"{number(better)} x"


def cell(parts: Sequence[Sequence[float]]) -> str:
    if not parts:
        return "-"
    middle = " / ".join(number(median(values)) for values in parts)
    values = parts[0]
    if len(parts) > 1 or len(values) == 1:
        return middle
    return f"{middle} ({number(min(values))}-{number(max(values))})"


def number(value: float) -> str:
    """Three figures that mean something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table_of(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """For the terminal."""
    table = Table(title="median of the rounds (least-greatest)", title_justify="left")
    for title in titles:
        table.add_column(title, justify="left" if title in ("", "unit", "aim") else "right")
    for row in rows:
        table.add_row(*row)
    return table


def markdown_of(titles: Sequence[str], rows: Iterable[Sequence[str]], facts: Mapping[str, str]) -> str:
    """The table as a page, with the facts of the machine below."""
    table = "\n".join("| " + " | ".join(row) + " |" for row in (titles, ("-",) * len(titles), *rows))
    machine = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    return f"Median of the rounds (least-greatest).\n\n{table}\n\n{machine}\n"


def print_table(console: Console, samples: Samples, facts: Mapping[str, str]) -> None:
    console.print(table_of(headings(samples), (line.cells() for line in lines(samples))))
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)


def markdown(samples: Samples, facts: Mapping[str, str]) -> str:
    return markdown_of(headings(samples), (line.cells() for line in lines(samples)), facts)


def write(directory: Path, name: str, samples: Samples, facts: Mapping[str, str]) -> Path:
    """`name`.json with every sample and `name`.md with the table; returns the latter."""
    directory.mkdir(parents=True, exist_ok=True)
    everything = {"machine": dict(facts), "samples": samples}
    (directory / f"{name}.json").write_text(json.dumps(everything, indent=1))
    page = directory / f"{name}.md"
    page.write_text(markdown(samples, facts))
    return page
