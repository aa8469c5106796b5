"""Reading ranges of a real cluster's partitions, as a task of a Spark query does."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from metadata_quorum.foundation.model import TopicPartition
from spark_connector.connections import close_clusters, cluster_client
from spark_connector.errors import DataLossError
from spark_connector.reader import FIRST_FETCH_BYTES, read_range
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def _closed_afterwards() -> Iterator[None]:
    yield
    close_clusters()


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    copies = len(admin.list_topics(timeout=60).brokers)
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


def test_the_first_answer_is_small_the_next_ones_are_not(shared_cluster: LocalCluster) -> None:
    create_topic(shared_cluster.bootstrap, "large")
    produce(shared_cluster.bootstrap, "large", [bytes(50_000)] * 60)
    properties = {"bootstrap.servers": shared_cluster.bootstrap}
    sizes = [batch.nbytes for batch in read_range(properties, "large", 0, 0, 60)]
    assert len(sizes) == 2
    assert sizes[0] <= FIRST_FETCH_BYTES < sizes[1]


def test_offsets_of_all_partitions(shared_cluster: LocalCluster) -> None:
    create_topic(shared_cluster.bootstrap, "bounds", partitions=4)
    produce(shared_cluster.bootstrap, "bounds", numbered(10), partition=2)
    source = cluster_client({"bootstrap.servers": shared_cluster.bootstrap})
    partitions = [TopicPartition("bounds", each) for each in range(4)]
    assert source.partitions_of(["bounds"]) == set(partitions)
    assert source.earliest(partitions) == dict.fromkeys(partitions, 0)
    assert source.latest(partitions) == {each: 10 if each.partition == 2 else 0 for each in partitions}
    assert source.at_times(dict.fromkeys(partitions, 0)) == {
        each: 0 if each.partition == 2 else -1 for each in partitions
    }
    assert "bounds" in source.topic_names()


def test_deleted_records(shared_cluster: LocalCluster) -> None:
    create_topic(shared_cluster.bootstrap, "shortened")
    produce(shared_cluster.bootstrap, "shortened", numbered(300))
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap})
    cut = KafkaPartition("shortened", 0, 120)
    admin.delete_records([cut])[cut].result(60)
    with pytest.raises(DataLossError, match=r"\[0, 120\) of shortened-0: the log begins at 120"):
        values_of(shared_cluster.bootstrap, "shortened", 0, 300)
    properties = {"bootstrap.servers": shared_cluster.bootstrap}
    batches = read_range(properties, "shortened", 0, 0, 300, fail_on_data_loss=False)
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(120, 300))


def test_what_small_ranges_fetch(shared_cluster: LocalCluster) -> None:
    """Twenty, of a hundred records each, that lie in one batch of the log: the batch, and that once."""
    create_topic(shared_cluster.bootstrap, "in-pieces")
    producer = Producer({"bootstrap.servers": shared_cluster.bootstrap, "linger.ms": 1_000})
    for value in numbered(3_000):
        producer.produce("in-pieces", value * 20)
    assert producer.flush(30) == 0
    properties = {"bootstrap.servers": shared_cluster.bootstrap}
    partition = TopicPartition("in-pieces", 0)
    source = cluster_client(properties)
    source.leader_of(partition, refresh=True)
    leader = source.known_leader(partition)
    read = [
        offset
        for start in range(0, 2_000, 100)
        for batch in read_range(properties, *partition, start, start + 100, leader=leader)
        for offset in batch["offset"].to_pylist()
    ]
    assert read == list(range(2_000))
    assert 0 < bytes_out(shared_cluster, "in-pieces") < 2 * 3_000 * 120


def _page(url: str) -> str:
    with urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def bytes_out(cluster: LocalCluster, topic: str) -> float:
    """What consumers of a topic were sent, as the nodes' metrics have it."""
    pages = [_page(f"http://{HOST}:{node.http_port}/metrics") for node in cluster.nodes.values()]
    return sum(
        sample.value
        for page in pages
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "kafka_server_brokertopicmetrics_bytesout_total"
        and sample.labels.get("topic") == topic
    )


@pytest.mark.row("S5")
def test_leaders_go_in_the_middle(cluster: LocalCluster) -> None:
    """One is killed, the next shuts down."""
    count = 5_000
    create_topic(cluster.bootstrap, "survivor")
    produce(cluster.bootstrap, "survivor", numbered(count))
    properties = {"bootstrap.servers": cluster.bootstrap, "max.partition.fetch.bytes": "4000"}
    strikes = [cluster.stop, cluster.kill]
    read: list[tuple[int, bytes]] = []
    for batch in read_range(properties, "survivor", 0, 0, count):
        read += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
        if strikes and len(read) > (3 - len(strikes)) * count // 3:
            leader = leader_of(cluster.bootstrap, "survivor")
            strikes.pop()(leader)
            cluster.start_node(leader)
    assert read == list(enumerate(numbered(count)))
    assert not strikes


def leader_of(bootstrap: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def leader() -> int:
        """While one is elected there is none."""
        found = admin.list_topics(topic, timeout=60).topics[topic].partitions.get(0)
        return found.leader if found is not None and found.leader > 0 else 0

    return wait_until(leader, f"{topic} has a leader")
