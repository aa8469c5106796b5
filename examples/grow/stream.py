"""Flights through the cluster while it changes: an idempotent producer with acks=all, a consumer of a group.

Both in one thread; the main thread changes the nodes, and asks how long each had to wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer

from examples.flights.audit import Problems, ReadAudit
from examples.flights.data import Flight

TOPIC: Final = "flights"
PER_SECOND: Final = 1_000
_BURST: Final = 20
_DRAIN_S: Final = 120.0


@dataclass
class LongestWaits:
    """Seconds between two acknowledgements, and between two records that were read."""

    acknowledgement: float = 0.0
    record: float = 0.0


class FlightStream:
    """From `start` to `finish`."""

    def __init__(self, bootstrap: str, flights: Sequence[Flight]) -> None:
        self.problems = Problems()
        self.sent = self.acked = 0
        self.reads = ReadAudit(flights, self.problems)
        self._flights = flights
        common = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer = Producer({**common, "enable.idempotence": True, "acks": "all", "linger.ms": 5})
        self._consumer = Consumer({**common, "group.id": "watcher", "auto.offset.reset": "earliest"})
        self._waits = LongestWaits()
        self._acked_at = self._read_at = time.monotonic()
        self._finishing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flights", daemon=True)

    def start(self) -> None:
        self._consumer.subscribe([TOPIC])
        self._thread.start()

    def lap(self) -> LongestWaits:
        """Since the last call."""
        waits, self._waits = self._waits, LongestWaits()
        return waits

    def finish(self) -> None:
        """Send no more; until everything was acknowledged and read, or that takes too long."""
        self._finishing.set()
        self._thread.join()
        if self.acked != self.sent:
            self.problems.add(f"{self.sent - self.acked:,} of {self.sent:,} flights were not acknowledged")
        if self.reads.records != self.sent:
            self.problems.add(f"{self.reads.records:,} records were read of {self.sent:,} flights")

    def _run(self) -> None:
        began = time.monotonic()
        while not self._finishing.is_set() and self.sent < len(self._flights):
            if self.sent <= (time.monotonic() - began) * PER_SECOND:
                for flight in self._flights[self.sent : self.sent + _BURST]:
                    self._producer.produce(TOPIC, flight.value, flight.key, on_delivery=self._on_delivery)
                    self.sent += 1
            self._pump()
        deadline = time.monotonic() + _DRAIN_S
        while (self.acked < self.sent or self.reads.records < self.sent) and time.monotonic() < deadline:
            self._pump()
        self._consumer.close()

    def _pump(self) -> None:
        self._producer.poll(0)
        for message in self._consumer.consume(500, 0.01):
            if message.error() is None:
                value: Any = message.value()
                key: Any = message.key()
                self.reads.saw(message.partition() or 0, message.offset() or 0, key or b"", value or b"")
                now = time.monotonic()
                self._waits.record = max(self._waits.record, now - self._read_at)
                self._read_at = now

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.problems.add(f"not acknowledged: {error}")
            return
        self.acked += 1
        now = time.monotonic()
        self._waits.acknowledgement = max(self._waits.acknowledgement, now - self._acked_at)
        self._acked_at = now
