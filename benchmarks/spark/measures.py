"""The measurements of one system, and their samples; names and units are in lines.py."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from benchmarks.admin import Admin
from benchmarks.cluster import BenchmarkCluster, cpu_seconds
from benchmarks.percentiles import percentile
from benchmarks.session import MB
from benchmarks.spark.data import LZ4, SHAPES, SMALL, SMALL_BATCHES, ZSTD, Filled
from benchmarks.spark.processes import DriverProcess, driver
from benchmarks.spark.systems import System

JOB_TIMEOUT_S = 150.0
RECORD_TIMEOUT_S = 30.0
PAUSE_S = 0.3
"""Between a copy and the next record: less than two micro-batches, so that the query has gone idle."""
CATCH_UP = (SMALL, SMALL_BATCHES, LZ4, ZSTD)
"""All that have values of 100 B, in one query: a query takes a second however few its rows are."""
SETTLE_S = 2.0
"""After the last record, before idle time is measured."""


@dataclass(frozen=True)
class SparkScale:
    """How much of everything."""

    rows: Mapping[str, int]
    first_rows: int
    copies: int
    idle_s: float


FULL = SparkScale(
    rows={
        "100": 4_000_000,
        "100-small-batches": 2_000_000,
        "1k": 600_000,
        "lz4": 2_000_000,
        "zstd": 2_000_000,
    },
    first_rows=5,
    copies=15,
    idle_s=8.0,
)
QUICK = SparkScale(
    rows={"100": 400_000, "100-small-batches": 200_000, "1k": 60_000, "lz4": 200_000, "zstd": 200_000},
    first_rows=2,
    copies=4,
    idle_s=2.0,
)


class WrongAnswer(RuntimeError):
    """A query did not give what is in the topic, so its figures would mean nothing."""


@dataclass
class Round:
    """One driver of one system at work."""

    number: int
    system: System
    driver: DriverProcess
    cluster: BenchmarkCluster
    topics: Mapping[str, Filled]
    scale: SparkScale
    directory: Path
    note: Callable[[str], None]
    samples: dict[str, list[float]] = field(default_factory=dict)

    def record(self, name: str, value: float) -> None:
        self.samples.setdefault(name, []).append(value)

    def options(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.cluster.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }


def start(round_: Round) -> None:
    """From the driver's own start of the session until that is there."""
    round_.record("start", round_.driver.started(JOB_TIMEOUT_S)["seconds"])


def first_row(round_: Round) -> None:
    """The first query of a session, whose processes have to be started, and later ones."""
    options = round_.options(round_.topics[SMALL.name].topic)
    for number in range(1 + round_.scale.first_rows):
        answer = round_.driver.run("first_row", JOB_TIMEOUT_S, options=options)
        round_.record("first-row.later" if number else "first-row.cold", answer["seconds"])
    if round_.system.in_python:
        for number in range(1 + round_.scale.first_rows):
            answer = round_.driver.run("least", JOB_TIMEOUT_S)
            if number:
                round_.record("first-row.least", answer["seconds"])
        directory = round_.directory.with_name(f"{round_.directory.name}-least")  # beside the same bytecode
        directory.mkdir()
        with driver(round_.system, directory) as its_own:
            its_own.started(JOB_TIMEOUT_S)
            answer = its_own.run("least", JOB_TIMEOUT_S)
        round_.record("first-row.least-cold", answer["seconds"])


def batch(round_: Round) -> None:
    """Every topic twice; what the JVM has compiled by then is what counts."""
    for shape in SHAPES:
        filled = round_.topics[shape.name]
        for is_warm in (False, True):
            client_s, broker_s = round_.driver.cpu_s(), cpu_seconds(round_.cluster)
            answer = round_.driver.run("batch", JOB_TIMEOUT_S, options=round_.options(filled.topic))
            client_s, broker_s = round_.driver.cpu_s() - client_s, cpu_seconds(round_.cluster) - broker_s
            if (answer["rows"], answer["bytes"]) != (filled.rows, filled.bytes):
                raise WrongAnswer(f"{round_.system.name} read {answer} of {filled}")
            if is_warm:
                round_.record(f"batch-{shape.name}.rate", filled.rows / answer["seconds"] / 1e6)
                round_.record(f"batch-{shape.name}.per-core", filled.rows / client_s / 1e6)
                round_.record(f"batch-{shape.name}.brokers", filled.rows / broker_s / 1e6)


def catch_up(round_: Round) -> None:
    filled = [round_.topics[shape.name] for shape in CATCH_UP]
    rows, client_s = sum(each.rows for each in filled), round_.driver.cpu_s()
    answer = round_.driver.run(
        "catch_up",
        JOB_TIMEOUT_S,
        options=round_.options(",".join(each.topic for each in filled)),
        checkpoint=str(round_.directory / "catch-up"),
    )
    client_s = round_.driver.cpu_s() - client_s
    if answer["rows"] != rows:
        raise WrongAnswer(f"{round_.system.name} caught up with {answer['rows']} of {rows} records")
    round_.record("catch-up", rows / answer["seconds"] / 1e6)
    round_.record("catch-up.per-core", rows / client_s / 1e6)


def copy(round_: Round) -> None:
    """How long single records take through a streaming query, and what it costs when there are none."""
    with _copying(round_, "copy") as taken:
        round_.record("copy.p50", 1e3 * percentile(sorted(taken), 0.5))
        round_.record("copy.max", 1e3 * max(taken))
        time.sleep(SETTLE_S)
        client_s, broker_s, began = round_.driver.cpu_s(), cpu_seconds(round_.cluster), time.monotonic()
        time.sleep(round_.scale.idle_s)
        seconds = time.monotonic() - began
        used_s = round_.driver.cpu_s() - client_s
        if used_s >= 0:  # else one ended whose parent had ended before it, and took its times away
            round_.record("idle", 100 * used_s / seconds)
        round_.record("idle.brokers", 100 * (cpu_seconds(round_.cluster) - broker_s) / seconds)


def transactional(round_: Round) -> None:
    """The same in transactions, which Spark's own sink does not have."""
    if round_.system.in_python:
        with _copying(round_, "copy-in-transactions", transactional="true") as taken:
            round_.record("transactional.p50", 1e3 * percentile(sorted(taken), 0.5))


@contextlib.contextmanager
def _copying(round_: Round, name: str, **sink: str) -> Iterator[list[float]]:
    """A streaming query from a topic into another; seconds from sending a record into the one until it is
    (committed) in the other."""
    topics = [f"{name}-{end}-{round_.number}-{round_.system.name}" for end in ("from", "to")]
    admin = Admin(round_.cluster.bootstrap)
    for topic in topics:
        admin.create_topic(topic, 1)
    sink |= {"kafka.bootstrap.servers": round_.cluster.bootstrap, "topic": topics[1]}
    checkpoint = str(round_.directory / name)
    options = round_.options(topics[0])
    round_.driver.run("copy", JOB_TIMEOUT_S, options=options, sink=sink, checkpoint=checkpoint)
    with _SingleRecords(round_.cluster.bootstrap, *topics) as records:
        records.pass_through()  # starts what has to be started
        records.pass_through()
        yield [records.pass_through() for _ in range(round_.scale.copies)]
    progress = round_.driver.run("stop_copy", JOB_TIMEOUT_S)
    round_.note(f"a micro-batch, ms: {progress['durations_ms']}")


def memory(round_: Round) -> None:
    """After all that came before."""
    if round_.system.in_python:
        round_.record("worker-rss", round_.driver.worker_rss / MB)
    round_.record("memory", round_.driver.memory() / MB)


# By the name that --only takes, in the order of running.
MEASURES: dict[str, Callable[[Round], None]] = {
    "first-row": first_row,
    "batch": batch,
    "catch-up": catch_up,
    "copy": copy,
    "transactional": transactional,
}


class _SingleRecords:
    """Single records, sent into one topic and awaited in another."""

    def __init__(self, bootstrap: str, source: str, sink: str) -> None:
        self._source = source
        self._number = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.wait.max.ms": 100, "log_level": 0}
        )
        self._consumer.assign([TopicPartition(sink, 0, OFFSET_BEGINNING)])

    def __enter__(self) -> _SingleRecords:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def pass_through(self) -> float:
        """Seconds from sending one until it is there."""
        time.sleep(PAUSE_S)
        self._number += 1
        value = b"%d" % self._number
        began = time.monotonic()
        self._producer.produce(self._source, value)
        while time.monotonic() - began < RECORD_TIMEOUT_S:
            self._producer.poll(0)
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None and message.value() == value:
                return time.monotonic() - began
        raise TimeoutError(f"a record did not come through within {RECORD_TIMEOUT_S:.0f} s")
