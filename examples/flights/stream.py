"""The stream: one loop that produces, consumes, and kills and restarts a node meanwhile.

Everything of the clients happens in this one loop, so there is nothing to lock; only isr.py polls beside it.
The loop also polls the Spark query, and does not get far ahead of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from examples.flights.audit import AckAudit, DelayMeans, Problems, ReadAudit
from examples.flights.data import Flight
from examples.flights.isr import IsrWatch, State, read_state
from examples.flights.plan import DELAYS, FLIGHTS, LEAD
from kraft.local.local_cluster import LocalCluster

PARTITIONS = 6
REPLICAS = 3
MIN_ISR = 2
GROUP = "flights-reader"
PUMP_EVERY = 200  # records handed to the producer between two looks at the answers
READ_MAX = 2000
QUIET = 0  # librdkafka's log: it would report the connections to the killed node
READY_TIMEOUT_S = 60.0
DRAIN_TIMEOUT_S = 120.0
ISR_TIMEOUT_S = 60.0
LEAD_S = LEAD.total_seconds()


class StreamScreen(Protocol):
    """Where progress is shown."""

    def progress(self, **done: int) -> None: ...

    def tell(self, text: str) -> None: ...

    def mark(self, name: str) -> None: ...


class TopicReader(Protocol):
    """Who reads along."""

    def look(self) -> None: ...

    def may_send(self, number: int) -> bool:
        """Whether it has come far enough for this flight to be sent."""
        ...


class NoReader:
    """Nobody does."""

    def look(self) -> None:
        pass

    def may_send(self, number: int) -> bool:
        return True


class StreamFailed(Exception):
    """The run could not complete; the message says why."""


@dataclass(frozen=True)
class StreamOutcome:
    """What the run came to; screen.py prints it."""

    sent: int
    bytes_sent: int
    seconds: float
    """Without those in which everything was acknowledged and the reader waited for."""
    waited_s: float
    victim: int
    killed_at: int
    """Flights acknowledged by then."""
    led_by_victim: tuple[int, ...]
    isr_full: bool
    events_from: float


def create_topics(bootstrap: str) -> State:
    """Create both topics, wait until every partition of the flights has a leader and three replicas in
    sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": QUIET})
    config = {"min.insync.replicas": str(MIN_ISR)}
    new = [
        NewTopic(topic, num_partitions=PARTITIONS, replication_factor=REPLICAS, config=config)
        for topic in (FLIGHTS, DELAYS)
    ]
    deadline = time.monotonic() + READY_TIMEOUT_S
    created, hindrance = False, "no node answered"
    while time.monotonic() < deadline:
        if not created:
            try:
                while new:
                    admin.create_topics(new[-1:])[new[-1].topic].result()
                    new.pop()
            except KafkaException as error:
                # Fewer than three nodes are registered yet, or an earlier answer got lost.
                hindrance = str(error.args[0])
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    new.pop()
                else:
                    time.sleep(0.2)
                continue
            created, hindrance = True, "not every replica came into the ISR"
        state = read_state(admin, FLIGHTS, timeout_s=5.0)
        if state and len(state) == PARTITIONS and all(len(p.isr) == REPLICAS for p in state.values()):
            return state
        time.sleep(0.05)
    raise StreamFailed(f"the topic was not ready on three nodes in {READY_TIMEOUT_S:.0f} s: {hindrance}")


def busiest_leader(state: State) -> int:
    """The node that leads most partitions; the lowest of equals."""
    led = Counter(p.leader for p in state.values())
    return min(led, key=lambda node: (-led[node], node))


class Stream:
    """One run over all flights."""

    def __init__(
        self,
        cluster: LocalCluster,
        flights: Sequence[Flight],
        watch: IsrWatch,
        screen: StreamScreen,
        reader: TopicReader,
    ) -> None:
        self._cluster = cluster
        self._flights = flights
        self._watch = watch
        self._screen = screen
        self._reader = reader
        self._sent = 0
        self._waited_s = 0.0
        self._is_acked = bytearray(len(flights))
        self._oldest_unacked = 0
        self._victim: int | None = None
        self._killed_at = 0
        self._restarted = False
        self._assigned = False
        self._led_by_victim: tuple[int, ...] = ()
        self.problems = Problems()
        self.acks = AckAudit(self.problems)
        self.reads = ReadAudit(flights, self.problems)
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "log_level": QUIET,
            }
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "log_level": QUIET,
            }
        )

    def run(self, delays: DelayMeans) -> StreamOutcome:
        """Stream everything, wait for the last acknowledgement and record, then for the full ISR."""
        self._delays = delays
        self._consumer.subscribe([FLIGHTS], on_assign=self._on_assign)
        self._wait_for_assignment()
        started, started_flow = time.monotonic(), self._flow_time()
        for number, flight in enumerate(self._flights):
            self._wait_for_turn(number, flight)
            self._send(number, flight)
            if number % PUMP_EVERY == 0:
                self._pump()
        self._drain()
        seconds = self._flow_time() - started_flow
        isr_full = self._wait_for_full_isr()
        self._check_end()
        return StreamOutcome(
            sent=self._sent,
            bytes_sent=sum(len(flight.key) + len(flight.value) for flight in self._flights),
            seconds=seconds,
            waited_s=self._waited_s,
            victim=-1 if self._victim is None else self._victim,
            killed_at=self._killed_at,
            led_by_victim=self._led_by_victim,
            isr_full=isr_full,
            events_from=started,
        )

    def close(self) -> None:
        self._producer.purge()
        self._consumer.close()

    def send_marker(self, marker: Flight) -> None:
        """One more record, which is no flight; when everything else is done."""
        self._producer.produce(FLIGHTS, marker.value, marker.key)
        if self._producer.flush(DRAIN_TIMEOUT_S):
            raise StreamFailed("the marker was not acknowledged")

    def _on_delivery(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.acks.failed(str(error))
            return
        self.acks.acked(message.partition() or 0, self._flow_time())
        self._is_acked[number] = 1
        while self._oldest_unacked < len(self._is_acked) and self._is_acked[self._oldest_unacked]:
            self._oldest_unacked += 1

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Go on where this process has read to: it has counted those records, committed or not."""
        for partition in partitions:
            partition.offset = self.reads.next_offset(partition.partition) or OFFSET_BEGINNING
        consumer.assign(partitions)
        self._assigned = True

    def _wait_for_assignment(self) -> None:
        """A group's first member waits a while for others (group.initial.rebalance.delay.ms)."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._assigned:
            if time.monotonic() > deadline:
                raise StreamFailed(f"the consumer got no partitions within {READY_TIMEOUT_S:.0f} s")
            self._read(timeout_s=0.1)

    def _flow_time(self) -> float:
        """A clock that stops while everything is acknowledged and the reader is waited for: that is no gap
        between acknowledgements."""
        return time.monotonic() - self._waited_s

    def _wait_for_turn(self, number: int, flight: Flight) -> None:
        while not self._reader.may_send(number) or self._leads_too_far(flight):
            if self.problems.count:
                raise StreamFailed(f"a flight was {self.problems.shown[0]}")
            since, nothing_under_way = time.monotonic(), self.acks.records == self._sent
            self._producer.poll(0.01)
            self._pump()
            if nothing_under_way:
                self._waited_s += time.monotonic() - since

    def _leads_too_far(self, flight: Flight) -> bool:
        """See plan.py."""
        return flight.departs - self._flights[self._oldest_unacked].departs > LEAD_S

    def _send(self, number: int, flight: Flight) -> None:
        on_delivery = partial(self._on_delivery, number)
        while True:
            try:
                self._producer.produce(FLIGHTS, flight.value, flight.key, on_delivery=on_delivery)
            except BufferError:  # the client's queue is full: let it answer first
                self._pump()
                self._producer.poll(0.01)
                continue
            self._sent += 1
            return

    def _pump(self) -> None:
        """Take the answers and records that are there, then look whether a node is due."""
        self._producer.poll(0)
        self._read(timeout_s=0.0)
        self._look_around()

    def _read(self, timeout_s: float) -> None:
        for message in self._consumer.consume(READ_MAX, timeout_s):
            error = message.error()
            if error is not None:
                if error.fatal():
                    raise StreamFailed(f"the consumer gave up: {error}")
                continue  # a lost connection and the like: the client reconnects by itself
            value: Any = message.value()
            key: Any = message.key()
            self.reads.saw(message.partition() or 0, message.offset() or 0, key or b"", value or b"")
            self._delays.add(value or b"")

    def _look_around(self) -> None:
        self._screen.progress(sent=self._sent, acked=self.acks.records, read=self.reads.records)
        self._break_and_mend()
        self._reader.look()

    def _break_and_mend(self) -> None:
        third = len(self._flights) // 3
        if self._victim is None and self.acks.records >= third:
            self._victim, self._killed_at = busiest_leader(self._watch.state), self.acks.records
            led = [number for number, p in self._watch.state.items() if p.leader == self._victim]
            self._led_by_victim = tuple(led)
            self.acks.watch(led)
            self._cluster.kill(self._victim)
            self._screen.mark("acked")
            self._tell(f"node {self._victim} killed (it led {len(led)} of {PARTITIONS} partitions)")
        elif (
            self._victim is not None
            and not self._restarted
            and self.acks.records >= 2 * third
            and self._watch.has_left(self._victim)  # or we would not see it come back
        ):
            self._restarted = True
            self._cluster.start_node(self._victim, wait=False)
            self._tell(f"node {self._victim} started again")

    def _tell(self, text: str) -> None:
        self._watch.note(text)
        self._screen.tell(text)

    def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        total = len(self._flights)
        while self.acks.records < total or self.reads.records < total or not self._restarted:
            if time.monotonic() > deadline or self.problems.count:
                break
            self._producer.poll(0.0)
            self._read(timeout_s=0.02)
            self._look_around()
        # A surplus record would arrive now.
        self._read(timeout_s=0.5)

    def _wait_for_full_isr(self) -> bool:
        deadline = time.monotonic() + ISR_TIMEOUT_S
        while not self._watch.full(REPLICAS):
            if time.monotonic() > deadline:
                return False
            self._read(timeout_s=0.1)
            self._reader.look()
        return True

    def _check_end(self) -> None:
        total = len(self._flights)
        if self.acks.records != total:
            self.problems.add(f"{total - self.acks.records:,} of {total:,} flights were not acknowledged")
        if self.reads.missing():
            self.problems.add(f"{self.reads.missing():,} flights were never read")
        if self._victim is None or not self._restarted:
            self.problems.add("no node was killed and started again")
        if not self._watch.full(REPLICAS):
            self.problems.add(f"not every replica was back in sync after {ISR_TIMEOUT_S:.0f} s")
