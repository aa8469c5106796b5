"""How tests start Spark: small, quick, on the loopback."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from spark_connector.java import java_environment

ROOT = str(Path(__file__).parents[2])
"""Spark's Python finds tests and pyspark_kraft here."""
EARLY = str(Path(__file__).parent / "early")
"""And here it learns to connect in time."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "640m",
    "spark.python.authenticate.socketTimeout": "120s",  # a busy machine takes its time to start a Python
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # it lives for a minute
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",  # compiling a plan takes longer than running it once
}


def builder(master: str = "local[2]") -> SparkSession.Builder:
    """Sets this process's environment too: Spark's Python is ours, and some Java is found."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **java_environment()}
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (ROOT, EARLY, os.environ.get("PYTHONPATH"))))
    made = SparkSession.builder.master(master).appName("kraft")
    made = made.config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
    for key, value in SETTINGS.items():
        made = made.config(key, value)
    return made
