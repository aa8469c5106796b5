"""`kraft perf`: how much and how fast, with librdkafka as the client."""

from __future__ import annotations

import math
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft.cli.confluent_client import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    connect_admin,
    extra_settings,
    settings,
    wait,
)  # fmt: skip
from kraft.cli.console import Extra, Topic
from kraft.cli.errors import CliError, UsageError, sentence_of
from kraft.cli.numbers import MAX_INT32, MAX_INT64
from kraft.cli.wire_client import require_topic

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer
    from confluent_kafka.admin import AdminClient

app = typer.Typer(no_args_is_help=True)

Delivered = Callable[["KafkaError | None", "Message"], None]

SAMPLE_EVERY = 100
"""The latency of one record in this many is measured: a Python call per record would measure Python."""
PATIENCE_S = 30.0
ENDS_S = 10.0
"""How long to wait for the end offsets of partitions; one without a leader has none."""
LAST_CHANCE_S = 1.0
"""After Ctrl-C, for what is under way."""
POLL_S = 0.1
WARM_UP_S = 0.5
"""Between the first connection and the first message that counts."""
BYTES_PER_MB = 1_000_000

_DUE: Final = struct.Struct(">d")  # head of a value of `latency`: when it was due, perf_counter seconds

Records = Annotated[int, typer.Option("--records", "-n", min=1, max=MAX_INT64, help="How many messages.")]
Size = Annotated[int, typer.Option("--size", "-s", min=1, max=MAX_INT32, help="Bytes of a value.")]
Rate = Annotated[float, typer.Option(min=0, help="Messages a second; 0 for as many as go through.")]
Acks = Annotated[str, typer.Option(help="0, 1 or all.")]


class Latencies:
    """Measured times, in seconds."""

    def __init__(self) -> None:
        self._seconds: list[float] = []

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)

    def __len__(self) -> int:
        return len(self._seconds)

    def percentile(self, share: float) -> float:
        """The smallest time that `share` of all times do not exceed."""
        ordered = sorted(self._seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def __str__(self) -> str:
        if not self._seconds:
            return "no latency was measured"
        shares = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max"))
        return "  ".join(f"{name} {self.percentile(share) * 1000:.2f} ms" for share, name in shares)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal's standard error, nothing elsewhere; yields a function of what is done."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)


class Interruption:
    """Whether Ctrl-C came. A flag, not an exception: librdkafka, which calls back, would lose that."""

    def __init__(self) -> None:
        self.came = False

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.came = True
        signal.signal(number, signal.SIG_DFL)  # the second one ends the process

    def end(self) -> None:
        """After the figures so far are printed. Raises KeyboardInterrupt where it came."""
        if self.came:
            raise KeyboardInterrupt


@contextmanager
def until_ctrl_c() -> Iterator[Interruption]:
    """For loops that check for Ctrl-C: what was measured until then is worth printing."""
    interruption = Interruption()
    before = signal.signal(signal.SIGINT, interruption.on_signal)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, before)


class _Sender:
    """Counts deliveries and keeps the latencies of the sampled ones."""

    def __init__(self) -> None:
        self.latencies = Latencies()
        self.failure = ""

    def since(self, start: float) -> Delivered:
        """A delivery callback that measures from `start` (perf_counter)."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.latencies.add(time.perf_counter() - start)
            elif not self.failure:
                self.failure = sentence_of(error, message.topic() or "")

        return delivered


@app.command()
def produce(
    topic: Topic,
    records: Records = 100_000,
    size: Size = 1024,
    throughput: Rate = 0,
    acks: Acks = "all",
    compression: Annotated[str, typer.Option("--compression", "-z")] = "none",
    extra: Extra = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send messages of random bytes; print MB/s and the latency from hand-over to acknowledgement."""
    from confluent_kafka import Producer

    _require_finite(throughput)
    partitions = require_topic(bootstrap, topic)
    admin = connect_admin(bootstrap)
    before = _messages_in(admin, topic, partitions)
    config = settings(bootstrap, acks=acks, compression_type=compression, linger_ms=5, batch_size=1_000_000)
    producer = Producer(config | extra_settings(extra))
    value = os.urandom(size)
    sender = _Sender()
    started = time.perf_counter()
    sent = 0
    with progress("produce", records) as show_done, until_ctrl_c() as interrupted:
        for number in range(records):
            if throughput > 0:
                _await_due(producer, started + number / throughput, interrupted)
            is_sample = number % SAMPLE_EVERY == 0
            on_delivery = sender.since(time.perf_counter()) if is_sample else None
            if sender.failure or not _send(producer, topic, value, on_delivery, interrupted):
                break
            sent += 1
            if is_sample:
                producer.poll(0)
                show_done(number)
        left = _flush(producer, interrupted)
    took = time.perf_counter() - started
    _refuse_failure(sender, left, interrupted)
    sent -= left
    # Only samples report back; that the others arrived too is seen at the ends of the partitions.
    grown = _messages_in(admin, topic, partitions) - before
    if acks != "0" and grown < sent:
        raise CliError(f"only {grown} of {sent} messages are in {topic}")
    _report("sent", sent, sent * size, took)
    print(f"latency: {sender.latencies}")
    interrupted.end()


@app.command()
def consume(
    topic: Topic,
    records: Records = 100_000,
    timeout_ms: Annotated[
        int, typer.Option(min=0, max=MAX_INT64, help="End after this long without a message.")
    ] = 10_000,
    extra: Extra = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Read messages from the beginning; print MB/s."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    count = require_topic(bootstrap, topic)
    config = settings(bootstrap, group_id="kraft-perf", enable_auto_commit=False, fetch_min_bytes=1)
    consumer = Consumer(config | extra_settings(extra))
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(count)])
    done = size = 0
    first = last = time.perf_counter()
    try:
        with progress("consume", records) as show_done, until_ctrl_c() as interrupted:
            while done < records and not interrupted.came:
                messages = consumer.consume(min(1000, records - done), timeout=POLL_S)
                if not messages:
                    if time.perf_counter() - last > timeout_ms / 1000:
                        break
                    continue
                if done == 0:
                    first = time.perf_counter()  # from the first message on: connecting is not reading
                for message in messages:
                    if (error := message.error()) is not None:
                        raise CliError(sentence_of(error, topic))
                    size += len(message)
                done += len(messages)
                last = time.perf_counter()
                show_done(done)
    finally:
        consumer.close()
    _report("read", done, size, last - first)
    interrupted.end()
    if done < records:
        raise CliError(f"only {done} of {records} messages came")


@app.command()
def latency(
    topic: Topic,
    records: Records = 1_000,
    size: Size = 100,
    rate: Rate = 200,
    acks: Acks = "all",
    extra: Extra = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send single messages at a steady rate and read them back; print percentiles of both ways.

    Times count from when a message was due, so a stalled cluster cannot hide its stall.
    """
    from confluent_kafka import Producer

    _require_finite(rate)
    if rate == 0:
        raise UsageError("--rate must be above 0: latency is measured at a steady rate")
    partitions = require_topic(bootstrap, topic)
    more = extra_settings(extra)
    reader = _LatencyReader(settings(bootstrap, group_id="kraft-perf") | more, topic, partitions)
    producer = Producer(settings(bootstrap, acks=acks, linger_ms=0) | more)
    sender = _Sender()
    padding = bytes(max(0, size - _DUE.size))
    reader.start()
    started = time.perf_counter() + WARM_UP_S
    sent = 0
    with progress("latency", records) as show_done, until_ctrl_c() as interrupted:
        for number in range(records):
            due = started + number / rate
            _await_due(producer, due, interrupted)
            value = _DUE.pack(due) + padding
            if sender.failure or not _send(producer, topic, value, sender.since(due), interrupted):
                break
            sent += 1
            show_done(number)
        left = _flush(producer, interrupted)
        reader.finish(0 if sender.failure else sent - left, interrupted)
    _refuse_failure(sender, left, interrupted)
    print(f"acknowledged: {sender.latencies}")
    print(f"end to end:   {reader.latencies}")
    interrupted.end()
    if len(reader.latencies) < records:
        raise CliError(f"only {len(reader.latencies)} of {records} messages came back")


def _require_finite(rate: float) -> None:
    if not math.isfinite(rate):
        raise UsageError(f"{rate}: not a number of messages a second")


def _refuse_failure(sender: _Sender, left: int, interrupted: Interruption) -> None:
    """Raises CliError; messages that Ctrl-C has overtaken are no failure."""
    if sender.failure:
        raise CliError(sender.failure)
    if left and not interrupted.came:
        raise CliError(f"{left} messages were not acknowledged in {PATIENCE_S:g} s")


def _messages_in(admin: AdminClient, topic: str, partitions: int) -> int:
    """The ends of all partitions, added up."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(topic, number): latest for number in range(partitions)}
    found = admin.list_offsets(wanted, request_timeout=ENDS_S)
    return sum(wait(future, topic).offset for future in found.values())


def _send(
    producer: Producer,
    topic: str,
    value: bytes,
    on_delivery: Delivered | None,
    interrupted: Interruption,
) -> bool:
    """False where Ctrl-C came before there was room for it."""
    while not interrupted.came:
        try:
            if on_delivery is None:  # None is not what this parameter takes
                producer.produce(topic, value)
            else:
                producer.produce(topic, value, on_delivery=on_delivery)
            return True
        except BufferError:
            producer.poll(0.01)  # the queue is full: make room
    return False


def _flush(producer: Producer, interrupted: Interruption) -> int:
    """Wait until all is acknowledged, or for as long as is sensible; how many are not."""
    began = time.monotonic()
    while left := producer.flush(POLL_S):
        if time.monotonic() - began > (LAST_CHANCE_S if interrupted.came else PATIENCE_S):
            break
    return left


class _LatencyReader(threading.Thread):
    """Reads back what `latency` sends, from the ends that the partitions had before."""

    def __init__(self, config: dict[str, Any], topic: str, partitions: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        super().__init__(name="reader", daemon=True)
        self.latencies = Latencies()
        self._consumer = Consumer(config)
        self._ending = threading.Event()
        starts = []
        for number in range(partitions):
            _, end = self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ENDS_S)
            starts.append(TopicPartition(topic, number, end))
        self._consumer.assign(starts)

    def run(self) -> None:
        while not self._ending.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None and len(message.value() or b"") >= _DUE.size:
                (due,) = _DUE.unpack_from(message.value() or b"")
                self.latencies.add(time.perf_counter() - due)
        self._consumer.close()

    def finish(self, expected: int, interrupted: Interruption) -> None:
        """Wait for the requests in flight, then end."""
        began = time.monotonic()
        while len(self.latencies) < expected:
            if time.monotonic() - began > (LAST_CHANCE_S if interrupted.came else PATIENCE_S):
                break
            time.sleep(0.01)
        self._ending.set()
        self.join()


def _await_due(producer: Producer, due: float, interrupted: Interruption) -> None:
    """Until then (perf_counter) acknowledgements are taken: their latency ends when that is done."""
    while (ahead := due - time.perf_counter()) > 0 and not interrupted.came:
        producer.poll(min(ahead, POLL_S))


def _report(what: str, records: int, size: int, took: float) -> None:
    took = max(took, 1e-9)
    print(
        f"{records} messages {what} in {took:.2f} s: {records / took:.0f} messages/s, "
        f"{size / took / BYTES_PER_MB:.1f} MB/s"
    )
