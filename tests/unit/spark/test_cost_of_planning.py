"""What a query costs before its first row: requests of planning, and what is imported for it.

Spark starts a Python for every question about a source, so that each import is paid for at every query.
"""

from __future__ import annotations

import gc
import subprocess
import sys

from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.garbage import collection_paused
from spark_connector.connections import close_clusters
from spark_connector.source import KraftDataSource, ReadTask, source_schema
from tests.unit.spark.scripted_broker import TOPIC, scripted_broker


def test_a_batch_query_is_planned_over_one_connection_in_three_requests() -> None:
    with scripted_broker() as broker:
        broker.partition.batches = [encode_batch([Record(0, 1_000, None, b"value")])]
        source = KraftDataSource({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": TOPIC})
        try:
            (task,) = source.reader(source_schema(include_headers=False)).partitions()
        finally:
            close_clusters()
    assert isinstance(task, ReadTask)
    assert task.leader is not None, "or the task would ask for it"
    begins_and_ends = [ApiKey.LIST_OFFSETS, ApiKey.LIST_OFFSETS]
    assert broker.questions == [ApiKey.API_VERSIONS, ApiKey.METADATA, *begins_and_ends]
    assert broker.fetches == []


def test_planning_imports_nothing_large_that_spark_has_not_imported() -> None:
    program = """
import sys
import pyspark.sql.worker.plan_data_source_read
before = set(sys.modules)
import pyspark_kraft, spark_connector.connections
large = {"pyarrow", "numpy", "confluent_kafka", "hypothesis", "argparse", "importlib.metadata", "email"}
print(*(large & (set(sys.modules) - before)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.split() == []


def test_the_collector_rests_and_is_left_as_it_was() -> None:
    with collection_paused():
        assert not gc.isenabled()
        with collection_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
