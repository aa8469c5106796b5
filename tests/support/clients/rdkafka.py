"""librdkafka as tests use it: send and have the reports, read and have the messages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.support.waiting import PATIENCE_S

QUIET: dict[str, Any] = {"log_level": 0}
POLL_S = 0.2


def send(bootstrap: str, topic: str, messages: Iterable[dict[str, Any]], **config: Any) -> list[Message]:
    """Produce them (each a dict of `Producer.produce`'s arguments); their reports, all of them good."""
    reports: list[Message] = []
    errors: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            reports.append(message)
        else:
            errors.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, **QUIET, **dotted(config)})
    for message in messages:
        producer.produce(topic, on_delivery=on_delivery, **message)
    assert producer.flush(PATIENCE_S) == 0
    if errors:
        raise KafkaException(errors[0])
    return reports


@contextmanager
def consumer(bootstrap: str, **config: Any) -> Iterator[Consumer]:
    """A consumer that leaves at the end; without a group of its own it is in nobody's way."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False, **QUIET}
    consumer = Consumer(settings | dotted(config))
    try:
        yield consumer
    finally:
        consumer.close()


def read(
    bootstrap: str,
    topic: str,
    messages: int,
    *,
    partition: int = 0,
    offset: int = 0,
    **config: Any,
) -> list[Message]:
    """So many messages of one partition, from an offset on."""
    with consumer(bootstrap, **config) as reader:
        reader.assign([TopicPartition(topic, partition, offset)])
        return poll(reader, messages)


def poll(reader: Consumer, messages: int) -> list[Message]:
    """So many messages, from wherever the consumer stands."""
    found: list[Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < messages:
        assert time.monotonic() < deadline, f"{len(found)} of {messages} messages were read"
        for message in reader.consume(messages - len(found), POLL_S):
            if message.error():
                raise KafkaException(message.error())
            found.append(message)
    return found


def dotted(config: dict[str, Any]) -> dict[str, Any]:
    """`enable_idempotence=True` as librdkafka names it."""
    return {name.replace("_", "."): value for name, value in config.items()}


def shares(members: list[Consumer]) -> list[list[int]]:
    """What each member has now; polled once, so that rebalances go on."""
    for each in members:
        each.poll(0.05)
    return [sorted(place.partition for place in each.assignment()) for each in members]


def even(members: list[Consumer], partitions: int) -> bool:
    """Whether each partition has one owner, and nobody has two more than another."""
    found = shares(members)
    sizes = sorted(len(share) for share in found)
    return (
        sorted(number for share in found for number in share) == list(range(partitions))
        and sizes[-1] - sizes[0] <= 1
    )
