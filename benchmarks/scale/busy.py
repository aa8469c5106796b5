"""A busy topic beside everything else that a scale run does: acks=all writes at a fixed rate.

Its three partitions are led by the three nodes in turn, so whatever holds up one node's loop is seen here. A
latency counts from when its message was due (benchmarks/open_loop.py).
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.open_loop import OpenLoop
from benchmarks.percentiles import percentile

TOPIC = "busy"
PARTITIONS = 3
RATE = 200
_DUE = struct.Struct(">d")
_VALUE_BYTES = 100
_MOST_S = 3600
_FLUSH_S = 10.0


class Ack(NamedTuple):
    """Of one message."""

    due: float
    acked_at: float
    partition: int


class Acks(NamedTuple):
    """Of the messages that were due within a step."""

    p99_s: float
    longest_gap_s: float
    """Between two acknowledgements of one partition."""
    failed: int


class BusyTopic:
    """A context manager; it writes in a thread from its start to its end."""

    def __init__(self, bootstrap: str) -> None:
        self._acked: list[Ack] = []
        self._failed: list[float] = []
        self._ended = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "batch.num.messages": 1,
                "enable.idempotence": True,
                "on_delivery": self._on_delivery,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="busy topic")

    def __enter__(self) -> BusyTopic:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.flush(_FLUSH_S)

    def _run(self) -> None:
        loop = OpenLoop(start=time.monotonic(), rate=RATE, count=RATE * _MOST_S)
        filling = bytes(_VALUE_BYTES - _DUE.size)
        while not self._ended.is_set():
            for index in loop.take_due(time.monotonic()):
                value = _DUE.pack(loop.due_at(index)) + filling
                self._producer.produce(TOPIC, value, partition=index % PARTITIONS)
            self._producer.poll(0.001)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        (due,) = _DUE.unpack_from(message.value() or b"")
        if error is None:
            self._acked.append(Ack(due, time.monotonic(), message.partition() or 0))
        else:
            self._failed.append(due)

    def between(self, start: float, end: float) -> Acks:
        """Of the messages that were due then; times of `time.monotonic()`. Some may still be unanswered."""
        return acks_between(list(self._acked), list(self._failed), start, end)


def acks_between(every: Sequence[Ack], failed: Sequence[float], start: float, end: float) -> Acks:
    """See `BusyTopic.between`. Where nothing was acknowledged, it took as long as the step."""
    acked = [each for each in every if start <= each.due < end]
    failures = sum(start <= due < end for due in failed)
    if not acked:
        return Acks(end - start, end - start, failures)
    gap_s = 0.0
    for partition in range(PARTITIONS):
        times = sorted(each.acked_at for each in acked if each.partition == partition)
        gap_s = max(gap_s, *(b - a for a, b in pairwise([start, *times, max([end, *times])])))
    latencies_s = sorted(each.acked_at - each.due for each in acked)
    return Acks(percentile(latencies_s, 0.99), gap_s, failures)
