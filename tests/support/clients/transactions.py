"""librdkafka's transactions as tests use them: a producer, what it writes, what read_committed sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import KafkaError, Producer, TopicPartition

from tests.support.clients.rdkafka import QUIET, consumer, dotted
from tests.support.waiting import PATIENCE_S, wait_until

LONGEST_MS: Final = 900_000
"""As long as brokers allow: however busy the machine is, a transaction ends when its test says so."""


def transactional(bootstrap: str, name: str, **config: Any) -> Producer:
    """A producer with this transactional id, ready to begin."""
    settings = {
        "bootstrap.servers": bootstrap,
        "transactional.id": name,
        "transaction.timeout.ms": LONGEST_MS,
        **QUIET,
    }
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
    ended: set[int] = set()
    with consumer(bootstrap, isolation_level="read_committed", enable_partition_eof=True) as reader:
        reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

        def read_on() -> bool:
            for message in reader.consume(100, 0.2):
                error = message.error()
                if error is None:
                    found.append(message.value().decode())
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
            return len(ended) == partitions

        wait_until(read_on, f"{topic} is read to its end")
    return sorted(found)
