"""The process that runs the queries: one Spark session, which gets its jobs line by line.

    python -m benchmarks.spark.driver FORMAT [JAR...]

A line of standard input is a job in JSON, a line of standard output its result. Times are taken here, in
the process of a user's driver; CPU and memory are measured from outside.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.spark.one_row import OneRow
from spark_connector.java import java_environment

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}
CORES = 2
CATCH_UP_TIMEOUT_S = 120

Answer = dict[str, Any]
Options = Mapping[str, str]


class SparkDriver:
    """Jobs are its methods, by name."""

    def __init__(self, source: str, spark: SparkSession) -> None:
        self._format = source
        self._spark = spark
        self._copying: StreamingQuery | None = None

    def batch(self, options: Options) -> Answer:
        """Read all there is."""
        began = time.monotonic()
        totals = self._load(options).selectExpr(
            "count(1) rows",
            "sum(coalesce(length(key), 0) + coalesce(length(value), 0)) bytes",
            "max(partition) partition",
            "max(offset) offset",
            "max(timestamp) timestamp",
        )
        (row,) = totals.collect()
        return {"seconds": time.monotonic() - began, "rows": row["rows"], "bytes": row["bytes"]}

    def first_row(self, options: Options) -> Answer:
        """Read one."""
        began = time.monotonic()
        rows = self._load(options).limit(1).collect()
        return {"seconds": time.monotonic() - began, "rows": len(rows)}

    def least(self) -> Answer:
        """The same of a source in Python that has one row at hand."""
        self._spark.dataSource.register(OneRow)
        began = time.monotonic()
        rows = self._spark.read.format(OneRow.name()).load().limit(1).collect()
        return {"seconds": time.monotonic() - began, "rows": len(rows)}

    def catch_up(self, options: Options, checkpoint: str) -> Answer:
        """A streaming query from the beginning to the end, and no further."""
        began = time.monotonic()
        loaded = self._spark.readStream.format(self._format).options(**options).load()
        writer = loaded.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(CATCH_UP_TIMEOUT_S):
            query.stop()
            raise TimeoutError(f"a query with availableNow took over {CATCH_UP_TIMEOUT_S} s")
        seconds = time.monotonic() - began
        return {"seconds": seconds, "rows": sum(each["numInputRows"] for each in query.recentProgress)}

    def copy(self, options: Options, sink: Options, checkpoint: str) -> Answer:
        """Begin to copy a topic into another."""
        loaded = self._spark.readStream.format(self._format).options(**options).load()
        writer = loaded.select("key", "value").writeStream.format(self._format).options(**sink)
        self._copying = writer.option("checkpointLocation", checkpoint).start()
        return {}

    def stop_copy(self) -> Answer:
        """End it; returns how a micro-batch's time is spent, in ms."""
        assert self._copying is not None
        durations: dict[str, list[int]] = {}
        for progress in self._copying.recentProgress:
            if progress["numInputRows"]:
                for name, duration_ms in progress["durationMs"].items():
                    durations.setdefault(name, []).append(duration_ms)
        self._copying.stop()
        failure = self._copying.exception()
        if failure is not None:
            raise RuntimeError(str(failure))
        return {"durations_ms": {name: sorted(each)[len(each) // 2] for name, each in durations.items()}}

    def _load(self, options: Options) -> DataFrame:
        return self._spark.read.format(self._format).options(**options).load()


def start(jars: list[str]) -> SparkSession:
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **java_environment()}
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("kraft benchmark")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> None:
    source, *jars = sys.argv[1:]
    began = time.monotonic()
    spark = start(jars)
    driver = SparkDriver(source, spark)
    print(json.dumps({"version": spark.version, "seconds": time.monotonic() - began}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        answer = getattr(driver, job.pop("job"))(**job)
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
