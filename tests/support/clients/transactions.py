"""librdkafka's transactions as tests use them: a producer, what it writes, what read_committed sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer, TopicPartition

from tests.support.clients.rdkafka import QUIET, consumer, dotted
from tests.support.waiting import PATIENCE_S


def transactional(bootstrap: str, name: str, **config: Any) -> Producer:
    """A producer with this transactional id, ready to begin."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, **QUIET}
    producer = Producer(settings | dotted(config))
    producer.init_transactions(PATIENCE_S)
    return producer


def write(producer: Producer, topic: str, values: Iterable[str], partitions: int = 1) -> None:
    """Send the values to the partitions in turn, and wait for their acknowledgement."""
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


def committed(bootstrap: str, topic: str, partitions: int = 1) -> list[str]:
    """All that read_committed sees now, up to the last stable offset."""
    found: list[str] = []
    with consumer(bootstrap, isolation_level="read_committed", enable_partition_eof=True) as reader:
        reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        ended = 0
        while ended < partitions:
            for message in reader.consume(100, 0.2):
                if message.error() is None:
                    found.append(message.value().decode())
                else:
                    ended += 1
    return sorted(found)
