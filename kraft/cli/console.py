"""`kraft produce` and `kraft consume`: lines to messages and back, through librdkafka."""

from __future__ import annotations

import io
import re
import select
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli import completion
from kraft.cli.confluent_client import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    extra_settings,
    key_values,
    require_partitions,
    settings,
)  # fmt: skip
from kraft.cli.errors import CliError, UsageError, say, sentence_of
from kraft.cli.interruption import ended_by_ctrl_c
from kraft.cli.numbers import MAX_INT32, MAX_INT64
from kraft.cli.wire_client import find_topic, require_topic

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

POLL_S = 0.2
FLUSH_S = 30.0
LAST_CHANCE_S = 1.0
"""After Ctrl-C, for what is under way."""
NO_LEADER_S = 10.0
"""An election takes less; a partition that has no leader for so long keeps `--exit-at-end` from its end."""

Topic = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)]
Extra = Annotated[list[str], typer.Option("-X", metavar="KEY=VALUE", help="A setting of librdkafka.")]
Separator = Annotated[str, typer.Option("--key-separator", "-K", help="What separates key and value.")]


class _Deliveries:
    """Counts what was acknowledged; remembers the first failure."""

    def __init__(self) -> None:
        self.acked = 0
        self.failure = ""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acked += 1
        elif not self.failure:
            self.failure = sentence_of(error, message.topic() or "")


def produce(
    topic: Topic,
    key_separator: Separator = "",
    header: Annotated[
        list[str], typer.Option("--header", "-H", metavar="KEY=VALUE", help="On every message.")
    ] = [],  # noqa: B006
    partition: Annotated[
        int,
        typer.Option("--partition", "-p", min=-1, max=MAX_INT32, help="-1: by key, as any client does."),
    ] = -1,
    timestamp: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_INT64, help="Milliseconds since 1970; else the time of sending."),
    ] = None,
    acks: Annotated[str, typer.Option(help="0, 1 or all.")] = "all",
    compression: Annotated[
        str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4, zstd.")
    ] = "none",
    null_value: Annotated[str | None, typer.Option(help="A value that means none: a tombstone.")] = None,
    extra: Extra = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send each line of standard input as a message. The topic is created where brokers allow it."""
    from confluent_kafka import Producer

    found = find_topic(bootstrap, topic)
    if partition >= 0 and found is not None:
        require_partitions(topic, len(found.partitions), [partition])
    config = settings(bootstrap, acks=acks, compression_type=compression) | extra_settings(extra)
    producer = Producer(config)
    deliveries = _Deliveries()
    fixed: dict[str, Any] = {"headers": list(key_values(header, "a header").items())}
    if partition >= 0:
        fixed["partition"] = partition
    if timestamp is not None:
        fixed["timestamp"] = timestamp
    sent, bad_line = 0, ""
    try:
        for number, line in enumerate(sys.stdin.buffer, start=1):
            key, has_separator, value = _split(line.rstrip(b"\r\n"), key_separator)
            if not has_separator:
                bad_line = f"line {number} without {key_separator!r} has no key"
                break
            if null_value is not None and value == null_value.encode():
                value = None
            _send(producer, topic, {"key": key, "value": value, "on_delivery": deliveries} | fixed)
            sent += 1
            if deliveries.failure:
                break
        left = _flush(producer)
    except KeyboardInterrupt:
        producer.flush(LAST_CHANCE_S)
        say(f"{deliveries.acked} of {sent} messages were acknowledged")
        raise
    if deliveries.failure:
        raise CliError(f"{deliveries.failure}; {deliveries.acked} of {sent} messages were acknowledged")
    if left:
        raise CliError(f"{left} of {sent} messages were not acknowledged in {FLUSH_S:g} s")
    if bad_line:
        raise CliError(f"{bad_line}; the {sent} before it were sent")
    print(f"{sent} message{'s' * (sent != 1)} {'sent' if acks == '0' else 'acknowledged'}.")


def _split(line: bytes, separator: str) -> tuple[bytes | None, bool, bytes | None]:
    """Key and value; whether the line has the separator that it needs."""
    if not separator:
        return None, True, line
    key, separated, value = line.partition(separator.encode())
    return key, bool(separated), value


def _send(producer: Producer, topic: str, message: dict[str, Any]) -> None:
    while True:
        try:
            producer.produce(topic, **message)
        except BufferError:
            producer.poll(POLL_S)  # the queue is full: make room
        else:
            producer.poll(0)
            return


def _flush(producer: Producer) -> int:
    """Wait until all is acknowledged, or for as long as is sensible; how many are not. In pieces: not every
    librdkafka hears Ctrl-C meanwhile."""
    deadline = time.monotonic() + FLUSH_S
    while (left := producer.flush(POLL_S)) and time.monotonic() < deadline:
        pass
    return int(left)


@dataclass(frozen=True)
class _Layout:
    """What of a message is printed, and between what."""

    separator: str
    key: bool
    headers: bool
    timestamp: bool
    partition: bool
    offset: bool

    def line(self, message: Message) -> bytes:
        parts: list[bytes] = []
        if self.timestamp:
            parts.append(str(message.timestamp()[1]).encode())
        if self.partition:
            parts.append(str(message.partition()).encode())
        if self.offset:
            parts.append(str(message.offset()).encode())
        if self.headers:
            headers = [(name, _bytes(value)) for name, value in _headers(message)]
            parts.append(b",".join(name.encode() + b"=" + value for name, value in headers))
        if self.key:
            parts.append(_bytes(message.key()))
        parts.append(_bytes(message.value()))
        return self.separator.encode().join(parts) + b"\n"


def _headers(message: Message) -> Iterable[tuple[str, Any]]:
    headers = message.headers() or ()
    return headers.items() if isinstance(headers, dict) else headers


def _bytes(value: Any) -> bytes:
    return b"null" if value is None else value.encode() if isinstance(value, str) else bytes(value)


def consume(
    topic: Topic,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Short for --offset beginning.")
    ] = False,
    partition: Annotated[
        list[int],
        typer.Option("--partition", "-p", min=0, max=MAX_INT32, help="Only these; all by default."),
    ] = [],  # noqa: B006
    offset: Annotated[
        str,
        typer.Option("--offset", "-o", help="beginning, end, a number, -N for the last N, @MS for a time."),
    ] = "end",
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as a member of that group, from its offsets.")
    ] = None,
    max_messages: Annotated[int | None, typer.Option("--max-messages", "-n", min=1)] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit-at-end", "-e", help="End when all is read.")] = False,
    timeout_ms: Annotated[
        int | None, typer.Option(min=0, max=MAX_INT64, help="End after this long without a message.")
    ] = None,
    key_separator: Separator = "\t",
    print_key: Annotated[bool, typer.Option("--print-key")] = False,
    print_headers: Annotated[bool, typer.Option("--print-headers")] = False,
    print_timestamp: Annotated[bool, typer.Option("--print-timestamp")] = False,
    print_partition: Annotated[bool, typer.Option("--print-partition")] = False,
    print_offset: Annotated[bool, typer.Option("--print-offset")] = False,
    isolation: Annotated[str, typer.Option(help="read_committed or read_uncommitted.")] = "read_committed",
    extra: Extra = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print messages as lines, until Ctrl-C or the end that the options name."""
    from confluent_kafka import Consumer

    config = settings(
        bootstrap, group_id="kraft-cli" if group is None else group, isolation_level=isolation,
        enable_auto_commit=group is not None, auto_offset_reset="earliest" if from_beginning else "latest",
        enable_partition_eof=exit_at_end,
    ) | extra_settings(extra)  # fmt: skip
    count = require_topic(bootstrap, topic)
    require_partitions(topic, count, partition)
    consumer = Consumer(config)
    try:
        if group is not None:
            consumer.subscribe([topic])
        else:
            start = "beginning" if from_beginning else offset
            consumer.assign(_starts(consumer, topic, partition or list(range(count)), start))
        layout = _Layout(
            key_separator, print_key, print_headers, print_timestamp, print_partition, print_offset
        )
        out = sys.stdout.buffer
        messages = _messages(consumer, timeout_ms, _End(bootstrap, topic) if exit_at_end else None)
        for number, message in enumerate(messages, start=1):
            out.write(layout.line(message))
            out.flush()
            if number == max_messages:
                break
    finally:
        with ended_by_ctrl_c():  # it may wait for brokers that are gone, and librdkafka hears no signal
            consumer.close()


def _starts(consumer: Consumer, topic: str, partitions: list[int], offset: str) -> list[TopicPartition]:
    """The offset at which to begin in each partition."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    if offset in ("beginning", "end"):
        place = OFFSET_BEGINNING if offset == "beginning" else OFFSET_END
        return [TopicPartition(topic, p, place) for p in partitions]
    if not re.fullmatch(r"[-@]?\d{1,19}", offset) or int(offset.strip("-@")) > MAX_INT64:
        raise UsageError(f"--offset {offset}: beginning, end, a number, -N or @MS")
    if offset.startswith("@"):
        asked = [TopicPartition(topic, p, int(offset[1:])) for p in partitions]
        found: list[TopicPartition] = consumer.offsets_for_times(asked, timeout=10.0)
        return found
    starts = []
    for p in partitions:
        place = int(offset)
        if place < 0:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10.0)
            place = max(low, high + place)
        starts.append(TopicPartition(topic, p, place))
    return starts


class _End:
    """Whether the ends of all partitions have been reached, or cannot be, for `--exit-at-end`."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._at_end: set[int | None] = set()
        self._look_at = time.monotonic() + NO_LEADER_S

    def message(self, partition: int | None) -> None:
        self._at_end.discard(partition)

    def reached(self, partition: int | None) -> None:
        self._at_end.add(partition)

    def is_everywhere(self, consumer: Consumer) -> bool:
        """Raises CliError where the rest has had no leader for a while: nobody knows where its end is."""
        assigned = {each.partition for each in consumer.assignment()}
        if assigned and self._at_end >= assigned:
            return True
        if time.monotonic() > self._look_at:
            from kraft.cli.survey import survey

            leaderless = {
                each.partition
                for each in survey(self._bootstrap).without_leader()
                if each.topic == self._topic and each.partition not in self._at_end
            }
            if assigned and assigned - self._at_end <= leaderless:
                partitions = ", ".join(map(str, sorted(leaderless)))
                raise CliError(
                    f"{self._topic}: not all was read: no leader that answers for partitions {partitions}"
                )
            self._look_at = time.monotonic() + NO_LEADER_S
        return False


def _messages(consumer: Consumer, timeout_ms: int | None, end: _End | None) -> Iterator[Message]:
    """Messages as they come, up to the requested end."""
    from confluent_kafka import KafkaError

    deadline = _deadline(timeout_ms)
    while time.monotonic() < deadline:
        message = consumer.poll(POLL_S)
        error = None if message is None else message.error()
        if message is not None and error is None:
            if end is not None:
                end.message(message.partition())
            deadline = _deadline(timeout_ms)
            yield message
            continue
        if message is not None and error is not None:
            if error.code() == KafkaError._PARTITION_EOF and end is not None:
                end.reached(message.partition())
            elif not error.retriable():
                raise CliError(sentence_of(error, message.topic() or ""))
        if end is not None and end.is_everywhere(consumer):
            return
        _require_reader()


def _require_reader() -> None:
    """Raises BrokenPipeError if nobody reads our output any more. (Writing would show it, but there may be no
    more messages to write.)"""
    output = select.poll()
    try:
        output.register(sys.stdout.fileno(), 0)
    except io.UnsupportedOperation:  # not a file: our caller collects the output
        return
    if any(event & select.POLLERR for _, event in output.poll(0)):
        raise BrokenPipeError


def _deadline(timeout_ms: int | None) -> float:
    return float("inf") if timeout_ms is None else time.monotonic() + timeout_ms / 1000


def add_to(cli: typer.Typer) -> None:
    """Hang the commands into the tree."""
    cli.command()(produce)
    cli.command()(consume)
