"""Job `probe`: a steady trickle of acks=all writes to every partition, to see how long they stop.

Once every partition has acknowledged something, the probe writes a line to standard output. Then the
bench kills a node and writes the time (seconds of the monotonic clock) as one line to this
process's standard input. The probe continues until every partition has acknowledged a message that was due
at least a second after that time, and returns the times of the acknowledgements.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.client.standard_input import line_from_stdin
from benchmarks.open_loop import OpenLoop

DUE = struct.Struct(">d")
SETTLED_S = 1.0
STEADY_ACKS = 20


@dataclass(frozen=True)
class ProbeJob:
    bootstrap: str
    topic: str
    partitions: int
    rate: int
    timeout_s: float


def probe(job: ProbeJob) -> dict[str, Any]:
    """Send until the writes have recovered from the kill, or until `timeout_s`."""
    acked_at: dict[int, list[float]] = {partition: [] for partition in range(job.partitions)}
    last_due: dict[int, float] = dict.fromkeys(range(job.partitions), 0.0)
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        partition = message.partition() or 0
        if error is not None:
            failures.append(str(error))
            return
        acked_at[partition].append(time.monotonic())
        last_due[partition] = max(last_due[partition], DUE.unpack(message.value() or b"")[0])

    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "on_delivery": on_delivery,
            "log_level": 0,
        }
    )
    producer.list_topics(job.topic, timeout=30)
    killed = line_from_stdin()
    killed_at: float | None = None
    steady = False
    loop = OpenLoop(start=time.monotonic(), rate=job.rate, count=int(job.rate * job.timeout_s))
    while not loop.finished:
        for index in loop.take_due(time.monotonic()):
            value = DUE.pack(loop.due_at(index))
            producer.produce(job.topic, value, partition=index % job.partitions)
        producer.poll(0.001)
        if not steady and all(len(times) >= STEADY_ACKS for times in acked_at.values()):
            steady = True
            print("steady", flush=True)
        if killed_at is None and not killed.empty():
            killed_at = float(killed.get())
        if killed_at is not None and min(last_due.values()) > killed_at + SETTLED_S:
            break
    left = producer.flush(10)
    return {
        "acked_at": {str(partition): times for partition, times in acked_at.items()},
        "killed_at": killed_at,
        "recovered": killed_at is not None and min(last_due.values()) > killed_at + SETTLED_S,
        "failed": len(failures) + left,
        "first_failure": failures[0] if failures else None,
    }
