"""The data source "one-row": what Spark itself takes for a source in Python that does nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class OneRow(DataSource):
    """One row, from one task, without a request."""

    @classmethod
    def name(cls) -> str:
        return "one-row"

    def schema(self) -> str:
        return "value long"

    def reader(self, schema: StructType) -> DataSourceReader:
        return OneRowReader()


class OneRowReader(DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter([(partition.value,)])
