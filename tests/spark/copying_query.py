"""A query in a process of its own, to be killed from within: what is in a topic goes into another, in
transactions, and it ends.

python -m tests.spark.copying_query SOURCE_OPTIONS SINK_OPTIONS CHECKPOINT [MASTER]
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.dying import DyingSource
from tests.spark.session import builder


def copy(
    spark: SparkSession, options: dict[str, str], sink: dict[str, str], checkpoint: str
) -> StreamingQuery:
    loaded = spark.readStream.format("kraft").options(**options).load()
    writer = loaded.select("key", "value").writeStream.format("kraft-dying").options(**sink)
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


if __name__ == "__main__":
    options, sink, checkpoint = json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
    spark = builder(*sys.argv[4:]).getOrCreate()
    spark.dataSource.register(DyingSource)
    copy(spark, options, sink, checkpoint).awaitTermination()
    spark.stop()
