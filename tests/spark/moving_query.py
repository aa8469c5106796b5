"""A query that moves between sources with its checkpoint, on a Spark of its own.

python -m tests.spark.moving_query OPTIONS CHECKPOINT [JAR...]

A line of standard input is a run: the source's format, and `dies` where the query is to die in its first
micro-batch, after that is read. A line of standard output is what the run read, by micro-batch.
"""

from __future__ import annotations

import json
import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.session import builder

COLUMNS = ("partition", "offset", "string(key)", "string(value)", "unix_micros(timestamp)", "timestampType")


def run(
    spark: SparkSession, source: str, options: dict[str, str], checkpoint: str, *, dies: bool
) -> dict[int, list]:
    """Take what is there, and end."""
    batches: dict[int, list] = {}

    def read(rows: DataFrame, batch: int) -> None:
        batches[batch] = sorted(list(row) for row in rows.selectExpr(*COLUMNS).collect())
        if dies:
            raise RuntimeError("planned death")

    loaded = spark.readStream.format(source).options(**options).load()
    writer = loaded.writeStream.foreachBatch(read).option("checkpointLocation", checkpoint)
    query = writer.start()
    try:
        query.processAllAvailable()
    except StreamingQueryException as death:
        if not dies or "planned death" not in str(death):
            raise
    finally:
        query.stop()
    return batches


def main() -> None:
    options, checkpoint, *jars = json.loads(sys.argv[1]), *sys.argv[2:]
    spark = builder().config("spark.jars", ",".join(jars)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        source, *dies = line.split()
        print(json.dumps(run(spark, source, options, checkpoint, dies=bool(dies))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
