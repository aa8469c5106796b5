"""What a query costs before its first row: requests of planning, and what is imported for it.

Spark starts a Python for every question about a source, so that each import is paid for at every query.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from types import SimpleNamespace

import pytest

from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.garbage import collection_paused
from metadata_quorum.foundation.model import ZERO_UUID, TopicPartition
from spark_connector.connections import close_clusters, cluster_client
from spark_connector.offsets import ranges_between
from spark_connector.source import KraftDataSource, ReadTask, source_schema
from tests.support.cpu_time import cpu_s
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


MANY_PARTITIONS = 20_000
CPU_S = 1.0
"""Some ten times what it takes; with work for each partition that grows with their number, it is some three
times as much."""


def test_very_many_partitions_are_planned_at_once() -> None:
    partitions = [TopicPartition(f"t{each // 4}", each % 4) for each in range(MANY_PARTITIONS)]
    start, end = dict.fromkeys(partitions, 0), dict.fromkeys(partitions, 5)

    def plan() -> None:
        ranges = ranges_between(start, end, cluster_client({"bootstrap.servers": "a:1"}), report=print)
        assert len(ranges) == MANY_PARTITIONS

    assert cpu_s(plan) < CPU_S
    close_clusters()


def test_very_many_topics_are_listed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second, while a stream waits for records."""
    rows = [SimpleNamespace(partition_index=each, leader_id=0, leader_epoch=1) for each in range(2)]
    topics = [
        SimpleNamespace(name=f"t{each}", error_code=0, topic_id=ZERO_UUID, partitions=rows)
        for each in range(MANY_PARTITIONS // 2)
    ]
    cluster = cluster_client({"bootstrap.servers": "a:1"})

    async def answer(*_: object) -> SimpleNamespace:
        return SimpleNamespace(brokers=[], topics=topics)

    monkeypatch.setattr(cluster, "ask_any_broker", answer)

    def ask() -> None:
        assert len(cluster.partitions_of([topic.name for topic in topics])) == MANY_PARTITIONS

    assert cpu_s(ask) < CPU_S
    close_clusters()


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
