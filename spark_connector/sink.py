"""The sink: rows, as Arrow hands them over, to librdkafka.

    write (worker, one task)  -> every row is produced and acknowledged, or the task fails
    commit, abort (driver)    -> nothing: what was acknowledged is in the topic, and stays

Columns: `value`, and where present `key`, `headers`, `topic`, `partition`; others are not written. The
producer is idempotent, so that its own retries double nothing. A task or micro-batch that Spark runs again
writes its rows again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from spark_connector.errors import SinkError
from spark_connector.librdkafka import Config, producer_config
from spark_connector.options import SinkOptions

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_TEXT_OR_BYTES: Final = ("string", "binary")
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}

POLL_EVERY_ROWS: Final = 10_000
FULL_QUEUE_WAIT_S: Final = 0.1
FLUSH_WAIT_S: Final = 1.0
PARTITION_UNSET: Final = -1
"""The partitioner decides."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    rows: int


class KraftWriter(DataSourceArrowWriter):
    """A batch query's sink."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._task = _task(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._task.run(iterator)


class KraftStreamWriter(DataSourceStreamArrowWriter):
    """A streaming query's sink. Neither `commit` nor `abort` does anything, so that either may be called at
    any time and again."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._task = _task(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._task.run(iterator)


def _task(options: SinkOptions, schema: StructType) -> WriteTask:
    """Everything that can be wrong without asking the cluster is told here, on the driver."""
    check_columns(schema, options.topic)
    return WriteTask(producer_config(options.client), options.topic)


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises `SinkError` where the rows cannot be written."""
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise SinkError("KAFKA_SINK_COLUMNS", "the required column 'value' is missing")
    if topic is None and "topic" not in types:
        raise SinkError(
            "KAFKA_SINK_COLUMNS", "the option 'topic' is required where there is no column 'topic'"
        )
    for name, allowed in _COLUMNS.items():
        if name in types and _plain(types[name]) not in allowed:
            raise SinkError(
                "KAFKA_SINK_COLUMNS",
                f"the column '{name}' is of type {types[name].simpleString()},"
                f" and must be {' or '.join(allowed)}",
            )


def _plain(kind: DataType) -> str:
    """The type's name without what does not matter here, such as collations."""
    match kind:
        case StringType():
            return "string"
        case BinaryType() | IntegerType():
            return kind.simpleString()
        case ArrayType(elementType=StructType(fields=fields)):
            inner = ",".join(f"{field.name}:{_plain(field.dataType)}" for field in fields)
            return f"array<struct<{inner}>>"
    return kind.simpleString()


# ---- in the worker ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What is sent to the workers."""

    config: Config
    topic: str | None

    def __repr__(self) -> str:
        return f"WriteTask(topic={self.topic!r})"  # the configuration has passwords

    def run(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """All rows acknowledged, or an exception. After one the producer is not used again: what it still
        holds must not go out behind the back of the task's next attempt."""
        producer = _producer(self.config)
        failures: list[str] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None and not failures:
                failures.append(f"{message.topic()}: {error.str()}")

        try:
            rows = 0
            for batch in batches:
                rows += _produce(producer, batch, self.topic, delivered, failures)
            while producer.flush(FLUSH_WAIT_S) and not failures:
                pass
            _check(failures)
        except BaseException:
            _discard(producer)
            raise
        return Written(rows)


def _produce(
    producer: Producer, batch: pa.RecordBatch, topic: str | None, delivered: Any, failures: list[str]
) -> int:
    """Hand a batch over to librdkafka, waiting where its queue is full."""
    columns = _Columns(batch, topic)
    for row, (to, key, value, headers, partition) in enumerate(columns):
        place = PARTITION_UNSET if partition is None else partition
        while True:
            try:
                producer.produce(to, value, key, place, on_delivery=delivered, headers=headers)
                break
            except BufferError:
                producer.poll(FULL_QUEUE_WAIT_S)
                _check(failures)
        if row % POLL_EVERY_ROWS == 0:
            producer.poll(0)
            _check(failures)
    return int(batch.num_rows)


class _Columns:
    """The rows of a batch as (topic, key, value, headers, partition)."""

    def __init__(self, batch: pa.RecordBatch, topic: str | None) -> None:
        self._batch = batch
        if topic is None and batch.column("topic").null_count:
            raise SinkError(
                "KAFKA_NULL_TOPIC_IN_DATA",
                "a row's topic is null; the option 'topic' sets one for all rows",
            )
        self._topics = [topic] * batch.num_rows if topic is not None else self._values("topic")

    def __iter__(self) -> Iterator[tuple[str, bytes | None, bytes | None, Any, int | None]]:
        return zip(
            self._topics,
            self._bytes("key"),
            self._bytes("value"),
            map(_headers, self._values("headers")),
            self._values("partition"),
            strict=True,
        )

    def _values(self, name: str) -> list[Any]:
        if name not in self._batch.schema.names:
            return [None] * self._batch.num_rows
        values: list[Any] = self._batch.column(name).to_pylist()
        return values

    def _bytes(self, name: str) -> list[bytes | None]:
        if name not in self._batch.schema.names:
            return [None] * self._batch.num_rows
        values: list[bytes | None] = self._batch.column(name).cast(pa.binary()).to_pylist()
        return values


def _headers(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    return [(header["key"], header["value"]) for header in headers] if headers else None


def _check(failures: list[str]) -> None:
    if failures:
        raise SinkError("KAFKA_WRITE_FAILED", failures[0])


# ---- producers, kept between the tasks of a worker -------------------------------------------------------

_producers: dict[tuple[int, frozenset[tuple[str, Any]]], Producer] = {}
"""By process id too: a worker is forked, and threads do not live on in a fork."""


def _producer(config: Config) -> Producer:
    from confluent_kafka import KafkaException, Producer

    key = (os.getpid(), frozenset(config.items()))
    if key not in _producers:
        try:
            _producers[key] = Producer({**config, "delivery.report.only.error": True})
        except KafkaException as error:
            raise SinkError("KAFKA_CLIENT_CONFIG", error.args[0].str()) from None
    return _producers[key]


def _discard(producer: Producer) -> None:
    producer.purge()
    for key in [key for key, kept in _producers.items() if kept is producer]:
        del _producers[key]
