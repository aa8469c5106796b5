"""The figures of a scale run as Markdown: a row for each figure, a column for each size, and how it grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple


class Row(NamedTuple):
    """A figure's line; `factor` turns it into `unit`."""

    figure: str
    title: str
    unit: str
    factor: float = 1.0


_MS: Final = 1e3


def _step(name: str, title: str) -> tuple[Row, ...]:
    return (
        Row(name, f"{title}, virtual time", "s"),
        Row(f"{name}.cpu", f"{title}, CPU of all nodes", "s"),
        Row(f"{name}.stall", f"{title}, longest callback of a loop", "ms", _MS),
    )


SIMULATED: Final = (
    *_step("start", "all nodes start"),
    *_step("create", "topics are made"),
    Row("rest.node", "CPU of a node at rest", "cores"),
    Row("rest.stall", "at rest, longest callback of a loop", "ms", _MS),
    *_step("fence", "a broker dies, until all know"),
    *_step("fence.start", "it starts, until every ISR is full"),
    Row("failover.elected", "the active controller dies, until another is active", "s"),
    *_step("failover", "until its broker is fenced, and all know"),
    *_step("failover.start", "it starts, until every ISR is full"),
)
IMAGE: Final = (
    Row("snapshot", "snapshot", "s"),
    Row("bytes", "its size", "MB", 1e-6),
    Row("restore", "restore", "s"),
    Row("difference", "difference to nothing", "s"),
    Row("fence", "decision to fence a broker", "s"),
)


def _of_nodes(name: str, title: str) -> tuple[Row, ...]:
    return (
        Row(name, title, "s"),
        Row(f"{name}.cpu", f"{title}: CPU of the nodes", "s"),
        Row(f"{name}.ack-p99", f"{title}: ack p99 of the busy topic", "ms", _MS),
        Row(f"{name}.stall", f"{title}: longest stall of a loop", "ms", _MS),
    )


NODES: Final = (
    *_of_nodes("create", "topics are made"),
    Row("idle.cores", "a node at rest", "cores"),
    Row("rss", "memory of a node", "MB", 1e-6),
    Row("files", "open files of a node", ""),
    *_of_nodes("beside", "at rest"),
    *_of_nodes("scrape", "/metrics"),
    *_of_nodes("fetch.full", "full fetch of all that one node leads"),
    *_of_nodes("fetch.polls", "50 incremental fetches"),
    *_of_nodes("fence", "a broker dies, until it leads nothing"),
    *_of_nodes("fence.start", "it starts, until clients see it"),
    *_of_nodes("fence.start.in-sync", "and until it is in sync"),
    Row("failover.elected", "the active controller dies, until another is active", "s"),
    Row("failover.created", "until a topic can be created", "s"),
    *_of_nodes("failover", "until it leads nothing"),
    *_of_nodes("failover.start", "it starts, until clients see it"),
)


def table(rows: Sequence[Row], what: str, figures: Mapping[int, Mapping[str, float]]) -> str:
    """`figures` by size and name; `what` the sizes count. Rows without a figure are left out."""
    sizes = sorted(figures)
    lines = [
        "| | unit | " + " | ".join(f"{size:,} {what}" for size in sizes) + " | growth |",
        "|-|-|" + "-|" * (len(sizes) + 1),
    ]
    for row in rows:
        values = [figures[size].get(row.figure) for size in sizes]
        if any(value is not None for value in values):
            shown = " | ".join("" if value is None else _text(value * row.factor) for value in values)
            lines.append(f"| {row.title} | {row.unit} | {shown} | {_growth(values)} |")
    return "\n".join(lines) + "\n"


def _growth(values: Sequence[float | None]) -> str:
    """From each size to the next."""
    return ", ".join(f"{after / before:.1f} x" for before, after in pairwise(values) if before and after)


def _text(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
