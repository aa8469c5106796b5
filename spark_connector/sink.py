"""The sink as Spark sees it: a writer for each kind of query, and the schema of rows.

    write (worker, one task)  -> every row is produced and acknowledged, or the task fails
    commit, abort (driver)    -> nothing: what was acknowledged is in the topic, and stays

A task or micro-batch that Spark runs again writes its rows again. With `transactional=true` it does not: that
sink is in transactional_sink.py, imported only where it is used, because Spark starts a new process for
each call about a micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from spark_connector.errors import SinkError
from spark_connector.options import SinkOptions
from spark_connector.producing import WriteTask, write_task

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT_OR_BYTES: Final = ("string", "binary")
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}


@dataclass(frozen=True, slots=True)
class TaskResult(WriterCommitMessage):
    """The message of a task to the driver."""

    rows: int


class KraftWriter(DataSourceArrowWriter):
    """A batch query's sink."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        return TaskResult(self._task.run(iterator))


class KraftStreamWriter(DataSourceStreamArrowWriter):
    """A streaming query's sink. Neither `commit` nor `abort` does anything, so that either may be called at
    any time and again."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        return TaskResult(self._task.run(iterator))


def batch_writer(options: SinkOptions, schema: StructType, job: str) -> DataSourceWriter:
    """`job`: a name that no other job has. Everything that can be checked without the cluster is checked
    here, on the driver."""
    check_columns(schema, options.topic)
    if options.transactional:
        from spark_connector.transactional_sink import TransactionalWriter

        return TransactionalWriter(options, job)
    return KraftWriter(write_task(options))


def stream_writer(options: SinkOptions, schema: StructType) -> DataSourceStreamWriter:
    check_columns(schema, options.topic)
    if options.transactional:
        from spark_connector.transactional_sink import TransactionalStreamWriter

        return TransactionalStreamWriter(options)
    return KraftStreamWriter(write_task(options))


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises `SinkError` where the rows cannot be written."""
    names = [field.name for field in schema.fields]
    if twice := [name for name in _COLUMNS if names.count(name) > 1]:
        raise SinkError("KAFKA_SINK_COLUMNS", f"there is more than one column '{twice[0]}'")
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
