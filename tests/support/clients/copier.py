"""Consume, transform, produce, each batch in a transaction: an application to be killed at any moment.

python -m tests.support.clients.copier BOOTSTRAP SOURCE SINK NAME
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.clients.transactions import LONGEST_MS
from tests.support.waiting import PATIENCE_S

BATCH: Final = 5


def insist(step: Callable[[], object]) -> None:
    """Until it is done, or surely is not."""
    while True:
        try:
            step()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def rewind(reader: Consumer) -> None:
    """Back to what is committed."""
    for place in reader.committed(reader.assignment(), timeout=PATIENCE_S):
        reader.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))


def copy(bootstrap: str, source: str, sink: str, name: str) -> None:
    common = {"bootstrap.servers": bootstrap, "log_level": 0}
    reader = Consumer(
        common
        | {
            "group.id": name,
            "group.instance.id": name,  # a successor need not wait for the session of the dead to end
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer = Producer(common | {"transactional.id": name, "transaction.timeout.ms": LONGEST_MS})
    producer.init_transactions(PATIENCE_S)
    reader.subscribe([source])
    while True:
        batch = [message for message in reader.consume(BATCH, 0.2) if message.error() is None]
        if not batch:
            continue
        producer.begin_transaction()
        try:
            for message in batch:
                producer.produce(sink, message.value())
            positions = reader.position(reader.assignment())
            member = reader.consumer_group_metadata()
            insist(lambda: producer.send_offsets_to_transaction(positions, member, PATIENCE_S))  # noqa: B023
            insist(lambda: producer.commit_transaction(PATIENCE_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            insist(lambda: producer.abort_transaction(PATIENCE_S))
            rewind(reader)


if __name__ == "__main__":
    copy(*sys.argv[1:])
