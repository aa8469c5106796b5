"""The sink with `transactional=true`, as Spark sees it.

write (worker, one task)  -> every row is acknowledged, in a transaction that is left open (transactions.py)
commit, abort (driver)    -> ends the transactions of all tasks (micro_batches.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from spark_connector.coordinators import OpenTransaction
from spark_connector.errors import SinkError
from spark_connector.micro_batches import MicroBatch, TaskRows, abort_all, commit_all, commit_job
from spark_connector.options import SinkOptions
from spark_connector.transactions import (
    BATCH_TIMEOUT_MS,
    STREAM_TIMEOUT_MS,
    Rows,
    transactional_id_of,
    transactional_task,
)

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID: Final = "sql.streaming.queryId"
"""The property by which Spark gives its tasks the query's id, which is in the checkpoint."""
_PLACE_CHARACTERS: Final = 8


@dataclass(frozen=True, slots=True)
class Prepared(WriterCommitMessage):
    """The message of a task to the driver."""

    query: str
    task: int
    rows: Rows


class TransactionalWriter(DataSourceArrowWriter):
    """A batch query's sink whose rows are there when all are. Its job has a name that is never repeated."""

    def __init__(self, options: SinkOptions, job: str) -> None:
        self._client = options.client
        self._job = f"{options.transactional_id_prefix}-{job}"
        self._task = transactional_task(options, BATCH_TIMEOUT_MS)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Prepared:
        task, attempt = _task_and_attempt(_task_context())
        return Prepared("", task, self._task.write(iterator, transactional_id_of(self._job, task, attempt)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        transactions = [each.rows.transaction for each in _prepared(messages)]
        mine = [each for each in transactions if each is not None]
        commit_job(self._client, f"{self._job}-", mine)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        abort_all(self._client, f"{self._job}-", messages)


class TransactionalStreamWriter(DataSourceStreamArrowWriter):
    """A streaming query's sink that writes each row once. A micro-batch that was committed can be committed
    again, and is not undone."""

    def __init__(self, options: SinkOptions) -> None:
        self._client = options.client
        self._prefix = options.transactional_id_prefix
        self._mark_topic = options.transactional_mark_topic
        self._checkpoint = options.checkpoint
        self.task = transactional_task(options, STREAM_TIMEOUT_MS)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Prepared:
        """Raises SinkError where Spark does not name the query."""
        context = _task_context()
        query = context.getLocalProperty(_QUERY_ID)
        if query is None:
            raise SinkError("KAFKA_TRANSACTION_FAILED", "Spark does not tell which query this is")
        task, attempt = _task_and_attempt(context)
        transactional_id = transactional_id_of(self.query_prefix(query), task, attempt)
        return Prepared(query, task, self.task.write(iterator, transactional_id))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        commit_all(self._client, self.prepare(messages, batchId))

    def prepare(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> list[OpenTransaction]:
        """What is to be committed, and can be."""
        prepared = _prepared(messages)
        if not prepared:
            return []
        query = prepared[0].query
        written = [TaskRows(each.task, each.rows) for each in sorted(prepared, key=lambda each: each.task)]
        id_prefix, group = f"{self.query_prefix(query)}-", f"{self._prefix}-{query}"
        return MicroBatch(group, id_prefix, batchId, written, self._mark_topic).prepare(self._client)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Where every task failed, none has sent the query's id; the checkpoint's path replaces it."""
        queries = [each.query for each in _prepared(messages)]
        if queries:
            abort_all(self._client, f"{self.query_prefix(queries[0])}-", messages)
        elif self._checkpoint:
            abort_all(self._client, f"{self.checkpoint_prefix}-", messages)

    @property
    def checkpoint_prefix(self) -> str:
        """Prefix of the transactional ids of all queries with that checkpoint."""
        return f"{self._prefix}-{sha256(self._checkpoint.encode()).hexdigest()[:_PLACE_CHARACTERS]}"

    def query_prefix(self, query: str) -> str:
        """Prefix of the transactional ids of a query's tasks."""
        return f"{self.checkpoint_prefix}-{query}"


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "tasks run in Spark"
    return context


def _task_and_attempt(context: TaskContext) -> tuple[int, int]:
    return context.partitionId(), context.attemptNumber()


def _prepared(messages: Sequence[WriterCommitMessage | None]) -> list[Prepared]:
    """The prepared transactions of the tasks that succeeded."""
    return [each for each in messages if isinstance(each, Prepared)]
