"""What is measured: Spark's own Kafka source from its jar, and ours on the same PySpark and on the newest.

The jar comes from Maven, its PySpark from the package registry that pip is set to; both are fetched once into
the user's cache. That PySpark is a directory before the installed one on the path, so that all else (the
interpreter, pyarrow, numpy) is the same for all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyspark

from benchmarks.cluster import SystemSkipped
from benchmarks.maven import Artifact, cache, fetch_jars

JAR_VERSION = "4.1.0"
FETCH_TIMEOUT_S = 900
IN_SPARK_ALREADY = (("org.scala-lang", "*"), ("org.apache.hadoop", "*"), ("org.slf4j", "*"))

# The one of 4.1.0 needs a token provider of its own version, which Maven's central repository does not have.
_SOURCE = Artifact(
    "org.apache.spark",
    "spark-sql-kafka-0-10_2.13",
    JAR_VERSION,
    (("org.apache.spark", "spark-token-provider-kafka-0-10_2.13"), *IN_SPARK_ALREADY),
)
_TOKEN_PROVIDER = Artifact(
    "org.apache.spark",
    "spark-token-provider-kafka-0-10_2.13",
    "4.0.0",
    (("org.apache.kafka", "*"), *IN_SPARK_ALREADY),
)


@dataclass(frozen=True)
class System:
    """A source and a sink on a Spark."""

    name: str
    title: str
    format: str
    pyspark: Path | None = None
    """A directory to find it in; None for the one that is installed."""
    jars: tuple[Path, ...] = ()

    @property
    def in_python(self) -> bool:
        return not self.jars

    def environment(self) -> dict[str, str]:
        path = [str(self.pyspark)] if self.pyspark else []
        return {"PYTHONPATH": os.pathsep.join([*path, *filter(None, [os.environ.get("PYTHONPATH")])])}


def newest() -> System:
    """Ours on the installed PySpark."""
    return System("kraft-newest", f"kraft, Spark {pyspark.__version__}", "kraft")


def beside_the_jar() -> list[System]:
    """Spark's own, and ours on the same Spark. Raises `SystemSkipped`."""
    jars, spark = spark_kafka_jars(), pyspark_of_the_jar()
    return [
        System("jar", f"Spark's own, Spark {JAR_VERSION}", "kafka", spark, jars),
        System("kraft", f"kraft, Spark {JAR_VERSION}", "kraft", spark),
    ]


def spark_kafka_jars() -> tuple[Path, ...]:
    """Raises `SystemSkipped`."""
    jars = fetch_jars(f"spark-kafka-{JAR_VERSION}", [_SOURCE, _TOKEN_PROVIDER])
    return tuple(sorted(jars.glob("*.jar")))


def pyspark_of_the_jar() -> Path:
    """Raises `SystemSkipped`."""
    target = cache() / f"pyspark-{JAR_VERSION}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    package = f"pyspark=={JAR_VERSION}"
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", package]
        try:
            done = subprocess.run(
                [*command, "--target", f"{scratch}/made"],
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise SystemSkipped(f"pip did not install {package} within {FETCH_TIMEOUT_S} s") from None
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
            raise SystemSkipped(f"pip could not install {package}: {lines[-1]}")
        shutil.move(f"{scratch}/made", target)
    return target
