"""In the worker: rows, as Arrow hands them over, to librdkafka.

    WriteTask.run(record batches)  -> every row is produced and acknowledged, or an exception

Columns: `value`, and where present `key`, `headers`, `topic`, `partition`; others are not written. The
producer is idempotent, so that its own retries double nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from metadata_quorum.foundation.crc32c import crc32c
from spark_connector.errors import SinkError
from spark_connector.librdkafka import Config, producer_config
from spark_connector.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import KafkaError, Message, Producer

POLL_EVERY_ROWS: Final = 10_000
FULL_QUEUE_WAIT_S: Final = 0.02
"""Short, because librdkafka does not notify us of room: only failures are reported."""
FLUSH_WAIT_S: Final = 1.0
METADATA_WAIT_S: Final = 10.0
"""For a topic's partitions, where a row names one that is not known yet."""
PARTITION_UNSET: Final = -1
"""The partitioner decides."""
_END_IN_C: Final = "\0"
_NULL: Final = b"\x00null\xff"
"""In a digest; bytes that a key or a value hardly ever is."""
_SPREAD: Final = 2_654_435_761
_MAX_CRC: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Rows into a topic, without a transaction. This is sent to the workers."""

    config: Config
    topic: str | None

    def __repr__(self) -> str:
        return f"WriteTask(topic={self.topic!r})"  # the configuration has passwords

    def run(self, batches: Iterator[pa.RecordBatch]) -> int:
        """All rows acknowledged, or an exception. After one the producer is not used again: what it still
        holds must not go out behind the back of the task's next attempt."""
        producer = _kept_producer(self.config)
        try:
            return write_rows(producer, batches, self.topic)
        except BaseException:
            _discard(producer)
            raise


def write_task(options: SinkOptions) -> WriteTask:
    """Raises `OptionError`."""
    return WriteTask(producer_config(options.client), options.topic)


def write_rows(
    producer: Producer,
    batches: Iterable[pa.RecordBatch],
    topic: str | None,
    digest: Digest | None = None,
) -> int:
    """Returns how many rows there were, once all are acknowledged. Raises `SinkError`."""
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None and not failures:
            failures.append(f"{message.topic()}: {error.str()}")

    rows = 0
    with _fatal_errors():
        for batch in batches:
            columns = Columns(batch, topic)
            if digest is not None:
                digest.add(columns)
            rows += _produce(producer, columns, delivered, failures)
        while producer.flush(FLUSH_WAIT_S) and not failures:
            pass
    _check(failures)
    return rows


def _produce(producer: Producer, columns: Columns, delivered: Any, failures: list[str]) -> int:
    """Hand a batch over to librdkafka, waiting where its queue is full. Raises `SinkError` for a row that it
    does not take."""
    from confluent_kafka import KafkaError, KafkaException

    for row, (topic, key, value, headers, given) in enumerate(columns):
        partition = PARTITION_UNSET if given is None else given
        may_be_new = True
        while True:
            try:
                producer.produce(topic, value, key, partition, on_delivery=delivered, headers=headers)
                break
            except ValueError as error:  # a topic with a NUL
                raise SinkError("KAFKA_WRITE_FAILED", f"{topic!r}: {error}") from None
            except BufferError:
                producer.poll(FULL_QUEUE_WAIT_S)
                _check(failures)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION or not may_be_new:
                    producer.poll(0)  # raises a fatal error with its reason
                    raise SinkError("KAFKA_WRITE_FAILED", f"{topic}: {error.args[0].str()}") from None
                may_be_new = False  # a producer is kept, and so is what it knows: the topic may have grown
                with suppress(KafkaException):
                    producer.list_topics(topic, METADATA_WAIT_S)
        if row % POLL_EVERY_ROWS == 0:
            producer.poll(0)
            _check(failures)
    return columns.count


class Columns:
    """The rows of a batch."""

    def __init__(self, batch: pa.RecordBatch, topic: str | None) -> None:
        self._batch = batch
        self.count = int(batch.num_rows)
        if topic is None and batch.column("topic").null_count:
            raise SinkError(
                "KAFKA_NULL_TOPIC_IN_DATA",
                "a row's topic is null; the option 'topic' sets one for all rows",
            )
        self.topics: list[str] = [topic] * self.count if topic is not None else self._values("topic")
        self.keys = self._bytes("key")
        self.values = self._bytes("value")
        self.headers = self._values("headers")
        self.partitions = self._values("partition")
        if any(each < 0 for each in self.partitions if each is not None):
            raise SinkError(
                "KAFKA_INVALID_PARTITION_IN_DATA",
                "a row's partition is below 0; where it is null, the partitioner decides",
            )
        self.has_metadata = any(name in batch.schema.names for name in ("topic", "partition", "headers"))
        """Rows may differ in topic, partition or headers, too."""

    def __iter__(self) -> Iterator[tuple[str, bytes | None, bytes | None, Any, int | None]]:
        """As (topic, key, value, headers, partition)."""
        headers = map(_headers, self.headers)
        return zip(self.topics, self.keys, self.values, headers, self.partitions, strict=True)

    def _values(self, name: str) -> list[Any]:
        if name not in self._batch.schema.names:
            return [None] * self.count
        values: list[Any] = self._batch.column(name).to_pylist()
        return values

    def _bytes(self, name: str) -> list[bytes | None]:
        if name not in self._batch.schema.names:
            return [None] * self.count
        values: list[bytes | None] = self._batch.column(name).cast("binary").to_pylist()
        return values


class Digest:
    """A digest of rows in any order: after a shuffle they come in a different one each time."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, columns: Columns) -> None:
        """The sum of all rows' checksums. A null is not the same as an empty value, nor is where the key ends
        of no matter: two checksums in a row are that of both together."""
        metadata = zip(columns.topics, columns.partitions, columns.headers, strict=True)
        seeds = map(_checksum_of_metadata, metadata) if columns.has_metadata else repeat(0)
        keys = map(crc32c, [_NULL if key is None else key for key in columns.keys], seeds)
        ended = [key * _SPREAD & _MAX_CRC for key in keys]
        values = [_NULL if value is None else value for value in columns.values]
        self.value += sum(map(crc32c, values, ended))


def _checksum_of_metadata(metadata: tuple[str, int | None, Any]) -> int:
    return int(crc32c(repr(metadata).encode()))


def _headers(headers: list[dict[str, Any] | None] | None) -> list[tuple[str, bytes | None]] | None:
    if not headers:
        return None
    pairs: list[tuple[str, bytes | None]] = []
    for header in headers:
        if header is None or header["key"] is None:
            raise SinkError("KAFKA_NULL_HEADER_KEY_IN_DATA", "a row has a header without a key")
        if _END_IN_C in header["key"]:
            raise SinkError(
                "KAFKA_INVALID_HEADER_KEY_IN_DATA",
                f"the key of a header is {header['key']!r}: librdkafka would write what comes before the NUL",
            )
        pairs.append((header["key"], header["value"]))
    return pairs


def _check(failures: list[str]) -> None:
    if failures:
        raise SinkError("KAFKA_WRITE_FAILED", failures[0])


# ---- producers, kept between the tasks of a worker -------------------------------------------------------

_producers: dict[tuple[int, frozenset[tuple[str, Any]]], Producer] = {}
"""By process id too: a worker is forked, and threads do not live on in a fork."""


def _kept_producer(config: Config) -> Producer:
    key = (os.getpid(), frozenset(config.items()))
    if key not in _producers:
        _producers[key] = new_producer(config)
    return _producers[key]


def new_producer(config: Mapping[str, Any]) -> Producer:
    """Raises `SinkError`."""
    from confluent_kafka import KafkaException, Producer

    try:
        return Producer({**config, "delivery.report.only.error": True})
    except KafkaException as error:
        raise SinkError("KAFKA_CLIENT_CONFIG", error.args[0].str()) from None


@contextmanager
def _fatal_errors() -> Iterator[None]:
    """A fatal error of a producer, raised by the call that serves its callbacks, as `SinkError`. Where
    callbacks follow, the first of them fails because something has been raised already, and says only so."""
    from confluent_kafka import KafkaException

    try:
        yield
    except (KafkaException, SystemError) as error:
        cause = error if isinstance(error, KafkaException) else error.__cause__
        if not isinstance(cause, KafkaException):
            raise
        raise SinkError("KAFKA_WRITE_FAILED", cause.args[0].str()) from None


def _discard(producer: Producer) -> None:
    producer.purge()
    for key in [key for key, kept in _producers.items() if kept is producer]:
        del _producers[key]
