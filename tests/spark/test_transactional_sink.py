"""The sink with transactions: who reads committed records sees every row once, whatever died."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from kraft.local_cluster import LocalCluster
from spark_connector.connections import close_clusters
from spark_connector.errors import SinkError
from spark_connector.options import sink_options
from spark_connector.transactions import TransactionalTask, abort_all, commit_all, transactional_task
from tests.rdkafka import consumer
from tests.spark.copying_query import copy
from tests.spark.dying import DRIVER, OPTION, QUERY, SINK_POINTS, WORKER, Deaths
from tests.spark.topics import LIMITED_STEPS, Topics, read

COMMITTED = {"kafka.isolation.level": "read_committed"}


def committed(topics: Topics, topic: str, partitions: int) -> list[bytes]:
    """What librdkafka reads up to the last stable offset. Nothing may be open."""
    values: list[bytes] = []
    with consumer(topics.bootstrap, isolation_level="read_committed", enable_partition_eof=True) as reader:
        places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        for place in places:
            end = reader.get_watermark_offsets(place)[1]
            reader.assign([place])
            while not (message := reader.poll(10)) or not message.error():
                assert message is not None, "no end of the partition"
                values.append(message.value())
            stable = reader.position([place])[0].offset
            assert stable == end or end == 0, f"{place} is stable up to {stable} of {end}"
    return sorted(values)


# ---- tasks, without Spark ---------------------------------------------------------------------------------


@pytest.fixture
def task(topics: Topics) -> Iterator[TransactionalTask]:
    """Of a query of its own, into a topic of its own."""
    name = topics.make(2)
    yield transactional_task(sink_options({**topics.options(), "topic": name, "transactional": "true"}), name)
    close_clusters()


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": [value]}) for value in values])


def seen(topics: Topics, task: TransactionalTask) -> list[bytes]:
    assert task.topic is not None
    return committed(topics, task.topic, 2)


@pytest.mark.row("S3")
def test_a_task_that_is_repeated(topics: Topics, task: TransactionalTask):
    """As another attempt, as a micro-batch that runs again, as a zombie of one long ago."""
    count, lost = task.write(rows("a", "b"), "0", 7)
    assert count == 2
    _, opened = task.write(rows("a", "b"), "0", 7)
    assert lost is not None
    assert opened is not None
    with pytest.raises(SinkError, match=r"KAFKA_TRANSACTION_LOST.*(EPOCH|FENCED)"):
        commit_all(task.client, [lost])
    commit_all(task.client, [opened])
    commit_all(task.client, [opened])  # the driver may say it again
    abort_all(task.client, [opened])  # and this undoes nothing
    for micro_batch in (7, 3):
        assert task.write(rows("a", "b"), "0", micro_batch) == (2, None)
    assert seen(topics, task) == [b"a", b"b"]
    with pytest.raises(SinkError, match="KAFKA_TRANSACTION_OTHER_ROWS"):
        task.write(rows("a", "b", "c"), "0", 7)
    _, next_one = task.write(rows("d"), "0", 8)
    assert next_one is not None
    commit_all(task.client, [next_one])
    assert seen(topics, task) == [b"a", b"b", b"d"]


@pytest.mark.row("S3")
def test_what_is_aborted_is_not_there(topics: Topics, task: TransactionalTask):
    _, aborted = task.write(rows("x"), "1", 0)
    assert aborted is not None
    abort_all(task.client, [aborted])
    assert task.write(rows(), "2", 0) == (0, None)
    _, opened = task.write(rows("y"), "1", 0)
    assert opened is not None
    commit_all(task.client, [opened])
    assert seen(topics, task) == [b"y"]


def test_a_row_that_cannot_be_written_aborts_the_rest(topics: Topics, task: TransactionalTask):
    with pytest.raises(SinkError, match="Message size too large"):
        task.write(rows("fine", "v" * 3_000_000), "0", 0)
    assert seen(topics, task) == []


# ---- queries ----------------------------------------------------------------------------------------------


class Copying:
    """One query, from a topic of three partitions into one of two."""

    def __init__(self, topics: Topics, directory: Path) -> None:
        self.topics = topics
        self.source, self.sink = topics.make(3), topics.make(2)
        self.options = topics.options(self.source, startingOffsets="earliest")
        self.into = {**topics.options(), "topic": self.sink, "transactional": "true", OPTION: str(directory)}
        self.checkpoint = str(directory / "checkpoint")
        self.deaths = Deaths(str(directory))
        self.rounds = 0

    def fill(self, rounds: int) -> None:
        self.topics.fill(self.source, range(self.rounds, self.rounds + rounds))
        self.rounds += rounds

    def run(self, spark: SparkSession) -> None:
        """To the end; a run in Spark 4.1 may only repeat what the last one left undone."""
        for _ in range(1 if LIMITED_STEPS else 2):
            copy(spark, self.options, self.into, self.checkpoint).awaitTermination()

    def check(self) -> None:
        expected = sorted(b"%d/%d" % (p, each) for p in range(3) for each in range(self.rounds))
        assert committed(self.topics, self.sink, 2) == expected


def die_at(points: Iterable[str], spark: SparkSession, copying: Copying) -> None:
    for point in points:
        copying.fill(4)
        who = WORKER if point == "worker-killed" else QUERY
        copying.deaths.plan(point, who=who)
        with pytest.raises(
            StreamingQueryException, match=None if who == WORKER else f"planned death: {point}"
        ):
            copying.run(spark)
    copying.fill(2)
    copying.run(spark)
    copying.check()


@pytest.mark.timeout(400)  # many starts of queries on a machine that may be busy
@pytest.mark.row("S3")
def test_a_query_that_dies_while_it_writes(spark: SparkSession, topics: Topics, tmp_path: Path):
    die_at(("worker-killed", "amid-sink-commit"), spark, Copying(topics, tmp_path))


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.row("S3")
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_query_that_dies_wherever_it_writes(spark, topics: Topics, tmp_path: Path, seed: int):
    points = [*SINK_POINTS, "amid-sink-commit"]
    die_at(random.Random(seed).sample(points, len(points)), spark, Copying(topics, tmp_path))


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.row("S3")
@pytest.mark.parametrize(
    "point", ["after-write", "before-sink-commit", "amid-sink-commit", "after-sink-commit"]
)
def test_the_driver_is_killed_while_it_commits(spark, topics: Topics, tmp_path: Path, point: str):
    copying = Copying(topics, tmp_path)
    copying.fill(20)
    copying.deaths.plan(point, who=DRIVER)
    given = [json.dumps(copying.options), json.dumps(copying.into), copying.checkpoint]
    with (tmp_path / "output").open("wb") as output:
        killed = subprocess.run(
            [sys.executable, "-m", "tests.spark.copying_query", *given],
            stdout=output, stderr=output, start_new_session=True, timeout=300, check=False,
        )  # fmt: skip
    assert killed.returncode == -9, (tmp_path / "output").read_text()[-3000:]
    copying.fill(5)
    copying.run(spark)
    copying.check()


@pytest.mark.row("S3")
def test_a_batch_query(spark: SparkSession, topics: Topics):
    """All rows, or none: the second one ends in its last row."""
    name = topics.make(2)
    options = {**topics.options(), "topic": name, "transactional": "true"}

    def save(query: str) -> None:
        spark.sql(query).write.format("kraft").options(**options).mode("append").save()

    save("select string(id) as value from range(0, 40, 1, 3)")
    with pytest.raises(PySparkException, match="Message size too large"):
        save("select if(id = 79, repeat('v', 3000000), string(id)) as value from range(40, 80, 1, 3)")
    assert committed(topics, name, 2) == sorted(b"%d" % each for each in range(40))
    assert read(spark, {**topics.options(name), **COMMITTED}).count() == 40


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.row("S3", "S5")
def test_leaders_and_coordinators_die(spark: SparkSession, cluster: LocalCluster, tmp_path: Path):
    """Whatever the busiest node was, somebody else is by the next micro-batch."""
    copying = Copying(Topics(cluster.bootstrap), tmp_path)
    for node in (1, 2):
        copying.fill(10)
        copying.run(spark)
        cluster.kill(node)
        copying.fill(10)
        copying.run(spark)
        cluster.start_node(node)
    copying.check()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"transactional": "yes"}, "'transactional': is 'true' or 'false'"),
        ({"transactional": "true", "kafka.acks": "1"}, "KAFKA_CLIENT_CONFIG.*idempotence"),
        ({"transactional": "true", "kafka.transaction.timeout.ms": "9999999"}, "(?i)transaction.?timeout"),
        ({"kafka.transactional.id": "mine"}, "'kafka.transactional.id': is not supported.*'transactional'"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together(spark: SparkSession, topics: Topics, options, says):
    given = {**topics.options(), "topic": topics.make(1), **options}
    with pytest.raises(PySparkException, match=says):
        spark.sql("select 'v' as value").write.format("kraft").options(**given).mode("append").save()
