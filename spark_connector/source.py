"""The data source "kraft" as Spark sees it: schema, readers and writers, made from options.

Spark makes and pickles these objects in processes of its own, several times for a query: making one is cheap
and sends no request. What needs Arrow, numpy or a connection is imported where it is used, because Spark's
planner processes import this module for every query and mostly need none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from metadata_quorum.foundation.garbage import collection_paused
from spark_connector.assignment import assigned_partitions, ids_of, require_all
from spark_connector.errors import SinkError, SourceError
from spark_connector.filters import PushedFilters, push_filters
from spark_connector.offsets import (
    OffsetRange,
    SparkOffset,
    TopicIds,
    resolve_end,
    resolve_start,
    stream_offset_from_spark,
    to_spark,
)
from spark_connector.options import (
    SourceOptions,
    check_source_options,
    redacted,
    sink_options,
    source_options,
    wants_headers,
)
from spark_connector.planning import split
from spark_connector.stream import StreamPlanner

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

    from spark_connector.connections import ClusterClient
    from spark_connector.leaders import KnownLeader

_COLUMNS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADERS: Final = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)
_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


def source_schema(include_headers: bool) -> StructType:
    return StructType([*_COLUMNS, _HEADERS] if include_headers else list(_COLUMNS))


class KraftDataSource(DataSource):
    """`spark.read.format("kraft")`, and the same for streams and sinks."""

    @classmethod
    def name(cls) -> str:
        return "kraft"

    def schema(self) -> StructType:
        """Called when a source is loaded; a sink's schema comes with its rows."""
        check_source_options(self.options)
        return source_schema(wants_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        self._check_schema(schema)
        options = source_options(self.options, streaming=False)
        return FilteringBatchReader(options) if _filters_are_pushed() else KraftBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        self._check_schema(schema)
        return KraftStreamReader(source_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Raises SinkError for the mode `overwrite`."""
        from spark_connector.sink import batch_writer

        if overwrite:
            raise SinkError("UNSUPPORTED_SAVE_MODE", "records can only be appended: use the mode 'append'")
        return batch_writer(sink_options(self.options), schema, job=uuid4().hex)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from spark_connector.sink import stream_writer

        return stream_writer(sink_options(self.options), schema)

    def _check_schema(self, schema: StructType) -> None:
        if schema != source_schema(wants_headers(self.options)):
            raise SourceError(
                "FIXED_SCHEMA", "the source has a schema of its own; it cannot be given another"
            )

    def __repr__(self) -> str:
        return f"KraftDataSource({redacted(dict(self.options))})"


# ---- reading: the planner's part on the driver, `read` in the workers ------------------------------------


class ReadTask(InputPartition):
    """A range for one task."""

    def __init__(self, offset_range: OffsetRange, topic_ids: TopicIds, leader: KnownLeader | None) -> None:
        self.offset_range = offset_range
        self.topic_id = topic_ids.get(offset_range.partition.topic)
        self.leader = leader


class KraftBatchReader(DataSourceReader):
    """A batch query's source."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed = PushedFilters()

    def partitions(self) -> Sequence[InputPartition]:
        """Raises SourceError where a range would end before it starts, or a partition has just been
        deleted."""
        options, cluster = self._options, _cluster(self._options)
        assigned = assigned_partitions(options.topics, cluster)
        require_all(options.topics, assigned)
        start = resolve_start(
            options.starting, assigned, cluster, latest_if_unmatched=options.latest_if_unmatched
        )
        end = resolve_end(options.ending, assigned, cluster)
        topic_ids = ids_of(assigned, cluster)
        selected = self._pushed.partitions(assigned)
        if deleted := sorted(str(each) for each in selected if each not in start or each not in end):
            raise SourceError(
                "UNKNOWN_TOPIC_OR_PARTITION",
                f"{', '.join(deleted)}: deleted while the query was planned",
            )
        ranges = [OffsetRange(each, start[each], end[each]) for each in sorted(selected)]
        for each in ranges:
            if each.size < 0:
                raise SourceError(
                    "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
                    f"{each.partition} would be read from offset {each.start} to {each.end}",
                )
        ranges = self._pushed.ranges(ranges, cluster)
        return [
            ReadTask(each, topic_ids, cluster.known_leader(each.partition))
            for each in split(ranges, options.min_partitions, options.max_records_per_partition)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class FilteringBatchReader(KraftBatchReader):
    """Takes over filters; Spark refuses a reader that could where `spark.sql.python.filterPushdown.enabled`
    is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._pushed, left = push_filters(filters)
        return left


def _filters_are_pushed() -> bool:
    """Whether this is the process in which Spark offers filters, which it starts only where that is enabled.
    No configuration reaches a planner process, so it is known by the module that it runs."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or getattr(main, "name", None) == _PUSHDOWN_WORKER


class KraftStreamReader(DataSourceStreamReader):
    """A streaming query's source, in Spark's words. Spark 4.1 calls `latestOffset` without arguments."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._planner: StreamPlanner | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return KraftStreamReader, (self.options,)

    def initialOffset(self) -> SparkOffset:
        return to_spark(*self._plan.initial_offset())

    def getDefaultReadLimit(self) -> ReadLimit:
        """All that is available where no limit is set. Our stream applies the limits: Python cannot pass both
        of them to Spark, nor `maxTriggerDelay`."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: SparkOffset | None = None, limit: ReadLimit | None = None) -> SparkOffset:
        known_start = None if start is None else stream_offset_from_spark(start)
        limited = type(limit).__name__ != "ReadAllAvailable"
        return to_spark(*self._plan.latest(known_start, limited=limited))

    def prepareForTriggerAvailableNow(self) -> None:
        self._plan.stop_at_what_is_there()

    def reportLatestOffset(self) -> SparkOffset | None:
        ends = self._plan.reported()
        return to_spark(*ends) if ends is not None else None

    def partitions(self, start: SparkOffset, end: SparkOffset) -> Sequence[InputPartition]:
        begin, finish = stream_offset_from_spark(start), stream_offset_from_spark(end)
        ranges, cluster = self._plan.tasks(begin, finish), _cluster(self.options)
        return [ReadTask(each, finish.topic_ids, cluster.known_leader(each.partition)) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, partition)

    def commit(self, end: SparkOffset) -> None:
        self._plan.committed(stream_offset_from_spark(end))

    @property
    def _plan(self) -> StreamPlanner:
        """Made at the first call, in the one process that lives as long as the query."""
        if self._planner is None:
            self._planner = StreamPlanner(self.options, _cluster(self.options))
        return self._planner


def _cluster(options: SourceOptions) -> ClusterClient:
    with collection_paused():
        from spark_connector.connections import cluster_client

    return cluster_client(options.connection)


def _read(options: SourceOptions, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """What one task reads. Spark makes an empty task of its own where a batch query has none."""
    with collection_paused():
        from spark_connector.reader import read_range

    if isinstance(task, ReadTask):
        (topic, partition), start, end = task.offset_range
        yield from read_range(
            options.connection,
            topic,
            partition,
            start,
            end,
            include_headers=options.include_headers,
            fail_on_data_loss=options.fail_on_data_loss,
            timeout_s=options.poll_timeout_ms / 1000,
            topic_id=task.topic_id,
            leader=task.leader,
        )


try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # Spark 4.1 makes one micro-batch of all there is
    pass
else:
    SupportsTriggerAvailableNow.register(KraftStreamReader)
