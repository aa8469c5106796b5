"""The text of a scrape: OpenMetrics 1.0, made in pieces, so that no scrape holds up the event loop.

Prometheus -> GET /metrics -> each row of the table is read in one call -> text -> a turn of the loop ...
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from typing import Final

from kraft.metrics.metric import Kind, Metric, Number, Style
from kraft.metrics.sources import Sources
from kraft.metrics.table import METRICS

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LINES_PER_PIECE: Final = 1000
"""Some 2 ms."""
_SUFFIX: Final = {Kind.COUNTER: "_total"}


async def exposition(sources: Sources, style: Style) -> AsyncIterator[bytes]:
    """The whole answer, piece by piece."""
    if sources.broker is not None:
        await sources.broker.lags.refresh()
    lines: list[str] = []
    for metric in METRICS:
        if metric.only is not None and metric.only is not style:
            continue
        for line in _lines(metric, sources, style):
            lines.append(line)
            if len(lines) >= LINES_PER_PIECE:
                yield "".join(lines).encode()
                lines.clear()
                await asyncio.sleep(0)
    lines.append("# EOF\n")
    yield "".join(lines).encode()


def _lines(metric: Metric, sources: Sources, style: Style) -> Iterator[str]:
    """Of one row, its header first. What it says was read before the first line is taken."""
    samples = metric.read(sources)
    found = [((), samples)] if isinstance(samples, int | float) else list(samples)
    if not found:
        return iter(())
    name = metric.name_in(style)
    kind = metric.kind_in(style)
    family = name.removesuffix(_SUFFIX.get(kind, ""))
    header = f"# TYPE {family} {kind}\n# HELP {family} {metric.help}\n"
    return _with_header(header, (f"{name}{_labels(metric.labels, v)} {_text(n)}\n" for v, n in found))


def _with_header(header: str, lines: Iterator[str]) -> Iterator[str]:
    yield header
    yield from lines


@lru_cache(maxsize=65536)
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
