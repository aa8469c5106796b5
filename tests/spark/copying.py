"""A transactional query from one topic into another that is killed, taken up again, and compared."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from spark_connector.connections import cluster_client
from spark_connector.coordinators import open_transactions
from spark_connector.options import sink_options
from tests.spark.copying_query import copy
from tests.spark.dying import OPTION, Deaths
from tests.spark.micro_batches import committed
from tests.spark.topics import LIMITED_STEPS, Topics


class Copying:
    """One query, from a topic of three partitions into one of two."""

    def __init__(self, topics: Topics, directory: Path) -> None:
        self.topics = topics
        self.source, self.sink = topics.make(3), topics.make(2)
        self.options = topics.options(self.source, startingOffsets="earliest")
        self.into_sink = {**topics.options(), "topic": self.sink, "transactional": "true"}
        self.into = {**self.into_sink, OPTION: str(directory)}
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

    def open(self, query: str) -> set[str]:
        names = open_transactions(cluster_client(sink_options(self.into_sink).client), "kraft-spark-")
        return {name for name in names if query in name}

    def check_nothing_is_open(self) -> None:
        """The driver lives, so nobody who reads committed records has to wait."""
        committed(self.topics, self.sink, 2)

    def check(self) -> None:
        expected = sorted(b"%d/%d" % (p, each) for p in range(3) for each in range(self.rounds))
        assert committed(self.topics, self.sink, 2) == expected
