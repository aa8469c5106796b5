"""Where Spark looks for data sources: it imports every package named pyspark_* and takes its `DefaultSource`.

Installing kraft is therefore enough for `spark.read.format("kraft")`. A package that cannot be imported ends
the look-up of all: where files of the application shadow ours, the format is there, and raises when used.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from kraft import own_packages

DefaultSource: type[DataSource]

try:
    own_packages.require("spark_connector")
    from spark_connector.source import KraftDataSource
except own_packages.ShadowedPackage as error:
    why = str(error)

    class ShadowedSource(DataSource):
        """In place of the format where it cannot be imported."""

        def __init__(self, options: dict[str, Any]) -> None:
            raise own_packages.ShadowedPackage(why)

        @classmethod
        def name(cls) -> str:
            """The format's name."""
            return "kraft"

    DefaultSource = ShadowedSource
else:
    DefaultSource = KraftDataSource

__all__ = ["DefaultSource"]
