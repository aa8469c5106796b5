"""The data source "kraft", dying where a query can die: at the point that a file names.

The file's name is the point; files beside it count down how often it is still passed. Dying there removes it,
so that the next run gets by. Files, because Spark runs the source in several processes of its own. What is
in the file says who dies: the query, or its whole process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, InputPartition
from pyspark.sql.types import StructType

from spark_connector.micro_batches import commit_all
from spark_connector.options import SinkOptions, SourceOptions, sink_options
from spark_connector.source import KraftDataSource, KraftStreamReader
from spark_connector.transactional_sink import TransactionalStreamWriter
from tests.support.waiting import wait_until

OPTION: Final = "deaths"
"""The directory of the files. The source itself does not hear of it."""

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
SINK_POINTS: Final = (
    "before-write",
    "after-write",  # of a task
    "worker-killed",
    "before-sink-commit",
    "marked",
    "amid-sink-commit",
    "after-sink-commit",
)

HELD: Final = "held"
"""A file: while it is there, the process that is to commit or abort does not learn which of the two."""
HOLDING: Final = "holding"
"""Is there when one waits for it."""
WRITTEN: Final = "written"

QUERY, DRIVER, WORKER = "query", "driver", "worker"
"""Who dies."""


class Died(RuntimeError):
    """As planned."""


class Deaths:
    """The plan."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def plan(self, point: str, passes: int = 0, who: str = QUERY) -> None:
        for number in range(passes):
            (self._directory / f"{point}.{number}").touch()
        (self._directory / point).write_text(who)

    def at(self, point: str) -> None:
        """Die here, if it is the time. Tasks of one query come here at once: a removal is one's alone."""
        plan = self._directory / point
        if not plan.exists():
            return
        for once in [*self._directory.glob(f"{point}.*"), plan]:
            try:
                who = once.read_text()
                once.unlink()
            except FileNotFoundError:
                continue
            if once == plan:
                _die(who, point)
            return


def _die(who: str, point: str) -> None:
    if who == WORKER:
        os.kill(os.getpid(), signal.SIGKILL)
    if who == DRIVER:  # which leads the session that its JVM and its workers are in
        os.killpg(os.getsid(0), signal.SIGKILL)
    raise Died(f"planned death: {point}")


class DyingReader(KraftStreamReader):
    """Dies before or after what it is asked."""

    def __init__(self, options: SourceOptions, directory: str) -> None:
        super().__init__(options)
        self._directory = directory
        self._deaths = Deaths(directory)

    def __reduce__(self) -> tuple[Any, ...]:
        return DyingReader, (self.options, self._directory)

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


class DyingWriter(TransactionalStreamWriter):
    """Dies while a micro-batch is written or committed."""

    def __init__(self, options: SinkOptions, directory: str) -> None:
        super().__init__(options)
        self._directory = Path(directory)
        self._deaths = Deaths(directory)

    def write(self, iterator):
        self._deaths.at("before-write")
        written = super().write(iterator)
        self._deaths.at("worker-killed")
        self._deaths.at("after-write")
        (self._directory / WRITTEN).touch()
        return written

    def commit(self, messages, batchId):
        self._deaths.at("before-sink-commit")
        transactions = self.prepare(messages, batchId)
        self._deaths.at("marked")
        commit_all(self._client, transactions[:1])
        self._deaths.at("amid-sink-commit")
        commit_all(self._client, transactions[1:])
        self._deaths.at("after-sink-commit")


class DyingSource(KraftDataSource):
    """`format("kraft-dying")`."""

    @classmethod
    def name(cls) -> str:
        return "kraft-dying"

    def __init__(self, options: dict[str, str]) -> None:
        given = {key.lower(): value for key, value in options.items()}
        self._directory = given.pop(OPTION)
        super().__init__(given)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        reader = super().streamReader(schema)
        assert isinstance(reader, KraftStreamReader)
        return DyingReader(reader.options, self._directory)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        directory = Path(self._directory)
        if (directory / WRITTEN).exists() and (directory / HELD).exists():  # else Spark only plans
            (directory / HOLDING).touch()
            wait_until(lambda: not (directory / HELD).exists(), "nobody holds the driver up")
        return DyingWriter(sink_options(self.options), self._directory)
