"""Rows in transactions: a task leaves its own open, the driver commits them when all tasks are done.

    worker   init (ends what came before) -> committed before? -> begin, rows, mark -> Transaction, left open
    driver   commit: each in the order of tasks          abort: those that are open

A streaming task's transaction has the same name in every run of the query: PREFIX-QUERY-TASK, by the query's
id in its checkpoint. Starting it fences whoever had the name before and aborts what that left open. In the
transaction goes a mark: the number of the next micro-batch, as the offset that a consumer group of the same
name commits, with the number of rows beside it. A task that finds its micro-batch marked writes nothing. So
whatever dies, a micro-batch's rows are committed once for each of its tasks. A batch query's tasks are named
by a job that is never repeated, and need no mark.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from metadata_quorum.errors import ErrorCode
from spark_connector.connections import cluster
from spark_connector.coordinators import Transaction, committed_offsets, end_transaction
from spark_connector.errors import ConnectorError, SinkError
from spark_connector.librdkafka import Config, producer_config
from spark_connector.options import ClientProperties, SinkOptions
from spark_connector.producing import new_producer, write_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Producer

DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The longest that brokers allow by default: a micro-batch's first task waits for its last one."""
DEFAULT_PATIENCE_MS: Final = 120_000
ABORT_PATIENCE_S: Final = 5.0
IDENTITY_INTERVAL_MS: Final = 25
"""How often librdkafka tells who it is, among its statistics; it has no other way to."""
IDENTITY_POLL_S: Final = 0.1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionalTask:
    """This is sent to the workers."""

    client: ClientProperties
    config: Config
    topic: str | None
    prefix: str
    """Names begin so."""

    def __repr__(self) -> str:
        return f"TransactionalTask(topic={self.topic!r})"  # the configuration has passwords

    def write(
        self, batches: Iterator[pa.RecordBatch], task: str, micro_batch: int | None = None
    ) -> tuple[int, Transaction | None]:
        """How many rows, all of them acknowledged, and the transaction that they wait in; none where there is
        nothing to commit any more. Raises `ConnectorError`."""
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return 0, None
        rows = chain([first], batches)
        identity = _Identity()
        name = f"{self.prefix}-{task}"
        producer = new_producer(
            {
                "transaction.timeout.ms": DEFAULT_TRANSACTION_TIMEOUT_MS,
                **self.config,
                "transactional.id": name,
                "statistics.interval.ms": IDENTITY_INTERVAL_MS,
                "stats_cb": identity,
            }
        )
        with _transactional(producer):
            producer.init_transactions(self._patience_s)
            if micro_batch is not None and (before := self._rows_committed(name, micro_batch)) is not None:
                return _the_same(rows, before, name, micro_batch), None
            producer.begin_transaction()
            count = write_rows(producer, rows, self.topic)
            if micro_batch is not None:
                topic = self.topic if self.topic is not None else first.column("topic")[0].as_py()
                _mark(producer, name, topic, micro_batch, count, self._patience_s)
            return count, identity.of(producer, name)

    @property
    def _patience_s(self) -> float:
        given = self.config.get("delivery.timeout.ms", self.config.get("message.timeout.ms"))
        return float(given or DEFAULT_PATIENCE_MS) / 1000

    def _rows_committed(self, name: str, micro_batch: int) -> int | None:
        """How many rows of the micro-batch this task has committed before; None where that never happened."""
        marks = committed_offsets(cluster(self.client), name).values()
        return next((int(mark.metadata) for mark in marks if mark.offset > micro_batch), None)


def transactional_task(options: SinkOptions, *names: str) -> TransactionalTask:
    """`names`: what goes before the task's own. Raises `OptionError`."""
    prefix = "-".join((options.transactional_id_prefix, *names))
    return TransactionalTask(options.client, producer_config(options.client), options.topic, prefix)


@contextmanager
def _transactional(producer: Producer) -> Iterator[None]:
    """What goes wrong ends the transaction, and is told in our words."""
    from confluent_kafka import KafkaException

    try:
        yield
    except BaseException as problem:
        with suppress(KafkaException):
            producer.abort_transaction(ABORT_PATIENCE_S)
        if isinstance(problem, KafkaException):
            raise SinkError("KAFKA_TRANSACTION_FAILED", problem.args[0].str()) from None
        raise


def _the_same(batches: Iterable[pa.RecordBatch], before: int, name: str, micro_batch: int) -> int:
    """How many rows a task has that is not written, for it has been. All are taken: Spark expects that."""
    rows = sum(int(batch.num_rows) for batch in batches)
    if rows != before:
        raise SinkError(
            "KAFKA_TRANSACTION_OTHER_ROWS",
            f"micro-batch {micro_batch} was committed in part, with {before} rows in '{name}', which has"
            f" {rows} now: its rows, or their tasks, depend on more than its offsets. With"
            " 'transactional' set to 'false' it can be written, and some rows will be there twice",
        )
    return rows


def _mark(producer: Producer, name: str, topic: str, micro_batch: int, rows: int, patience_s: float) -> None:
    """Partition 0 is there in every topic; brokers ask for no more."""
    from confluent_kafka import Consumer, TopicPartition

    nobody = Consumer({"bootstrap.servers": "", "group.id": name, "log_level": 0})
    group = nobody.consumer_group_metadata()
    nobody.close()
    mark = TopicPartition(topic, 0, micro_batch + 1, metadata=str(rows))
    producer.send_offsets_to_transaction([mark], group, patience_s)


class _Identity:
    """Hears from librdkafka which producer it is: whoever ends the transaction has to say so."""

    def __init__(self) -> None:
        self._told = ""

    def __call__(self, statistics: str) -> None:
        self._told = statistics

    def of(self, producer: Producer, name: str) -> Transaction:
        """As it is told from now on."""
        self._told = ""
        while not self._told:
            producer.poll(IDENTITY_POLL_S)
        told = json.loads(self._told)["eos"]
        return Transaction(name, told["producer_id"], told["producer_epoch"])


# ---- on the driver -------------------------------------------------------------------------------------


def commit_all(client: Mapping[str, str], transactions: Iterable[Transaction]) -> None:
    """Also where some were committed before. One after the other: where it ends half way, those that are
    committed are of the first tasks, and a task that is cut otherwise in the next run shows in its number of
    rows. Raises `ConnectorError`."""
    for each in transactions:
        code = end_transaction(cluster(client), each, committed=True)
        if code != ErrorCode.NONE:
            raise SinkError(
                "KAFKA_TRANSACTION_LOST",
                f"'{each.transactional_id}' cannot be committed: {code.name}. It was open for longer than"
                " 'kafka.transaction.timeout.ms', or another query has the same name. The micro-batch is"
                " written again when the query is started again",
            )


def abort_all(client: Mapping[str, str], transactions: Iterable[Transaction]) -> None:
    """Those that are open; what was committed stays. Where nobody answers they end by their timeout, which is
    not waited for."""
    for each in transactions:
        try:
            code = end_transaction(cluster(client), each, committed=False)
        except ConnectorError as problem:
            _log.warning("'%s' and what comes after it is left open: %s", each.transactional_id, problem)
            return
        _log.info("'%s' aborted: %s", each.transactional_id, code.name)
