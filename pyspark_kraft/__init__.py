"""Where Spark looks for data sources: it imports every package named pyspark_* and takes its `DefaultSource`.

Installing kraft is therefore enough for `spark.read.format("kraft")`.
"""

from spark_connector.source import KraftDataSource as DefaultSource

__all__ = ["DefaultSource"]
