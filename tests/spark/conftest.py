"""One Spark for all tests of a worker: starting a JVM costs more than most tests do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from kraft.local_cluster import LocalCluster
from spark_connector import register
from spark_connector.java import java_environment
from tests.spark.topics import Topics

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "640m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # it lives for a minute
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",  # compiling a plan takes longer than running it once
}


@pytest.fixture(scope="session")
def spark_environment() -> dict[str, str]:
    """What a Spark process needs: this Python, some Java, and the loopback."""
    return {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **java_environment()}


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, spark_environment: dict[str, str]
) -> Iterator[SparkSession]:
    os.environ.update(spark_environment)
    work = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("kraft")
    builder = builder.config("spark.local.dir", str(work)).config(
        "spark.sql.warehouse.dir", str(work / "sql")
    )
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    register(session)
    gateway = SparkContext._gateway
    assert gateway is not None
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with it
    gateway.proc.wait(60)


@pytest.fixture(scope="session")
def topics(shared_cluster: LocalCluster) -> Topics:
    return Topics(shared_cluster.bootstrap)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
