"""Job `transact`: transactions one after another, by so many stock producers at once.

Each producer is a thread (librdkafka releases the interpreter's lock while it waits) with a transactional id
of its own; a transaction is a few small records over the topic's partitions. A latency counts from
begin_transaction to the return of commit_transaction.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from benchmarks.percentiles import summary

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class TransactJob:
    bootstrap: str
    topic: str
    partitions: int
    producers: int
    messages: int
    value_bytes: int
    warm_up_s: float
    seconds: float


def transact(job: TransactJob) -> dict[str, Any]:
    """Commits a second and their latencies, over all producers, after the warm-up."""
    latencies: list[list[float]] = [[] for _ in range(job.producers)]
    failures: list[Exception] = []
    ready = threading.Barrier(job.producers)

    def work(number: int) -> None:
        try:
            producer = Producer(
                {
                    "bootstrap.servers": job.bootstrap,
                    "transactional.id": f"{job.topic}-{number}",
                    "linger.ms": 0,
                    "log_level": 0,
                }
            )
            producer.init_transactions(TIMEOUT_S)
            ready.wait(TIMEOUT_S)
            _transactions(job, producer, job.warm_up_s)
            latencies[number] = _transactions(job, producer, job.seconds)
        except Exception as error:  # noqa: BLE001 - reported in the job's result
            failures.append(error)
            ready.abort()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(job.producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    taken = [latency for each in latencies for latency in each]
    return {"rate": len(taken) / job.seconds, "latency_s": summary(taken)}


def _transactions(job: TransactJob, producer: Producer, seconds: float) -> list[float]:
    value = bytes(job.value_bytes)
    latencies = []
    ends = time.monotonic() + seconds
    while (started := time.monotonic()) < ends:
        producer.begin_transaction()
        for index in range(job.messages):
            producer.produce(job.topic, value, partition=index % job.partitions)
        producer.commit_transaction(TIMEOUT_S)
        latencies.append(time.monotonic() - started)
    return latencies
