"""Topics for Spark to read and write, and what a query is given and gives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import pyspark
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.support.clients.rdkafka import QUIET, send
from tests.support.waiting import PATIENCE_S

Record = tuple[int, int, bytes]
"""Partition, offset, value."""

LIMITED_STEPS = not pyspark.__version__.startswith("4.1.")
"""Whether `Trigger.AvailableNow` keeps to a source's limits; Spark 4.1 makes one micro-batch and ends."""

BOOTSTRAP = os.environ.get("KRAFT_SPARK_TESTS_BOOTSTRAP", "")
"""Of a cluster that is there already."""
REPLICAS = 3

_numbers = count(1000 * os.getpid())
"""Several processes make topics in one cluster (test_apache_kafka)."""


class Topics:
    """Of one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        self._replicas = min(REPLICAS, len(self.admin.list_topics(timeout=PATIENCE_S).brokers))

    def make(self, partitions: int = 3, name: str = "topic", **config: str) -> str:
        topic = f"{name}-{next(_numbers)}"
        self._create(topic, partitions, config)
        return topic

    def make_anew(self, topic: str, partitions: int) -> None:
        """Another one of that name."""
        self.delete(topic)
        self._create(topic, partitions, {})

    def _create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        self.admin.create_topics([NewTopic(topic, partitions, self._replicas, config=config)])[topic].result()

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result()

    def forget(self, topic: str, partition: int, before: int) -> None:
        """What retention does: records before that offset are gone."""
        for done in self.admin.delete_records([TopicPartition(topic, partition, before)]).values():
            done.result()

    def fill(self, topic: str, rounds: range, partitions: int = 3, **more: Any) -> None:
        """A record for each partition and round, in that order, `value` telling both."""
        send(
            self.bootstrap,
            topic,
            (
                {"value": b"%d/%d" % (partition, each), "partition": partition, **more}
                for each in rounds
                for partition in range(partitions)
            ),
        )

    def options(self, topic: str | None = None, **options: str) -> dict[str, str]:
        """Of a source; `kafka_` stands for `kafka.`."""
        given = {"kafka.bootstrap.servers": self.bootstrap}
        if topic is not None:
            given["subscribe"] = topic
        for key, value in options.items():
            name = key.replace("__", ".") if key.startswith(("kafka", "fetchOffset")) else key
            given[name] = value
        return given


def expected(rounds: range, partitions: int = 3) -> list[Record]:
    """What `Topics.fill` wrote, as records."""
    return sorted((p, each, b"%d/%d" % (p, each)) for each in rounds for p in range(partitions))


def records(rows: Iterable[Row]) -> list[Record]:
    return sorted((row["partition"], row["offset"], bytes(row["value"])) for row in rows)


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("kraft").options(**options).load()


class Collected:
    """What a query gave, by micro-batch. A micro-batch that runs again must give the same again."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Record]] = {}

    def __call__(self, rows: DataFrame, batch: int) -> None:
        got = records(rows.select("partition", "offset", "value").collect())
        assert self.batches.setdefault(batch, got) == got, f"micro-batch {batch} differs from its first run"

    def records(self) -> list[Record]:
        return sorted(record for batch in self.batches.values() for record in batch)


def stream(
    spark: SparkSession,
    options: dict[str, str],
    checkpoint: str,
    into: Callable[[DataFrame, int], None],
    *,
    source: str = "kraft",
    **trigger: Any,
) -> StreamingQuery:
    """Start a query; by default it takes what is there and ends."""
    loaded = spark.readStream.format(source).options(**options).load()
    writer = loaded.writeStream.foreachBatch(into).option("checkpointLocation", checkpoint)
    return writer.trigger(**(trigger or {"availableNow": True})).start()
