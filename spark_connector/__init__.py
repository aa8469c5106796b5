"""Spark's way in and out: a source and a sink for any Kafka cluster, without a jar.

    from spark_connector import register

    register(spark)
    spark.readStream.format("kraft").option("kafka.bootstrap.servers", ...).option("subscribe", ...).load()

Where kraft is installed beside PySpark, Spark finds the format by itself (pyspark_kraft/), and `register` is
needed only where it was made available later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format "kraft" known to a session."""
    from spark_connector.source import KraftDataSource

    spark.dataSource.register(KraftDataSource)
