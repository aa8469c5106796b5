"""The Spark query, in a process of its own: a stream of flights into delays per day, carrier and airport.

    topic flights -> event time, watermark -> join with airports.csv -> windows -> topic delays
                                                                                -> Parquet

python -m examples.flights.query '{"bootstrap": ..., "directory": ..., "airports": ..., "per_batch": ...}'

Two streaming queries of one DataFrame, each with its checkpoint and the guarantee of its sink: a row is in
Parquet once, and in the topic once or, of a micro-batch that ran again, twice. Both write a row when its
window is closed. The process reports its progress to the demo, a JSON object a line; it ends once all
windows are closed, or when its standard input ends: with the demo, whatever ends that.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TextIO

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener

from examples.flights.plan import DELAYS, FLIGHTS, MARKER_DEPARTS, WATERMARK, WINDOW, DayDelay, QueryJob
from spark_connector import register
from spark_connector.java import java_environment

TO_TOPIC: Final = "to-topic"
TO_PARQUET: Final = "to-parquet"

LINE: Final = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
    sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
    air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP
"""
AIRPORT: Final = "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING"
SETTINGS: Final = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",  # of few thousand groups
    "spark.sql.codegen.wholeStage": "false",  # compiling the plans would take longer than running them
}
POLL_S: Final = 0.1


def spark_session(job: QueryJob) -> SparkSession:
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **java_environment()}
    scratch = Path(job.path("scratch"))
    scratch.mkdir(parents=True, exist_ok=True)
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir={scratch}"
    builder = SparkSession.builder.master("local[2]").appName("kraft flights")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.driver.extraJavaOptions", java).config("spark.local.dir", str(scratch))
    spark = builder.config("spark.sql.warehouse.dir", job.path("scratch/warehouse")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def delays(spark: SparkSession, job: QueryJob) -> DataFrame:
    """The computation, without a sink."""
    records = (
        spark.readStream.format("kraft")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", FLIGHTS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.per_batch)
        .load()
    )
    line = F.from_csv(F.col("value").cast("string"), F.lit(LINE), {"nullValue": "NA"})
    flights = (
        records.select(line.alias("line"))
        .select("line.*")
        .withColumn("departs", F.col("time_hour") + F.make_dt_interval(mins=F.col("minute")))
        .withWatermark("departs", _interval(WATERMARK))
    )
    airports = spark.read.csv(job.airports, schema=AIRPORT, header=True)
    return (
        flights.join(F.broadcast(airports), F.col("origin") == F.col("faa"))
        .groupBy(F.window("departs", _interval(WINDOW)), "carrier", F.col("name").alias("airport"))
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.avg("dep_delay").alias("mean_delay"),
        )
        .select(F.date_format("window.start", "yyyy-MM-dd").alias("day"), *DayDelay._fields[1:])
    )


def start(spark: SparkSession, job: QueryJob) -> None:
    """Both queries, from their checkpoints where there are some."""
    rows = delays(spark, job)
    key = F.concat_ws("/", "day", "carrier", "airport")
    records = rows.select(key.alias("key"), F.to_json(F.struct("*")).alias("value"))
    to_topic = records.writeStream.format("kraft").option("kafka.bootstrap.servers", job.bootstrap)
    to_parquet = rows.writeStream.format("parquet").option("path", job.path("parquet"))
    for name, writer in ((TO_TOPIC, to_topic.option("topic", DELAYS)), (TO_PARQUET, to_parquet)):
        checkpoint = job.path(f"checkpoint/{name}")
        writer.queryName(name).outputMode("append").option("checkpointLocation", checkpoint).start()


def _interval(length: timedelta) -> str:
    return f"{length // timedelta(seconds=1)} seconds"


class Reporter(StreamingQueryListener):
    """Tells of each micro-batch."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._open = {TO_TOPIC, TO_PARQUET}
        self.all_closed = threading.Event()
        self.failed = threading.Event()

    def tell(self, event: str, **more: Any) -> None:
        self._out.write(json.dumps({"event": event, **more}) + "\n")  # at once: Spark calls from threads
        self._out.flush()

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        ends = json.loads(progress.sources[0].endOffset or "{}")
        self.tell(
            "progress",
            query=progress.name,
            batch=progress.batchId,
            read=sum(ends.get(FLIGHTS, {}).values()),
            late=sum(state.numRowsDroppedByWatermark for state in progress.stateOperators),
        )
        watermark = datetime.fromisoformat(progress.eventTime["watermark"])
        if watermark >= MARKER_DEPARTS - WATERMARK:
            self._open.discard(progress.name)
        if not self._open:
            self.all_closed.set()

    def onQueryTerminated(self, event: Any) -> None:
        if event.exception:
            self.tell("failed", why=event.exception)
            self.failed.set()


def tell_parquet(spark: SparkSession, job: QueryJob, reporter: Reporter) -> None:
    """What a reader of the directory sees: the files that the sink's log has."""
    table = spark.read.parquet(job.path("parquet"))
    on_disk = sum(1 for _ in Path(job.path("parquet")).glob("*.parquet"))
    reporter.tell("parquet", rows=table.collect(), files=len(table.inputFiles()), on_disk=on_disk)


def main() -> int:
    job = QueryJob(**json.loads(sys.argv[1]))
    spark = spark_session(job)
    reporter = Reporter(sys.stdout)
    spark.streams.addListener(reporter)
    try:
        start(spark, job)
    except PySparkException as failure:
        reporter.tell("failed", why=str(failure))
        return 1
    reporter.tell("started")
    while not reporter.all_closed.is_set():
        demo_ended = bool(select.select([sys.stdin], [], [], POLL_S)[0])
        if demo_ended or reporter.failed.is_set():
            return 1
    for query in spark.streams.active:
        query.stop()
    tell_parquet(spark, job, reporter)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
