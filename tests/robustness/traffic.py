"""A stock producer, and what the cluster says of its partitions."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from kraft.local.local_cluster import LocalCluster
from tests.support.waiting import PATIENCE_S, wait_until

QUIET: Final = {"log_level": 0}
VALUE: Final = bytes(range(256)) * 4


def produced(cluster: LocalCluster, topic: str, count: int, *, partitions: int = 1) -> int:
    """Send with acks=all, one record a batch, to the partitions in turn; how many were acknowledged."""
    acknowledged = 0

    def reported(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "acks": "all",
        "enable.idempotence": True,
        "batch.num.messages": 1,
        "delivery.timeout.ms": int(PATIENCE_S * 1000),
        **QUIET,
    }
    producer = Producer(settings)
    for number in range(count):
        producer.produce(topic, VALUE, partition=number % partitions, on_delivery=reported)
    assert producer.flush(PATIENCE_S) == 0
    return acknowledged


def leaders(cluster: LocalCluster, topic: str) -> dict[int, int]:
    """Partition -> leader."""
    found = _partitions(cluster, topic)
    return {number: each.leader for number, each in found.items()}


def isrs(cluster: LocalCluster, topic: str) -> dict[int, list[int]]:
    """Partition -> ISR."""
    found = _partitions(cluster, topic)
    return {number: each.isrs for number, each in found.items()}


def _partitions(cluster: LocalCluster, topic: str):  # type: ignore[no-untyped-def]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})

    def found():  # type: ignore[no-untyped-def]
        """Whoever is asked may not know of a new topic yet, or be the one that has just died."""
        try:
            return admin.list_topics(topic, timeout=60).topics[topic].partitions
        except KafkaException:
            return None

    return wait_until(found, f"{topic} is known")
