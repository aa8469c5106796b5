"""The topics that are read: filled once for all rounds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.admin import Admin

PARTITIONS = 4
FLUSH_TIMEOUT_S = 120.0
AT_ONCE = 1000
WAITING_BYTES = 64 << 20  # in the client
WAITING_MESSAGES = 400_000
KEY_BYTES = 16
PLAIN = b"0123456789abcdef"


@dataclass(frozen=True)
class TopicShape:
    """What a topic holds."""

    name: str
    title: str
    value_bytes: int
    with_keys: bool = False
    codec: str = "none"
    batch_bytes: int = 1_000_000
    """At most; a million is librdkafka's default."""


SMALL = TopicShape("100", "100 B", 100)
SMALL_BATCHES = TopicShape("100-small-batches", "100 B, batches of 16 KiB", 100, batch_bytes=16_384)
LARGE = TopicShape("1k", "1 KiB", 1024)
LZ4 = TopicShape("lz4", "100 B, keys, lz4", 100, with_keys=True, codec="lz4")
ZSTD = TopicShape("zstd", "100 B, keys, zstd", 100, with_keys=True, codec="zstd")
SHAPES = (SMALL, SMALL_BATCHES, LARGE, LZ4, ZSTD)


@dataclass(frozen=True)
class Filled:
    """A topic with its records."""

    topic: str
    rows: int
    bytes: int
    """Of keys and values."""


def fill(bootstrap: str, shape: TopicShape, rows: int) -> Filled:
    """A new topic with that many records, spread evenly."""
    admin = Admin(bootstrap)
    topic = f"bench-{shape.name}"
    admin.create_topic(topic, PARTITIONS)
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 20,
            "batch.size": shape.batch_bytes,
            "compression.type": shape.codec,
            "queue.buffering.max.messages": 2 * WAITING_MESSAGES,
            "queue.buffering.max.kbytes": 2 * WAITING_BYTES >> 10,
            "delivery.report.only.error": True,
            "on_delivery": on_delivery,
            "log_level": 0,
        }
    )
    each_bytes = shape.value_bytes + (KEY_BYTES if shape.with_keys else 0)
    sent = 0
    for number, messages in enumerate(_messages(shape, rows)):
        while len(producer) * each_bytes > WAITING_BYTES or len(producer) > WAITING_MESSAGES:
            producer.poll(0.001)
        sent += producer.produce_batch(topic, messages, partition=number % PARTITIONS)
    if producer.flush(FLUSH_TIMEOUT_S) or failures or sent != rows:
        raise RuntimeError(f"{topic} could not be filled: {', '.join(failures[:1])}")
    return Filled(topic, rows, rows * each_bytes)


def _messages(shape: TopicShape, rows: int) -> Iterator[list[dict[str, bytes]]]:
    """A thousand at a time; others each time where a codec might find that they repeat."""
    rng = random.Random(1)
    messages = _thousand(rng, shape)
    for first in range(0, rows, AT_ONCE):
        if shape.codec != "none":
            messages = _thousand(rng, shape)
        yield messages[: rows - first]


def _thousand(rng: random.Random, shape: TopicShape) -> list[dict[str, bytes]]:
    """Random bytes; half of each value repeats where a codec is to find something."""
    plain = PLAIN * (shape.value_bytes // 2 // len(PLAIN)) if shape.codec != "none" else b""
    values = (plain + rng.randbytes(shape.value_bytes - len(plain)) for _ in range(AT_ONCE))
    if not shape.with_keys:
        return [{"value": value} for value in values]
    return [{"key": rng.randbytes(KEY_BYTES), "value": value} for value in values]
