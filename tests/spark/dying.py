"""The data source "kraft", dying where a query can die: at the point that a file names.

The file's name is the point; what is in it counts down how often it is still passed. Dying there removes it,
so that the next run gets by. A file, because Spark runs the source in several processes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_connector.source import KraftDataSource, KraftStreamReader

OPTION: Final = "kafka.test.deaths"
"""The directory of the files. No client knows the property, so it is passed through."""

POINTS: Final = (
    "after-latest",
    "before-partitions",
    "after-partitions",
    "before-read",
    "after-read",
    "before-output",
    "after-output",
    "before-commit",
    "after-commit",
)
FIRST_POINTS: Final = ("before-initial", "after-initial")
"""Passed before there is a checkpoint only."""


class Died(RuntimeError):
    """As planned."""


class Deaths:
    """The plan."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def plan(self, point: str, passes: int) -> None:
        for number in range(passes):
            (self._directory / f"{point}.{number}").touch()
        (self._directory / point).touch()

    def at(self, point: str) -> None:
        """Die here, if it is the time. Tasks of one query come here at once: a removal is one's alone."""
        plan = self._directory / point
        if not plan.exists():
            return
        for once in [*self._directory.glob(f"{point}.*"), plan]:
            try:
                once.unlink()
            except FileNotFoundError:
                continue
            if once == plan:
                raise Died(f"planned death: {point}")
            return


class DyingReader(KraftStreamReader):
    """Dies before or after what it is asked."""

    def __reduce__(self) -> tuple[Any, ...]:
        return DyingReader, (self._options,)

    @property
    def _deaths(self) -> Deaths:
        return Deaths(self._options.client[OPTION.removeprefix("kafka.")])

    def initialOffset(self):
        self._deaths.at("before-initial")
        found = super().initialOffset()
        self._deaths.at("after-initial")
        return found

    def latestOffset(self, start=None, limit=None):
        found = super().latestOffset(start, limit)
        self._deaths.at("after-latest")
        return found

    def partitions(self, start, end):
        self._deaths.at("before-partitions")
        found = super().partitions(start, end)
        self._deaths.at("after-partitions")
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._deaths.at("before-read")
        yield from super().read(partition)
        self._deaths.at("after-read")

    def commit(self, end):
        self._deaths.at("before-commit")
        super().commit(end)
        self._deaths.at("after-commit")


class DyingSource(KraftDataSource):
    """`format("kraft-dying")`."""

    @classmethod
    def name(cls) -> str:
        return "kraft-dying"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        reader = super().streamReader(schema)
        assert isinstance(reader, KraftStreamReader)
        return DyingReader(reader._options)
