"""The sink with `transactional=true`, as Spark sees it: tasks write, the driver commits (transactions.py).

write (worker, one task)  -> every row is acknowledged, in a transaction that is left open
commit, abort (driver)    -> ends the transactions of all tasks
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from spark_connector.coordinators import Transaction
from spark_connector.errors import SinkError
from spark_connector.options import SinkOptions
from spark_connector.transactions import abort_all, commit_all, transactional_task

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID: Final = "sql.streaming.queryId"
"""Where Spark tells its tasks the query's id, which is in the checkpoint."""
_MICRO_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Prepared(WriterCommitMessage):
    """What a task tells the driver."""

    rows: int
    transaction: Transaction | None
    """None where there is nothing to commit (any more)."""


class TransactionalWriter(DataSourceArrowWriter):
    """A batch query's sink whose rows are there when all are."""

    def __init__(self, options: SinkOptions, job: str) -> None:
        self._task = transactional_task(options, job)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Prepared:
        return Prepared(*self._task.write(iterator, str(_task_context().partitionId())))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit_all(self._task.client, _open(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        abort_all(self._task.client, _open(messages))


class TransactionalStreamWriter(DataSourceStreamArrowWriter):
    """A streaming query's sink that writes each row once. A micro-batch that was committed can be committed
    again, and is not undone."""

    def __init__(self, options: SinkOptions) -> None:
        self._task = transactional_task(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Prepared:
        context = _task_context()
        query, micro_batch = (context.getLocalProperty(name) for name in (_QUERY_ID, _MICRO_BATCH_ID))
        if query is None or micro_batch is None:
            raise SinkError("KAFKA_TRANSACTION_FAILED", "Spark does not tell which micro-batch this is")
        name = f"{query}-{context.partitionId()}"
        return Prepared(*self._task.write(iterator, name, int(micro_batch)))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        commit_all(self._task.client, _open(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        abort_all(self._task.client, _open(messages))


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "tasks run in Spark"
    return context


def _open(messages: Sequence[WriterCommitMessage | None]) -> list[Transaction]:
    """Of the tasks that ended well and have written something."""
    written = (each for each in messages if isinstance(each, Prepared))
    return [each.transaction for each in written if each.transaction is not None]
