"""One Spark for all tests of a worker: starting a JVM costs more than most tests do.

With KRAFT_SPARK_TESTS_BOOTSTRAP=host:port,... the tests ask that cluster, whoever made it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from kraft.local.local_cluster import LocalCluster
from tests.spark.dying import DyingSource
from tests.spark.session import builder
from tests.spark.topics import BOOTSTRAP, LIMITED_STEPS, Topics


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if not LIMITED_STEPS:  # PySpark 4.1 leaves it to the garbage collector to close its sockets
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
        if BOOTSTRAP and "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip("needs nodes that can be killed"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    work = tmp_path_factory.mktemp("spark")
    made = builder().config("spark.local.dir", str(work)).config("spark.sql.warehouse.dir", str(work / "sql"))
    session = made.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    # "kraft" is not registered here: that pyspark_kraft is there has to be enough.
    session.dataSource.register(DyingSource)
    gateway = SparkContext._gateway
    assert gateway is not None
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with it
    gateway.proc.wait(180)


if BOOTSTRAP:

    @pytest.fixture(scope="session")
    def topics() -> Topics:
        return Topics(BOOTSTRAP)

else:

    @pytest.fixture(scope="session")
    def topics(shared_cluster: LocalCluster) -> Topics:
        """Its parameters say that it needs these nodes: else they end before it does (last_use.py)."""
        return Topics(shared_cluster.bootstrap)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
