"""A steady acks=all producer in a thread of its own, and the reckoning: was all that was acked kept?

with Load(bootstrap, topic, partitions) as load:
    ...                     # break things; `load.wait_for_acks()` waits until writes flow again
load.check(bootstrap)       # reads everything
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.clients.rdkafka import QUIET, consumer, poll
from tests.support.waiting import PATIENCE_S, wait_until

BURST = 40
"""Messages between two looks at the delivery reports."""
PACE_S = 0.08
"""Five hundred a second, in a dozen bursts, so that others can work beside it."""


class Load:
    """Values are numbers, each sent once, in order, round the partitions."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, idempotent: bool = True) -> None:
        self._topic = topic
        self._partitions = partitions
        self._idempotent = idempotent
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 1,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                **QUIET,
            }
        )
        self.acked: dict[tuple[int, int], bytes] = {}
        """Value by partition and offset."""
        self.failed: list[str] = []
        self._fresh = [0] * partitions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        self.wait_for_acks()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(PATIENCE_S)
        if kind is None:
            assert left == 0, f"{left} messages were never answered"

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            for _ in range(BURST):
                value = b"%d" % number
                self._producer.produce(
                    self._topic, value, partition=number % self._partitions, on_delivery=self._on_delivery
                )
                number += 1
            self._producer.poll(PACE_S)
            while len(self._producer) > 5_000 and not self._stopping.is_set():
                self._producer.poll(0.01)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        if error is not None:
            self.failed.append(str(error))
            return
        assert offset is not None
        assert value is not None
        # -1: a repeated batch so old that the broker knows only that it has it.
        if offset >= 0:
            self.acked[partition, offset] = value
        self._fresh[partition] += 1

    def wait_for_acks(self, each: int = 50) -> None:
        """Until every partition has acknowledged so many more."""
        before = list(self._fresh)
        wait_until(
            lambda: all(now - then >= each for now, then in zip(self._fresh, before, strict=True)),
            "every partition acknowledges writes",
        )

    def check(self, bootstrap: str, others: Collection[bytes] = ()) -> None:
        """Read all: what was acked is there, at its offset, in order, and (idempotent) only once.
        `others`: values that somebody else wrote."""
        read: dict[tuple[int, int], bytes] = {}
        with consumer(bootstrap) as reader:
            ends = [
                wait_until(
                    lambda n=number: self._covering_end(reader, n),  # type: ignore[misc]
                    "the high watermark covers what was acked",
                )
                for number in range(self._partitions)
            ]
            reader.assign([TopicPartition(self._topic, number, 0) for number in range(self._partitions)])
            for message in poll(reader, sum(ends)):
                if message.value() not in others:
                    read[message.partition(), message.offset()] = message.value()
        lost = {place: value for place, value in self.acked.items() if read.get(place) != value}
        assert not lost, (
            f"{len(lost)} of {len(self.acked)} acked records are gone, such as {next(iter(lost))}"
        )
        if self._idempotent:
            assert max(Counter(read.values()).values()) == 1, "a record was written twice"
            for number in range(self._partitions):
                values = [int(read[place]) for place in sorted(read) if place[0] == number]
                assert values == sorted(values), f"partition {number} is out of order"

    def _covering_end(self, reader: Consumer, number: int) -> int:
        """0 where it does not cover all yet, or its leader does not tell just now."""
        partition = TopicPartition(self._topic, number)
        try:
            end = int(reader.get_watermark_offsets(partition, timeout=60)[1])
        except KafkaException:
            return 0
        return end if end > self._last(number) else 0

    def _last(self, number: int) -> int:
        return max((offset for partition, offset in self.acked if partition == number), default=-1)
