"""Nothing is lost and nothing comes twice, wherever the query, its process, or a broker dies."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from kraft.local.local_cluster import LocalCluster
from tests.spark.dying import FIRST_POINTS, OPTION, POINTS, Deaths
from tests.spark.endless_query import to_parquet
from tests.spark.topics import LIMITED_STEPS, Collected, Record, Topics, expected, records, stream
from tests.support.waiting import wait_until

pytestmark = pytest.mark.heavy


class Run:
    """One query, run again and again until it has nothing left to die of."""

    def __init__(self, spark: SparkSession, topics: Topics, directory: Path, **options: str) -> None:
        self.spark, self.topics, self.checkpoint = spark, topics, str(directory / "checkpoint")
        self.deaths = Deaths(str(directory))
        self.topic = topics.make()
        self.options = topics.options(self.topic, **options) | {OPTION: str(directory)}
        self.got = Collected()
        self.rounds = 0

    def fill(self, rounds: int) -> None:
        self.topics.fill(self.topic, range(self.rounds, self.rounds + rounds))
        self.rounds += rounds

    def until_death(self, point: str, passes: int = 0) -> None:
        self.deaths.plan(point, passes)
        with pytest.raises(StreamingQueryException, match=f"planned death: {point}"):
            self.again_and_again()

    def again_and_again(self) -> None:
        """A run in Spark 4.1 may only repeat what the last one left undone."""
        while True:
            self.once()

    def gives(self, wanted: list[Record]) -> bool:
        """Whether that is what it gave in the end, without limits, in one more run, or two of Spark 4.1."""
        self.options.pop("maxOffsetsPerTrigger", None)
        for _ in range(1 if LIMITED_STEPS else 2):
            self.once()
        return self.got.records() == wanted

    def once(self) -> None:
        query = stream(self.spark, self.options, self.checkpoint, self.output, source="kraft-dying")
        query.awaitTermination()

    def output(self, rows: DataFrame, batch: int) -> None:
        self.deaths.at("before-output")
        self.got(rows, batch)
        self.deaths.at("after-output")


def die_everywhere(run: Run, seed: int) -> None:
    rng = random.Random(seed)
    die_at(run, [*FIRST_POINTS, *rng.sample(POINTS, len(POINTS))], rng)


def die_at(run: Run, points: Iterable[str], rng: random.Random) -> None:
    run.fill(2)
    for point in points:
        if "commit" in point and not LIMITED_STEPS:
            continue
        run.fill(3)
        run.until_death(point, passes=rng.randrange(2) if LIMITED_STEPS else 0)
    assert run.gives(expected(range(run.rounds))), run.got.batches


@pytest.mark.row("S3")
def test_a_query_that_dies(spark: SparkSession, topics: Topics, tmp_path: Path):
    """At every point it does in `make test-long`; the planner alone in tests/unit/spark/test_stream.py."""
    run = Run(spark, topics, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="5")
    die_at(run, ["after-output"], random.Random(1))


@pytest.mark.long
@pytest.mark.row("S3")
@pytest.mark.parametrize("seed", range(1, 12))
def test_a_query_that_dies_at_every_point_in_any_order(spark, topics, tmp_path, seed):
    die_everywhere(
        Run(spark, topics, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="5"), seed=seed
    )


@pytest.mark.long
@pytest.mark.row("S3")
def test_a_query_that_began_at_the_end_and_died_in_its_first_micro_batch(
    spark: SparkSession, topics: Topics, tmp_path: Path
):
    run = Run(spark, topics, tmp_path, startingOffsets="latest")
    run.fill(2)
    run.until_death("before-output")
    run.fill(3)
    run.until_death("before-output")
    assert run.gives(expected(range(2, 5))), run.got.batches


@pytest.mark.long  # the demo kills a driver, too
@pytest.mark.row("S3")
def test_the_driver_is_killed(spark: SparkSession, topics: Topics, tmp_path: Path):
    name, files, checkpoint = topics.make(), str(tmp_path / "files"), str(tmp_path / "checkpoint")
    options = topics.options(name, startingOffsets="earliest")
    steps = {**options, "maxOffsetsPerTrigger": "300"}
    topics.fill(name, range(1000))
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.endless_query", json.dumps(steps), checkpoint, files],
            stdout=output,
            stderr=output,
            start_new_session=True,  # with its JVM and its workers
        )
    try:
        wait_until(Path(files, "_spark_metadata", "1").exists, "two micro-batches")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    topics.fill(name, range(1000, 1100))
    for _ in range(1 if LIMITED_STEPS else 2):  # the first one in Spark 4.1 may only repeat what was cut off
        query = to_parquet(spark, options, checkpoint, files).trigger(availableNow=True).start()
        query.awaitTermination()
        assert query.recentProgress[0]["batchId"] >= 1  # it went on, and did not begin again
    assert records(spark.read.parquet(files).collect()) == expected(range(1100))


@pytest.mark.long
@pytest.mark.row("S5")
def test_a_leader_dies_and_the_topic_grows(spark: SparkSession, cluster: LocalCluster, checkpoint: str):
    topics = Topics(cluster.bootstrap)
    name = topics.make()
    got = Collected()
    options = topics.options(name, startingOffsets="earliest", maxOffsetsPerTrigger="200")
    query = stream(spark, options, checkpoint, got, processingTime="0 seconds")
    try:
        topics.fill(name, range(200))
        wait_until(got.records, "the first records")
        leader = topics.admin.list_topics(name).topics[name].partitions[0].leader
        cluster.kill(leader)
        topics.fill(name, range(200, 400))
        topics.grow(name, 4)
        topics.fill(name, range(400, 500), partitions=3)
        topics.fill(name, range(100), partitions=4)
        cluster.start_node(leader)
        topics.fill(name, range(500, 600))
        wait_until(lambda: len(got.records()) >= 2200, "every record")
    finally:
        query.stop()
    assert query.exception() is None
    places = [(partition, offset) for partition, offset, _ in got.records()]
    assert places == sorted((p, o) for p, length in enumerate((700, 700, 700, 100)) for o in range(length))
