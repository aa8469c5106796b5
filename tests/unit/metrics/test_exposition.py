"""A scrape is made in pieces, and what very many samples are made of is read piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.metrics import exposition as scrape
from kraft.metrics.metric import Metric, OverManyTurns, Sample, Style

pytestmark = pytest.mark.row("U5")

MANY = 2 * scrape.LINES_PER_PIECE + 500


def pieces(monkeypatch: pytest.MonkeyPatch, *metrics: Metric) -> Iterator[str]:
    """One after the other, as they are written."""
    monkeypatch.setattr(scrape, "METRICS", metrics)
    sources: Any = SimpleNamespace(broker=None)
    answer = scrape.exposition(sources, Style.STRIMZI)
    with asyncio.Runner() as runner:
        while True:
            try:
                yield runner.run(anext(answer)).decode()  # type: ignore[arg-type]
            except StopAsyncIteration:
                return


def of_node(name: str, samples: Any) -> Metric:
    return Metric(name=name, help="Of a test.", labels=("n",), node=lambda _: samples)


def test_many_samples_are_read_over_many_turns(monkeypatch):
    taken = 0

    def samples() -> Iterator[Sample]:
        nonlocal taken
        for taken in range(1, MANY + 1):
            yield (str(taken),), taken

    found = []
    for piece in pieces(monkeypatch, of_node("many", OverManyTurns(samples()))):
        found.append(piece)
        assert taken <= len(found) * scrape.LINES_PER_PIECE
    assert len(found) == 3
    text = "".join(found)
    assert text.startswith('# TYPE many gauge\n# HELP many Of a test.\nmany{n="1"} 1\n')
    assert text.endswith(f'many{{n="{MANY}"}} {MANY}\n# EOF\n')
    assert text.count("# TYPE") == 1


def test_where_there_is_nothing_to_say_nothing_is_said(monkeypatch):
    (text,) = pieces(monkeypatch, of_node("none", []), of_node("none_either", OverManyTurns(iter(()))))
    assert text == "# EOF\n"
