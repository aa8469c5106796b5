"""A streaming query's transactional sink without Spark: its tasks and its driver, moved by a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from confluent_kafka import TopicPartition

from spark_connector.connections import cluster_client
from spark_connector.coordinators import open_transactions
from spark_connector.options import sink_options
from spark_connector.transactional_sink import Prepared, TransactionalStreamWriter
from spark_connector.transactions import transactional_id_of
from tests.spark.topics import Topics
from tests.support.clients.rdkafka import consumer
from tests.support.waiting import PATIENCE_S, wait_until

MARKERS_S: Final = 30.0
"""Until they are written, on a machine that stands still; what is left open is so for longer."""


class Sink:
    """What Spark does with a streaming query's sink, by hand: tasks, then the driver."""

    def __init__(self, topics: Topics, topic: str, partitions: int = 2, **options: str) -> None:
        self.topics, self.topic, self.partitions = topics, topic, partitions
        given = {**topics.options(), "topic": topic, "transactional": "true", **options}
        self.options = sink_options({**given, "checkpointLocation": f"/checkpoint/of/{self.topic}"})
        self.client = self.options.client
        self.query = f"query-{self.topic}"
        self.writer = TransactionalStreamWriter(self.options)

    def task(self, number: int, *values: str, attempt: int = 0) -> Prepared:
        batches = iter([pa.record_batch({"value": [value]}) for value in values])
        name = transactional_id_of(self.writer.query_prefix(self.query), number, attempt)
        return Prepared(self.query, number, self.writer.task.write(batches, name))

    def tasks(self, *rows: Sequence[str]) -> list[Prepared | None]:
        return [self.task(number, *values) for number, values in enumerate(rows)]

    def seen(self) -> list[bytes]:
        return committed(self.topics, self.topic, self.partitions)

    def open(self) -> set[str]:
        return open_transactions(cluster_client(self.client), f"{self.writer.checkpoint_prefix}-")


def committed(topics: Topics, topic: str, partitions: int) -> list[bytes]:
    """What librdkafka reads up to the last stable offset. Nothing may be open: who has ended a transaction
    was answered a moment before its markers were everywhere."""
    values: list[bytes] = []
    with (
        consumer(topics.bootstrap, isolation_level="read_uncommitted") as of_all,
        consumer(topics.bootstrap, isolation_level="read_committed", enable_partition_eof=True) as reader,
    ):
        places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        for place in places:
            wait_until(
                lambda at=place: reader.get_watermark_offsets(at) == of_all.get_watermark_offsets(at),  # type: ignore[misc]
                f"nothing is open in {place}",
                MARKERS_S,
            )
            end = reader.get_watermark_offsets(place)[1]
            reader.assign([place])
            while not (message := reader.poll(PATIENCE_S)) or not message.error():
                assert message is not None, "no end of the partition"
                values.append(message.value())
            stable = reader.position([place])[0].offset
            assert stable == end or end == 0, f"{place} is stable up to {stable} of {end}"
    return sorted(values)
