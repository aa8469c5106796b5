"""Jobs `send` and `receive`: single-message requests at a fixed rate, and how long each took.

`send` produces with linger 0 and one message per request, and measures from the time at which a message
was due to its acknowledgement. Each value starts with that time, so `receive`, in a process of its own,
measures to its arrival at a consumer: on one machine CLOCK_MONOTONIC is the same in every process.

    value: phase u32 | due u64 (nanoseconds of the monotonic clock) | filling

Every rate has a producer of its own: where a broker fell behind, its backlog ends with the
connection and does not affect the next rate.
"""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from benchmarks.client.standard_input import line_from_stdin
from benchmarks.client.throughput import client_cpu_s
from benchmarks.open_loop import OpenLoop
from benchmarks.percentiles import summary

STAMP = struct.Struct(">IQ")
WARM_UP_RATE = 200
SPIN_S = 0.002  # closer to a due time than this, sleep in small steps instead of a whole poll
STEP_S = 0.0001
DRAIN_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class SendJob:
    bootstrap: str
    topic: str
    partitions: int
    rates: list[int]
    seconds: float
    warm_up_s: float
    value_bytes: int


@dataclass(frozen=True)
class ReceiveJob:
    bootstrap: str
    topic: str
    partitions: int
    timeout_s: float


class _Phase:
    """One producer at one rate, and its delivery reports."""

    def __init__(self, job: SendJob, number: int, rate: int, seconds: float) -> None:
        self._job = job
        self._number = number
        self._rate = rate
        self._count = int(rate * seconds)
        self._filling = bytes(max(0, job.value_bytes - STAMP.size))
        self._latencies_s: list[float] = []
        self._failed = 0
        self._producer = Producer(
            {
                "bootstrap.servers": job.bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "batch.num.messages": 1,
                "queue.buffering.max.messages": 1_000_000,
                "on_delivery": self._on_delivery,
                "log_level": 0,
            }
        )

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        _, due_ns = STAMP.unpack_from(message.value() or b"")
        if error is not None:
            self._failed += 1
        elif due_ns:
            self._latencies_s.append(time.monotonic() - due_ns / 1e9)

    def run(self) -> dict[str, Any]:
        self._connect()
        loop = OpenLoop(start=time.monotonic() + 0.05, rate=self._rate, count=self._count)
        cpu_before = client_cpu_s()
        while not loop.finished:
            for index in loop.take_due(time.monotonic()):
                self._send(loop.due_at(index), index % self._job.partitions)
            self._wait(loop.wait_s(time.monotonic()))
        cpu_s = client_cpu_s() - cpu_before
        self._drain(DRAIN_TIMEOUT_S)
        return self._result(loop, cpu_s)

    def _connect(self) -> None:
        """Connections and metadata first: one message to every partition, not counted (due at 0)."""
        for partition in range(self._job.partitions):
            self._send(0.0, partition)
        self._drain(30.0)

    def _drain(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while len(self._producer) and time.monotonic() < deadline:
            self._producer.poll(0.01)

    def _send(self, due_at: float, partition: int) -> None:
        value = STAMP.pack(self._number, int(due_at * 1e9)) + self._filling
        self._producer.produce(self._job.topic, value, partition=partition)

    def _wait(self, wait_s: float) -> None:
        # poll() has a resolution of 1 ms, so the last stretch is slept in steps that serve reports between.
        if wait_s > SPIN_S:
            self._producer.poll(wait_s - SPIN_S / 2)
        else:
            self._producer.poll(0)
            time.sleep(min(wait_s, STEP_S))

    def _result(self, loop: OpenLoop, cpu_s: float) -> dict[str, Any]:
        unfinished = loop.count - len(self._latencies_s) - self._failed
        failed = self._failed
        if unfinished:
            # They took at least until now; leaving them out would flatter a broker that fell behind.
            now = time.monotonic()
            waited = [now - loop.due_at(loop.count - 1 - i) for i in range(unfinished)]
            self._latencies_s.extend(waited)
            self._producer.purge()
        latency = summary(self._latencies_s) if self._latencies_s else None
        return {
            "rate": self._rate,
            "latency_s": latency,
            "count": loop.count,
            "failed": failed,
            "unfinished": unfinished,
            "client_cpu_s": cpu_s,
        }


def send(job: SendJob) -> dict[str, Any]:
    """A warm-up phase (number 0), then one phase per rate; a result for each rate."""
    _Phase(job, 0, WARM_UP_RATE, job.warm_up_s).run()
    phases = [_Phase(job, number, rate, job.seconds).run() for number, rate in enumerate(job.rates, start=1)]
    return {"phases": phases}


def receive(job: ReceiveJob) -> dict[str, Any]:
    """Read from the start of the (new) topic until a line on standard input: the sender has ended."""
    consumer = Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.list_topics(job.topic, timeout=30)
    consumer.assign([TopicPartition(job.topic, p, OFFSET_BEGINNING) for p in range(job.partitions)])
    latencies_s: dict[int, list[float]] = defaultdict(list)
    stop = line_from_stdin()
    deadline = time.monotonic() + job.timeout_s
    while stop.empty() and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        phase, due_ns = STAMP.unpack_from(message.value() or b"")
        if due_ns:
            latencies_s[phase].append(time.monotonic() - due_ns / 1e9)
    consumer.close()
    phases = {str(phase): summary(values) for phase, values in latencies_s.items()}
    counts = {str(phase): len(values) for phase, values in latencies_s.items()}
    return {"latency_s": phases, "counts": counts}
