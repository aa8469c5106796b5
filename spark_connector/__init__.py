"""A source and a sink of Spark for any Kafka cluster, without a jar.

    from spark_connector import register

    register(spark)
    spark.readStream.format("kraft").option("kafka.bootstrap.servers", ...).option("subscribe", ...).load()

Where kraft is installed beside PySpark, Spark finds the format by itself (pyspark_kraft/), and `register` is
needed only where it was made available later. Importing it raises `ShadowedPackage` where a file of the
application has the name of a package that it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft import own_packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

own_packages.require("metadata_quorum", "fetch")


def register(spark: SparkSession) -> None:
    """Make the format "kraft" known to a session."""
    from spark_connector.source import KraftDataSource

    spark.dataSource.register(KraftDataSource)
