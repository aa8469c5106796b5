"""However much a stranger causes, the log stays short."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kraft.monitoring.rate_limited_log import LINES, LONGEST_LINE, PERIOD_S, rate_limited


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def kept() -> Iterator[Kept]:
    log, handler = logging.getLogger("tests.paced"), Kept()
    log.propagate = False
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    rate_limited(log)
    yield handler
    log.removeHandler(handler)
    for each in list(log.filters):
        log.removeFilter(each)


def say(at: float, message: str, *args: object, level: int = logging.INFO) -> None:
    log = logging.getLogger("tests.paced")
    record = log.makeRecord(log.name, level, __file__, 1, message, args, None)
    record.created = at
    log.handle(record)


def test_a_flood_is_counted_and_not_written(kept: Kept) -> None:
    for number in range(13 * LINES):
        say(1.0, "refused %d", number)
    assert kept.lines == [f"refused {number}" for number in range(LINES)]
    say(1.0 + PERIOD_S, "refused again")
    say(1.0 + PERIOD_S, "and again")
    counted = f"refused again (and {12 * LINES} lines before it were left out)"
    assert kept.lines[LINES:] == [counted, "and again"]


def test_a_long_name_is_cut(kept: Kept) -> None:
    say(1.0, "no topic %r", "x" * 30_000)
    assert len(kept.lines[0]) == LONGEST_LINE + 3


def test_errors_are_always_written(kept: Kept) -> None:
    for _ in range(2 * LINES):
        say(1.0, "ours", level=logging.ERROR)
    assert len(kept.lines) == 2 * LINES


def test_a_line_that_is_left_out_is_not_made(kept: Kept, monkeypatch: pytest.MonkeyPatch):
    log = logging.getLogger("tests.paced")
    made = 0
    make = log.makeRecord

    def counted(*args: Any, **more: Any) -> logging.LogRecord:
        nonlocal made
        made += 1
        return make(*args, **more)

    monkeypatch.setattr(log, "makeRecord", counted)
    for _ in range(100):
        log.info("refused")
    assert made == len(kept.lines) == LINES
    log.error("ours")
    assert made == LINES + 1

    say(time.time() + PERIOD_S, "later")
    assert f"{100 - LINES} lines before it" in kept.lines[-1]
