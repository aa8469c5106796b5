"""Jobs `produce` and `consume`: as many bytes as go through, with one stock client.

Records are handed to librdkafka by the thousand and reported back only on error, because a Python call
per record would measure Python and not the broker.
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

BATCH_MESSAGES = 1000
QUEUE_BYTES = 64 << 20  # what may wait in the client: enough to keep every broker busy, small against a run
FLUSH_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class ProduceJob:
    bootstrap: str
    topic: str
    partitions: int
    acks: str
    value_bytes: int
    seconds: float
    max_bytes: int


@dataclass(frozen=True)
class ConsumeJob:
    bootstrap: str
    topic: str
    partitions: int
    messages: int
    timeout_s: float


def client_cpu_s() -> float:
    """User and system time of this process, librdkafka's threads included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def thread_s() -> tuple[float, float]:
    """This thread's seconds on a core, and in the queue for one (zero where the system does not say)."""
    try:
        run_ns, queued_ns, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except FileNotFoundError:
        return time.thread_time(), 0.0
    return int(run_ns) / 1e9, int(queued_ns) / 1e9


def produce(job: ProduceJob) -> dict[str, Any]:
    """Produce for `seconds` or `max_bytes`; the clock stops when the last record has been acknowledged."""
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "acks": job.acks,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.kbytes": 2 * QUEUE_BYTES >> 10,
            "queue.buffering.max.messages": 4 * QUEUE_BYTES // job.value_bytes,
            "delivery.report.only.error": True,
            "on_delivery": on_delivery,
            "log_level": 0,
        }
    )
    producer.list_topics(job.topic, timeout=30)
    # Random bytes: no compression may profit from a pattern.
    batch = [{"value": os.urandom(job.value_bytes)} for _ in range(BATCH_MESSAGES)]
    waiting_max = QUEUE_BYTES // job.value_bytes
    messages_max = job.max_bytes // job.value_bytes
    messages = 0
    cpu_before = client_cpu_s()
    started = time.monotonic()
    while messages < messages_max and time.monotonic() - started < job.seconds:
        if len(producer) > waiting_max:
            producer.poll(0.001)
            continue
        messages += producer.produce_batch(
            job.topic, batch, partition=messages // BATCH_MESSAGES % job.partitions
        )
    unacknowledged = producer.flush(FLUSH_TIMEOUT_S)
    seconds = time.monotonic() - started
    return {
        "messages": messages - unacknowledged - len(failures),
        "bytes": (messages - unacknowledged - len(failures)) * job.value_bytes,
        "seconds": seconds,
        "failed": unacknowledged + len(failures),
        "first_failure": failures[0] if failures else None,
        "client_cpu_s": client_cpu_s() - cpu_before,
    }


def consume(job: ConsumeJob) -> dict[str, Any]:
    """Read `messages` from the start of every partition.

    The clock starts with the first records: before it asks for any, librdkafka waits for half a second when
    it does not know the leaders at the assignment, whoever answers.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # A client whose queue is full leaves a partition alone for so long, a second by default: then
            # the faster a broker answers, the longer the client sleeps.
            "fetch.queue.backoff.ms": 10,
            "log_level": 0,
        }
    )
    consumer.list_topics(job.topic, timeout=30)
    deadline = time.monotonic() + job.timeout_s
    consumer.assign([TopicPartition(job.topic, p, OFFSET_BEGINNING) for p in range(job.partitions)])
    messages, size = 0, 0
    while messages == 0 and time.monotonic() < deadline:
        messages += sum(message.error() is None for message in consumer.consume(BATCH_MESSAGES, 0.01))
    cpu_before, (ran_before, queued_before) = client_cpu_s(), thread_s()
    started = time.monotonic()
    while messages < job.messages and time.monotonic() < deadline:
        # A short timeout: `consume` returns only when it is over or the batch is full.
        for message in consumer.consume(BATCH_MESSAGES, 0.01):
            if message.error() is None:
                messages += 1
                size += len(message)
    seconds = time.monotonic() - started
    cpu_s, (ran, queued) = client_cpu_s() - cpu_before, thread_s()
    consumer.close()
    ran_s = ran - ran_before
    return {
        "messages": messages,
        "bytes": size,
        "seconds": seconds,
        "failed": max(0, job.messages - messages),
        "client_cpu_s": cpu_s,
        # Of the thread that takes the records: all three are its whole time.
        "thread_ran_s": ran_s,
        "thread_waited_s": max(0.0, seconds - ran_s - (queued - queued_before)),
    }
