"""The text of a scrape: OpenMetrics 1.0, made in pieces, so that no scrape holds up the event loop.

Prometheus -> GET /metrics -> each row of the table is read in one call -> text -> a turn of the loop ...

Whoever scrapes at the same time takes turns with the others.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import lru_cache
from typing import Final

from kraft.metrics.metric import Kind, Metric, Number, OverManyTurns, Sample, Style
from kraft.metrics.sources import Sources
from kraft.metrics.table import METRICS

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LINES_PER_PIECE: Final = 1000
"""Lines written in one turn of the loop: some 2 ms."""
LONGEST: Final = 256
"""Characters of a label's value: a group's name may have 32 KB, and is in each of its partitions' lines."""
DIGEST: Final = 16
PARTITIONS_PER_LINE: Final = 10
"""Many a row walks over all partitions, whatever lines it makes: so many take the time of a line."""
MEMORY_OF_PARTITION: Final = 512
"""Of the labels of a scrape."""
Labels = dict[tuple[tuple[str, ...], tuple[str, ...]], str]
"""As they are written, by names and values: a partition's are in a score of rows of one scrape."""
_SUFFIX: Final = {Kind.COUNTER: "_total"}


async def exposition(sources: Sources, style: Style) -> AsyncIterator[bytes]:
    """The whole answer, piece by piece."""
    if sources.broker is not None:
        await sources.broker.lags.refresh()
    if sources.controller is not None:
        await sources.controller.partition_counts.refresh()
    await sources.turns.next()
    lines: list[str] = []
    labels: Labels = {}
    lines_of_a_walk = _partitions(sources) // PARTITIONS_PER_LINE
    walked = 0
    for metric in METRICS:
        if metric.only is not None and metric.only is not style:
            continue
        walked += lines_of_a_walk
        for line in _lines(metric, sources, style, labels):
            lines.append(line)
            if len(lines) + walked >= LINES_PER_PIECE:
                yield "".join(lines).encode()
                lines.clear()
                walked = 0
                await sources.turns.next()
    lines.append("# EOF\n")
    yield "".join(lines).encode()


def most_memory(sources: Sources) -> int:
    """What a scrape holds until it is read."""
    return MEMORY_OF_PARTITION * _partitions(sources)


def _partitions(sources: Sources) -> int:
    return 0 if sources.broker is None else len(sources.broker.context.replica_manager)


def _lines(metric: Metric, sources: Sources, style: Style, labels: Labels) -> Iterator[str]:
    """Of one row, its header first. What it says was read before the first line is taken, unless it is read
    over many turns."""
    samples = metric.read(sources)
    found: Iterable[Sample]
    if isinstance(samples, OverManyTurns):
        found = samples.samples
    else:
        found = [((), samples)] if isinstance(samples, int | float) else list(samples)
    name = metric.name_in(style)
    kind = metric.kind_in(style)
    family = name.removesuffix(_SUFFIX.get(kind, ""))
    header = f"# TYPE {family} {kind}\n# HELP {family} {metric.help}\n"
    return _written(header, name, metric.labels, found, labels)


def _written(
    header: str, name: str, names: tuple[str, ...], samples: Iterable[Sample], labels: Labels
) -> Iterator[str]:
    """Nothing where there are no samples."""
    for values, number in samples:
        if header:
            yield header
            header = ""
        text = labels.get((names, values))
        if text is None:
            text = labels[names, values] = _labels(names, values)
        yield f"{name}{text} {_text(number)}\n"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Empty values are left out: they are the same as no label."""
    given = [f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True) if value]
    return f"{{{','.join(given)}}}" if given else ""


def _escaped(value: str) -> str:
    if len(value) > LONGEST:
        value = _cut(value)
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@lru_cache(maxsize=64)
def _cut(value: str) -> str:
    """The beginning, and a digest: two series must not have the same labels."""
    digest = hashlib.sha256(value.encode()).hexdigest()[:DIGEST]
    return f"{value[: LONGEST - DIGEST - 1]}~{digest}"


def _text(value: Number) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value)
