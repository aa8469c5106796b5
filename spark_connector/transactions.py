"""Rows in a transaction, in a worker: each task leaves its own open, for the driver to end it.

    TransactionalTask.write(rows, transactional_id) -> Rows: their number and digest, and the open transaction

Each attempt of a task has a transactional id of its own, PREFIX-...-TASK-ATTEMPT, so that a second one (a
retry, a speculative copy) does not abort what the first has finished: Spark decides which of the two counts.
There are `IDS_PER_TASK` ids for a task, the same in every run of the query. Starting a transaction fences the
former producer of that id, and aborts what it left open; so does the end of a task that fails. The driver's
part is in micro_batches.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from spark_connector.connections import cluster_client
from spark_connector.coordinators import OpenTransaction, fence
from spark_connector.errors import ConnectorError, SinkError
from spark_connector.librdkafka import Config, producer_config
from spark_connector.options import SinkOptions
from spark_connector.producing import Digest, new_producer, write_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Producer

IDS_PER_TASK: Final = 4
"""As many as Spark tries a task (`spark.task.maxFailures`)."""
STREAM_TIMEOUT_MS: Final = 300_000
"""A micro-batch's first task waits for its last one; so do consumers of committed records, where a query is
stopped meanwhile."""
BATCH_TIMEOUT_MS: Final = 900_000
"""The longest that brokers allow by default."""
DEFAULT_PATIENCE_MS: Final = 120_000
ABORT_PATIENCE_S: Final = 5.0
IDENTITY_INTERVAL_MS: Final = 25
"""How often librdkafka reports its producer id, among its statistics; there is no other call for it."""
IDENTITY_POLL_S: Final = 0.1


class Rows(NamedTuple):
    """What a task has written, every row of it acknowledged."""

    number: int = 0
    digest: int = 0
    """A digest of the rows that does not depend on their order."""
    topic: str | None = None
    """The topic of the first row."""
    transaction: OpenTransaction | None = None
    """The transaction in which the rows wait; None if there are none."""


@dataclass(frozen=True, slots=True)
class TransactionalTask:
    """This is sent to the workers."""

    config: Config
    client: Mapping[str, str]
    """The same connection for requests of our own."""
    topic: str | None

    def __repr__(self) -> str:
        return f"TransactionalTask(topic={self.topic!r})"  # the configuration has passwords

    def write(self, batches: Iterator[pa.RecordBatch], transactional_id: str) -> Rows:
        """Raises `SinkError`."""
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return Rows()
        identity = _Identity()
        producer = new_producer(
            {
                **self.config,
                "transactional.id": transactional_id,
                "statistics.interval.ms": IDENTITY_INTERVAL_MS,
                "stats_cb": identity,
            }
        )
        digest = Digest()
        with self._transactional(producer, transactional_id):
            producer.init_transactions(self.patience_s)
            producer.begin_transaction()
            number = write_rows(producer, chain([first], batches), self.topic, digest)
            topic = self.topic if self.topic is not None else first.column("topic")[0].as_py()
            return Rows(number, digest.value, topic, identity.of(producer, transactional_id))

    @contextmanager
    def _transactional(self, producer: Producer, transactional_id: str) -> Iterator[None]:
        """An error ends the transaction, and is raised as `SinkError`."""
        from confluent_kafka import KafkaException

        try:
            yield
        except BaseException as problem:
            with suppress(KafkaException, ConnectorError):
                producer.abort_transaction(ABORT_PATIENCE_S)
                # librdkafka forgets a partition whose addition to the transaction is not answered yet, and
                # where there is no other it ends nothing. The coordinator knows, and refuses what comes yet.
                fence(cluster_client(self.client), [transactional_id])
            if isinstance(problem, KafkaException):
                raise SinkError("KAFKA_TRANSACTION_FAILED", problem.args[0].str()) from None
            raise

    @property
    def patience_s(self) -> float:
        """To librdkafka 0 is no limit for a delivery; for a call it would be no time at all."""
        given = self.config.get("delivery.timeout.ms", self.config.get("message.timeout.ms", 0))
        return (float(given) or DEFAULT_PATIENCE_MS) / 1000


def transactional_task(options: SinkOptions, timeout_ms: int) -> TransactionalTask:
    """Raises `OptionError`."""
    config: Config = {"transaction.timeout.ms": timeout_ms, **producer_config(options.client)}
    return TransactionalTask(config, options.client, options.topic)


def transactional_id_of(prefix: str, task: int, attempt: int) -> str:
    """The transactional id of an attempt; later attempts use the ids of the first ones again."""
    return f"{prefix}-{task}-{attempt % IDS_PER_TASK}"


class _Identity:
    """Gets the producer id from librdkafka's statistics: the request that ends the transaction needs it."""

    def __init__(self) -> None:
        self._on_log = ""

    def __call__(self, statistics: str) -> None:
        self._on_log = statistics

    def of(self, producer: Producer, transactional_id: str) -> OpenTransaction:
        """The id in the next statistics."""
        self._on_log = ""
        while not self._on_log:
            producer.poll(IDENTITY_POLL_S)
        statistics = json.loads(self._on_log)["eos"]
        return OpenTransaction(transactional_id, statistics["producer_id"], statistics["producer_epoch"])
