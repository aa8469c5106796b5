"""A query in a process of its own, to be killed: a topic into Parquet files, for ever.

python -m tests.spark.endless_query OPTIONS CHECKPOINT DIRECTORY
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from spark_connector import register
from tests.spark.session import builder


def to_parquet(spark: SparkSession, options: dict[str, str], checkpoint: str, directory: str):
    loaded = spark.readStream.format("kraft").options(**options).load()
    writer = loaded.select("partition", "offset", "value").writeStream.format("parquet")
    return writer.option("path", directory).option("checkpointLocation", checkpoint)


if __name__ == "__main__":
    spark = builder().getOrCreate()
    register(spark)
    options, checkpoint, directory = json.loads(sys.argv[1]), *sys.argv[2:]
    to_parquet(spark, options, checkpoint, directory).start().awaitTermination()
