"""Kafka Streams counts words exactly once, while a node and the application itself are killed."""

from __future__ import annotations

import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.local_cluster import LocalCluster
from tests.support.clients.programs import java_program
from tests.support.clients.rdkafka import consumer, send
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.row("U2", "P4")]

LINES, COUNTS = "lines", "counts"
PARTITIONS = 2
WORDS = ("alpha", "beta", "gamma", "delta", "alpha", "beta", "alpha")
"""A killed member's session, a rebalance and the restore of its table."""


class Application:
    """Started as often as one likes, each time with an empty state directory."""

    def __init__(self, command: Sequence[str], bootstrap: str, directory: Path) -> None:
        self._command = command
        self._bootstrap = bootstrap
        self._directory = directory
        self._started = 0

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """At the end it is asked to stop, and must do so well, unless it was killed."""
        self._started += 1
        state = self._directory / f"state-{self._started}"
        with (self._directory / f"streams-{self._started}.log").open("wb") as log:
            process = subprocess.Popen(
                [*self._command, self._bootstrap, "count", LINES, COUNTS, str(state)],
                stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            yield process
            assert process.stdin is not None
            process.stdin.close()
            code = process.wait(PATIENCE_S)
            assert code <= 0, Path(log.name).read_text()[-5_000:]
        finally:
            process.kill()
            process.wait()


def test_word_count_exactly_once_through_kills(
    application_jars: Path, cluster: LocalCluster, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in (LINES, COUNTS)]).values():
        made.result()
    program = java_program("WordCount", tmp_path, application_jars)
    application = Application(program.command, cluster.bootstrap, tmp_path)
    written: Counter[str] = Counter()

    def write() -> None:
        send(cluster.bootstrap, LINES, ({"key": str(n), "value": " ".join(WORDS)} for n in range(20)))
        written.update(WORDS * 20)

    def all_is_counted() -> bool:
        counts = counts_of(cluster.bootstrap)
        return {word: len(values) for word, values in counts.items()} == written

    with application.running() as process:
        write()
        wait_until(all_is_counted, "the first words")
        write()
        cluster.kill(2)
        write()
        wait_until(all_is_counted, "words go on without node 2")
        cluster.start_node(2)
        write()
        process.kill()
    with application.running():
        write()
        cluster.kill(3)
        wait_until(all_is_counted, "a new instance goes on where the killed one was")
        cluster.start_node(3)
    # Each change of each count is there once, in order.
    for word, values in counts_of(cluster.bootstrap).items():
        assert values == list(range(1, written[word] + 1)), word


def counts_of(bootstrap: str) -> dict[str, list[int]]:
    """What read_committed sees now: each word's counts, as they were written."""
    found: dict[str, list[int]] = defaultdict(list)
    with consumer(bootstrap, isolation_level="read_committed", enable_partition_eof=True) as reader:
        reader.assign([TopicPartition(COUNTS, number, 0) for number in range(PARTITIONS)])
        ended = 0
        while ended < PARTITIONS:
            for message in reader.consume(1000, 0.2):
                if message.error() is None:
                    found[message.key().decode()].append(int(message.value()))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended += 1
    return found
