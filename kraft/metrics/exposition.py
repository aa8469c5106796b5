"""The text of a scrape: OpenMetrics 1.0, made in pieces, so that no scrape holds up the event loop.

Prometheus -> GET /metrics -> each row of the table is read in one call -> text -> a turn of the loop ...
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from typing import Final

from kraft.metrics.metric import Kind, Metric, Number, Sample, Style
from kraft.metrics.sources import Sources
from kraft.metrics.table import METRICS

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LINES_PER_PIECE: Final = 1000
"""Some 2 ms."""
Labels = dict[tuple[tuple[str, ...], tuple[str, ...]], str]
"""As they are written, by names and values: a partition's are in a score of rows of one scrape."""
_SUFFIX: Final = {Kind.COUNTER: "_total"}


async def exposition(sources: Sources, style: Style) -> AsyncIterator[bytes]:
    """The whole answer, piece by piece."""
    if sources.broker is not None:
        await sources.broker.lags.refresh()
    lines: list[str] = []
    labels: Labels = {}
    for metric in METRICS:
        if metric.only is not None and metric.only is not style:
            continue
        for line in _lines(metric, sources, style, labels):
            lines.append(line)
            if len(lines) >= LINES_PER_PIECE:
                yield "".join(lines).encode()
                lines.clear()
                await asyncio.sleep(0)
    lines.append("# EOF\n")
    yield "".join(lines).encode()


def _lines(metric: Metric, sources: Sources, style: Style, labels: Labels) -> Iterator[str]:
    """Of one row, its header first. What it says was read before the first line is taken."""
    samples = metric.read(sources)
    found: list[Sample] = [((), samples)] if isinstance(samples, int | float) else list(samples)
    if not found:
        return iter(())
    name = metric.name_in(style)
    kind = metric.kind_in(style)
    family = name.removesuffix(_SUFFIX.get(kind, ""))
    header = f"# TYPE {family} {kind}\n# HELP {family} {metric.help}\n"
    return _written(header, name, metric.labels, found, labels)


def _written(
    header: str, name: str, names: tuple[str, ...], samples: list[Sample], labels: Labels
) -> Iterator[str]:
    yield header
    for values, number in samples:
        text = labels.get((names, values))
        if text is None:
            text = labels[names, values] = _labels(names, values)
        yield f"{name}{text} {_text(number)}\n"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Empty values are left out: they are the same as no label."""
    given = [f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True) if value]
    return f"{{{','.join(given)}}}" if given else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _text(value: Number) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value)
