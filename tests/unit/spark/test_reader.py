"""Reading ranges of a real cluster's partitions, as a task of a Spark query does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local_cluster import LocalCluster
from spark_connector.connections import close_clusters, cluster
from spark_connector.offsets import TopicPartition
from spark_connector.reader import read_range


@pytest.fixture(autouse=True)
def _closed_afterwards() -> Iterator[None]:
    yield
    close_clusters()


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    copies = len(admin.list_topics(timeout=30).brokers)
    wanted = NewTopic(topic, partitions, copies, config=config)
    admin.create_topics([wanted], request_timeout=30)[topic].result()


def produce(bootstrap: str, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.num.messages": 100})
    for value in values:
        producer.produce(topic, value, value[:3], partition, headers=[("n", value)])
    producer.flush()


def values_of(
    bootstrap: str, topic: str, start: int, end: int, partition: int = 0, **options: str
) -> list[tuple[int, bytes]]:
    properties = {"bootstrap.servers": bootstrap} | {
        key.replace("_", "."): each for key, each in options.items()
    }
    return [
        (row["offset"], row["value"])
        for batch in read_range(properties, topic, partition, start, end)
        for row in batch.to_pylist()
    ]


def numbered(count: int) -> list[bytes]:
    return [b"%05d" % number for number in range(count)]


def test_a_range(shared_cluster: LocalCluster) -> None:
    create_topic(shared_cluster.bootstrap, "ranges")
    produce(shared_cluster.bootstrap, "ranges", numbered(1_000))
    expected = list(enumerate(numbered(1_000)))
    assert values_of(shared_cluster.bootstrap, "ranges", 0, 1_000) == expected
    assert values_of(shared_cluster.bootstrap, "ranges", 333, 777) == expected[333:777]
    assert values_of(shared_cluster.bootstrap, "ranges", 5, 5) == []
    assert (
        values_of(shared_cluster.bootstrap, "ranges", 0, 1_000, max_partition_fetch_bytes="100") == expected
    )


def test_offsets_of_all_partitions(shared_cluster: LocalCluster) -> None:
    create_topic(shared_cluster.bootstrap, "bounds", partitions=4)
    produce(shared_cluster.bootstrap, "bounds", numbered(10), partition=2)
    source = cluster({"bootstrap.servers": shared_cluster.bootstrap})
    partitions = [TopicPartition("bounds", each) for each in range(4)]
    assert source.partitions_of(["bounds"]) == set(partitions)
    assert source.earliest(partitions) == dict.fromkeys(partitions, 0)
    assert source.latest(partitions) == {each: 10 if each.partition == 2 else 0 for each in partitions}
    assert source.at_times(dict.fromkeys(partitions, 0)) == {
        each: 0 if each.partition == 2 else -1 for each in partitions
    }
    assert "bounds" in source.topic_names()
