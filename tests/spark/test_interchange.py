"""A query moves with its checkpoint from Spark's own Kafka source to ours, and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.cluster import SystemSkipped
from benchmarks.spark.systems import System, beside_the_jar
from tests.spark.topics import Topics
from tests.support.clients.rdkafka import send

ROOT = Path(__file__).resolve().parents[2]
THEIRS, OURS = "kafka", "kraft"
T0 = 1_700_000_000_000
PARTITIONS = 3
END_PATIENCE_S = 180

Rows = list[list]
"""Partition, offset, key, value, timestamp in µs, its type."""


@pytest.fixture(scope="module")
def spark_with_the_jar() -> System:
    try:
        return beside_the_jar()[0]
    except SystemSkipped as reason:
        pytest.skip(str(reason))


class Query:
    """A query and its topic."""

    def __init__(self, process: subprocess.Popen[str], topics: Topics, topic: str) -> None:
        self._process, self._topics, self._topic = process, topics, topic
        self._rounds = 0
        self.read: dict[int, Rows] = {}

    def fill(self, rounds: int) -> None:
        """A record for each partition and round."""
        wanted = range(self._rounds, self._rounds + rounds)
        self._rounds += rounds
        send(
            self._topics.bootstrap,
            self._topic,
            (
                {"partition": p, "key": b"%d" % p, "value": b"%d/%d" % (p, each), "timestamp": T0 + each}
                for each in wanted
                for p in range(PARTITIONS)
            ),
        )

    def run(self, source: str, *, dies: bool = False) -> None:
        """What it reads is new, or the same as when a run died of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{source} dies\n" if dies else f"{source}\n")
        self._process.stdin.flush()
        for batch, rows in json.loads(self._process.stdout.readline()).items():
            assert self.read.setdefault(int(batch), rows) == rows, f"micro-batch {batch} differs by {source}"

    def check(self) -> None:
        """Every record once, and micro-batches without a gap: no run began again."""
        expected = [
            [p, each, str(p), f"{p}/{each}", (T0 + each) * 1000, 0]
            for p in range(PARTITIONS)
            for each in range(self._rounds)
        ]
        assert sorted(row for rows in self.read.values() for row in rows) == expected
        assert sorted(self.read) == list(range(len(self.read)))


@contextmanager
def query(system: System, topics: Topics, directory: Path) -> Iterator[Query]:
    topic = topics.make(PARTITIONS)
    options = json.dumps(topics.options(topic, startingOffsets="earliest"))
    command = [sys.executable, "-m", "tests.spark.moving_query", options, str(directory / "checkpoint")]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *map(str, system.jars)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            env={**os.environ, **system.environment()},
        )
    with process:
        try:
            yield Query(process, topics, topic)
            process.communicate(timeout=END_PATIENCE_S)  # it ends with its input
        finally:
            process.kill()


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.row("S2", "S3")
@pytest.mark.parametrize("first", [THEIRS, OURS])
def test_a_query_moves_and_comes_back(spark_with_the_jar: System, topics: Topics, tmp_path: Path, first: str):
    """Also in the middle of a micro-batch, which is read again as it was planned. That one is always ours to
    do: Spark's own source of 4.1.0 ends the query after a micro-batch that runs again (SPARK-57438)."""
    with query(spark_with_the_jar, topics, tmp_path) as moving:
        moving.fill(2)
        moving.run(first)
        for source in (OURS, THEIRS, OURS):
            moving.fill(3)
            moving.run(source)
        for source in (THEIRS, OURS):
            moving.fill(2)
            moving.run(source, dies=True)
            moving.fill(1)
            moving.run(OURS)
        moving.fill(2)
        moving.run(THEIRS)
        moving.check()
