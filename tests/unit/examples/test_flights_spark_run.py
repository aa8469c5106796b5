"""The query's process is followed, killed when that is due, started again, and never left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from examples.flights import spark_run
from examples.flights.audit import Problems
from examples.flights.plan import QueryJob
from examples.flights.spark_run import BUSY, RACE, SparkRun
from examples.flights.stream import StreamFailed
from tests.support.waiting import wait_until

TOTAL = 90
STARTED = {"event": "started"}
ROW = ["2013-01-01", "UA", "Kennedy", 1, 1, 2.0]


class Screen:
    """Remembers."""

    def __init__(self) -> None:
        self.done: dict[str, int] = {}
        self.printed: list[str] = []
        self.marked: list[str] = []

    def progress(self, **done: int) -> None:
        self.done |= done

    def tell(self, text: str) -> None:
        self.printed.append(text)

    def mark(self, name: str) -> None:
        self.marked.append(name)


class Stage:
    """A run whose program tells what the test has written down for each of its starts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.screen = Screen()
        self.run = SparkRun(QueryJob("", str(directory), "", 10), TOTAL, self.screen, lambda _text: None)
        self._starts = 0
        for query in ("a", "b"):
            for log in ("offsets", "commits"):
                (directory / "checkpoint" / query / log).mkdir(parents=True)

    def next_start(self, *progress: dict[str, Any]) -> None:
        self._starts += 1
        text = "".join(json.dumps(line) + "\n" for line in progress)
        (self._directory / f"run-{self._starts}").write_text(text)

    def through(self) -> None:
        self.run.start()
        self.run.wait_for_all()

    def planned(self, *names: str) -> None:
        """Micro-batches, as "a/offsets/3"."""
        for name in names:
            (self._directory / "checkpoint" / name).touch()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(spark_run, "PROGRAM", "tests.unit.examples.printed_lines")
    monkeypatch.setattr(spark_run, "RESTARTS", 2)
    stage = Stage(tmp_path)
    before = set(psutil.Process().children(recursive=True))
    yield stage
    stage.run.close()
    assert set(psutil.Process().children(recursive=True)) <= before


def progress(query: str, batch: int, read: int, late: int = 0) -> dict[str, Any]:
    return {"event": "progress", "query": query, "batch": batch, "read": read, "late": late}


def parquet(rows: list[Any]) -> dict[str, Any]:
    return {"event": "parquet", "rows": rows, "files": 2, "on_disk": 3}


def problems_of(run: SparkRun) -> list[str]:
    problems = Problems()
    run.check(problems)
    return problems.shown


def test_killed_within_a_micro_batch_and_started_again(stage: Stage):
    stage.next_start(STARTED, progress("a", 3, 45), progress("b", 2, 30), progress("b", 2, 30, late=0))
    stage.next_start(STARTED, progress("a", 4, 95), progress("b", 3, 95), parquet([ROW]))
    stage.planned("a/offsets/3", "a/commits/3", "b/offsets/3", "b/commits/2")
    run = stage.run
    run.start()
    wait_until(lambda: run.look() or run.read == 30, "what the slower query has read")
    assert run.may_send(74)
    assert not run.may_send(75)
    run.look()
    assert run.outcome.killed_at is None, "a is not within a micro-batch"
    stage.planned("a/offsets/4", "a/offsets/4.crc")
    run.look()
    assert run.outcome.killed_at == 30
    run.wait_for_all()
    run.wait_for_result()
    assert (run.outcome.resumed_in_batch, run.outcome.files, run.outcome.files_ignored) == (4, 2, 1)
    assert [tuple(ROW)] == run.outcome.rows
    assert stage.screen.done == {"spark": TOTAL}  # the marker is no flight
    assert stage.screen.marked == ["spark"]
    assert problems_of(run) == []


def test_what_can_be_wrong(stage: Stage):
    stage.next_start(STARTED, progress("a", 3, 29), progress("b", 2, 29, late=2))
    stage.run.start()
    wait_until(lambda: stage.run.look() or stage.run.read == 29, "progress")
    assert problems_of(stage.run) == ["the Spark query was not killed", "Spark dropped 2 rows as late"]


def test_a_query_that_started_over(stage: Stage):
    stage.next_start(STARTED, progress("a", 3, 30), progress("b", 2, 30))
    stage.next_start(STARTED, progress("a", 0, 95), progress("b", 0, 95))
    stage.planned("a/offsets/4", "b/offsets/3")
    stage.run.start()
    stage.run.wait_for_all()
    assert problems_of(stage.run) == ["the Spark query began again instead of going on from its checkpoint"]


def test_what_spark_itself_fails_with_is_forgiven_some_times(stage: Stage):
    for sign in (BUSY, RACE):
        stage.next_start({"event": "failed", "why": f"SparkException: ...\n{sign}."})
    stage.next_start(STARTED)
    stage.run.start()
    assert len([text for text in stage.screen.printed if "failed: " in text]) == 2


def test_a_machine_that_stays_busy(stage: Stage):
    for _ in range(3):
        stage.next_start({"event": "failed", "why": f"SparkException: {BUSY}"})
    with pytest.raises(StreamFailed, match="failed"):
        stage.run.start()


def test_a_query_that_fails(stage: Stage):
    stage.next_start(STARTED, {"event": "failed", "why": "KraftError: no rights\n\tat x"})
    with pytest.raises(StreamFailed, match=r"KraftError: no rights$"):
        stage.through()


def test_a_query_that_just_ends(stage: Stage):
    stage.next_start(STARTED, {"event": "that is all"})
    with pytest.raises(StreamFailed, match="ended by itself"):
        stage.through()
