"""The sink with transactions: who reads committed records sees every row once, whatever died."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from kraft.local.local_cluster import LocalCluster
from spark_connector import transactions
from spark_connector.connections import ClusterClient, close_clusters, cluster_client
from spark_connector.coordinators import OpenTransaction, fence
from spark_connector.errors import SinkError
from spark_connector.micro_batches import commit_all
from spark_connector.options import sink_options
from spark_connector.producing import new_producer
from spark_connector.stopping import AbortWhenStopped
from spark_connector.transactional_sink import Prepared, TransactionalWriter
from spark_connector.transactions import BATCH_TIMEOUT_MS, transactional_id_of, transactional_task
from tests.spark.copying import Copying
from tests.spark.copying_query import copy
from tests.spark.dying import DRIVER, HELD, HOLDING, QUERY, SINK_POINTS, WORKER
from tests.spark.micro_batches import Sink, committed
from tests.spark.topics import Topics, read
from tests.support.nodes.cluster import running_cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.heavy

COMMITTED = {"kafka.isolation.level": "read_committed"}


# ---- micro-batches, without Spark --------------------------------------------------------------------------


@pytest.fixture
def sink(topics: Topics) -> Iterator[Sink]:
    yield Sink(topics, topics.make(2))
    close_clusters()


@pytest.mark.row("S3")
def test_a_micro_batch_that_runs_again(sink: Sink):
    """Is committed once, and where some tasks were committed before, the others are."""
    rows = (["a", "b"], [], ["c"], ["d"])
    first = sink.writer.prepare(sink.tasks(*rows), 7)
    assert len(first) == 3
    commit_all(sink.client, first[:1])  # and here the driver dies
    assert [each.transactional_id[-3:] for each in sink.writer.prepare(sink.tasks(*rows), 7)] == [
        "2-0",
        "3-0",
    ]
    sink.writer.commit(sink.tasks(*rows), 7)
    assert sink.seen() == [b"a", b"b", b"c", b"d"]
    sink.writer.commit(sink.tasks(*rows), 7)  # Spark had not written down that it was done
    sink.writer.commit(sink.tasks([], [], ["e"]), 9)
    assert sink.seen() == [b"a", b"b", b"c", b"d", b"e"]
    assert sink.open() == set()


@pytest.mark.row("S3")
def test_brokers_that_allow_short_transactions_only(tmp_path: Path, free_ports: Callable[[int], list[int]]):
    """What a failed attempt has left open is ended there, too."""
    with running_cluster(tmp_path, free_ports(3), {"transaction.max.timeout.ms": "30000"}) as cluster:
        topics = Topics(cluster.bootstrap)
        short = {"kafka.transaction.timeout.ms": "30000"}
        sink = Sink(topics, topics.make(1), 1, **short)
        sink.task(0, "left open")
        sink.writer.commit([sink.task(0, "a", attempt=1)], 0)
        assert sink.open() == set()
        close_clusters()


@pytest.mark.row("S3")
@pytest.mark.parametrize(
    ("number", "rows", "says"),
    [
        (4, (["a"], ["b"]), "KAFKA_TRANSACTION_ROLLED_BACK.*micro-batch 4 .*micro-batch 5 of this query"),
        (5, ([], []), "KAFKA_TRANSACTION_OTHER_ROWS"),
        (5, (["a"], ["B"]), "KAFKA_TRANSACTION_OTHER_ROWS"),
        (5, (["b"], ["a"]), "KAFKA_TRANSACTION_OTHER_ROWS"),
        (5, (["a"], ["b"], ["c"]), "KAFKA_TRANSACTION_OTHER_ROWS"),
    ],
)
def test_a_checkpoint_that_was_rolled_back(sink: Sink, number: int, rows, says: str):
    """Its micro-batches have numbers that were there before, and other rows."""
    sink.writer.commit(sink.tasks(["a"], ["b"]), 5)
    messages = sink.tasks(*rows)
    with pytest.raises(SinkError, match=says):
        sink.writer.commit(messages, number)
    sink.writer.abort(messages, number)
    assert sink.seen() == [b"a", b"b"]


@pytest.mark.row("S3")
def test_rows_in_another_order_are_the_same(sink: Sink):
    """As they come from a shuffle."""
    sink.writer.commit(sink.tasks(["a", "b", "c"]), 5)
    sink.writer.commit(sink.tasks(["c", "a", "b"]), 5)
    assert sink.seen() == [b"a", b"b", b"c"]


@pytest.mark.row("S3")
def test_a_second_attempt_leaves_the_first_one_alone(sink: Sink):
    """Spark decides which of two it takes; what the other one left open is aborted with the commit."""
    first, other = sink.task(0, "a"), sink.task(1, "b")
    second = sink.task(0, "a", attempt=1)
    assert second.rows.transaction is not None
    assert len(sink.open()) == 3
    sink.writer.commit([first, other], 3)
    assert sink.open() == set()
    assert sink.seen() == [b"a", b"b"]
    with pytest.raises(SinkError, match=r"KAFKA_TRANSACTION_LOST.*(EPOCH|FENCED)"):
        commit_all(sink.client, [second.rows.transaction])


@pytest.mark.row("S3")
def test_a_driver_that_is_no_longer_the_one(sink: Sink):
    """Its tasks had other names than the new one's; their rows are not committed beside those."""
    old = [sink.task(0, "a", attempt=1)]
    sink.writer.commit([sink.task(0, "a")], 3)
    assert sink.writer.prepare(old, 3) == []
    with pytest.raises(SinkError, match="KAFKA_TRANSACTION_LOST"):
        commit_all(sink.client, _transactions(old))
    sink.writer.commit([sink.task(0, "b", attempt=1)], 4)
    assert sink.seen() == [b"a", b"b"]


def _transactions(messages: Iterable[Prepared]) -> list[OpenTransaction]:
    return [each.rows.transaction for each in messages if each.rows.transaction is not None]


@pytest.mark.row("S3")
@pytest.mark.parametrize("prepared", [0, 1])
def test_what_dead_tasks_left_open_is_aborted(sink: Sink, prepared: int):
    """Though none of them, or not all, have reported to the driver."""
    messages = sink.tasks(["a"], ["b"])
    sink.writer.abort([*messages[:prepared], *[None] * (2 - prepared)], 0)
    assert sink.open() == set()
    assert sink.seen() == []
    sink.writer.commit(sink.tasks(["a"], ["b"]), 0)
    assert sink.seen() == [b"a", b"b"]


def test_a_task_that_is_fenced_while_it_writes_says_so(sink: Sink):
    """As by the query's next run, while one that was thought dead goes on."""
    name = transactional_id_of(sink.writer.query_prefix(sink.query), 0, 0)

    def rows() -> Iterator[pa.RecordBatch]:
        for value in range(100):
            yield pa.record_batch({"value": [b"%d" % value]})
            if value == 50:
                fence(cluster_client(sink.client), [name])

    with pytest.raises(SinkError, match=r"KAFKA_(WRITE|TRANSACTION)_FAILED.*fenced"):
        sink.writer.task.write(rows(), name)
    assert sink.seen() == []


@pytest.mark.row("S3")
def test_what_a_task_begins_after_it_was_called_off_is_aborted(sink: Sink, monkeypatch: pytest.MonkeyPatch):
    """Its job has failed in another task; Spark ends its worker two seconds later."""
    late: list[Prepared] = []

    def pause(cluster: ClusterClient, seconds: float) -> None:
        if seconds > 0 and not late:
            late.append(sink.task(1, "b"))

    monkeypatch.setattr(ClusterClient, "pause", pause)
    sink.writer.abort([sink.task(0, "a"), None], 0)
    assert late
    assert sink.open() == set()
    assert sink.seen() == []


def test_a_row_that_cannot_be_written_aborts_the_rest(sink: Sink):
    with pytest.raises(SinkError, match="Message size too large"):
        sink.task(0, "fine", "v" * 3_000_000)
    assert sink.open() == set()
    assert sink.seen() == []


class Forgetful:
    """librdkafka's producer, which has no answer yet about its transaction's one partition when it is to end
    that: nothing ends."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def abort_transaction(self, patience_s: float) -> None:
        assert self._producer.flush(patience_s) == 0


def test_what_librdkafka_forgets_to_abort(sink: Sink, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transactions, "new_producer", lambda config: Forgetful(new_producer(config)))
    with pytest.raises(SinkError, match="Message size too large"):
        sink.task(0, "fine", "v" * 3_000_000)
    assert sink.open() == set()
    assert sink.seen() == []


@pytest.mark.row("S3")
@pytest.mark.parametrize("lost", [0, 1])
def test_a_job_of_which_one_task_is_lost(topics: Topics, lost: int):
    """Its transaction was open for too long: nothing of the others is committed either."""
    out = topics.make(2)
    options = sink_options({**topics.options(), "topic": out, "transactional": "true"})
    writer = TransactionalWriter(options, f"job-{out}")
    task = transactional_task(options, BATCH_TIMEOUT_MS)
    messages: list[Any] = []
    for number in range(2):
        rows = iter([pa.record_batch({"value": [b"%d" % number]})])
        messages.append(Prepared("", number, task.write(rows, f"kraft-spark-job-{out}-{number}-0")))
    fence(cluster_client(options.client), [messages[lost].rows.transaction.transactional_id])
    with pytest.raises(SinkError, match=rf"KAFKA_TRANSACTION_LOST.*-{lost}-0' .*None of the job's rows"):
        writer.commit(messages)
    writer.abort(messages)
    assert committed(topics, out, 2) == []
    close_clusters()


class Event(NamedTuple):
    """Of a query that began or ended."""

    id: UUID
    runId: UUID


@pytest.mark.row("S3")
def test_what_a_query_that_ended_left_open_is_aborted(sink: Sink):
    """That of other queries is not, nor what a run that began meanwhile has open."""
    query, old, new = UUID(int=1), UUID(int=2), UUID(int=3)
    listener: Any = AbortWhenStopped({**sink.topics.options(), "topic": sink.topic})
    sink.query = str(query)
    listener.onQueryStarted(Event(query, old))
    sink.tasks(["a"], ["b"])
    listener.onQueryTerminated(Event(UUID(int=4), old))
    assert len(sink.open()) == 2
    listener.onQueryStarted(Event(query, new))
    listener.onQueryTerminated(Event(query, old))
    assert len(sink.open()) == 2
    listener.onQueryTerminated(Event(query, new))
    assert sink.open() == set()
    assert sink.seen() == []


# ---- queries ----------------------------------------------------------------------------------------------


def die_at(points: Iterable[str], spark: SparkSession, copying: Copying) -> None:
    for point in points:
        copying.fill(4)
        who = WORKER if point == "worker-killed" else QUERY
        copying.deaths.plan(point, who=who)
        with pytest.raises(
            StreamingQueryException, match=None if who == WORKER else f"planned death: {point}"
        ):
            copying.run(spark)
        copying.check_nothing_is_open()
    copying.fill(2)
    copying.run(spark)
    copying.check()


@pytest.mark.row("S3")
def test_a_query_that_dies_while_it_writes(spark: SparkSession, topics: Topics, tmp_path: Path):
    die_at(["worker-killed"], spark, Copying(topics, tmp_path))


@pytest.mark.long
@pytest.mark.row("S3")
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_query_that_dies_wherever_it_writes(spark, topics: Topics, tmp_path: Path, seed: int):
    points = [*SINK_POINTS, "amid-sink-commit"]
    die_at(random.Random(seed).sample(points, len(points)), spark, Copying(topics, tmp_path))


@pytest.mark.long
@pytest.mark.row("S3")
@pytest.mark.parametrize(
    "point", ["after-write", "before-sink-commit", "amid-sink-commit", "after-sink-commit"]
)
def test_the_driver_is_killed_while_it_commits(spark, topics: Topics, tmp_path: Path, point: str):
    copying = Copying(topics, tmp_path)
    copying.fill(20)
    copying.deaths.plan(point, who=DRIVER)
    given = [json.dumps(copying.options), json.dumps(copying.into), copying.checkpoint]
    with (tmp_path / "output").open("wb") as output:
        killed = subprocess.run(
            [sys.executable, "-m", "tests.spark.copying_query", *given],
            stdout=output, stderr=output, start_new_session=True, timeout=600, check=False,
        )  # fmt: skip
    assert killed.returncode == -9, (tmp_path / "output").read_text()[-3000:]
    copying.fill(5)
    copying.run(spark)
    copying.check()


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.row("S3")
@pytest.mark.parametrize("heard", [True, False])
def test_a_query_that_is_stopped_before_it_commits(spark, topics: Topics, tmp_path: Path, heard: bool):
    """Spark tells the sink nothing; a listener hears of it, and else the query's next run."""
    copying = Copying(topics, tmp_path)
    copying.fill(4)
    (tmp_path / HELD).touch()
    listener = AbortWhenStopped(copying.into_sink)
    if heard:
        spark.streams.addListener(listener)
    try:
        query = copy(spark, copying.options, copying.into, copying.checkpoint)
        wait_until((tmp_path / HOLDING).exists, "all tasks have ended")
        assert copying.open(query.id)
        query.stop()
        if heard:
            wait_until(lambda: not copying.open(query.id), "what was open is aborted")
        (tmp_path / HELD).unlink()
        copying.run(spark)
        assert not copying.open(query.id)
        copying.check()
    finally:
        if heard:
            spark.streams.removeListener(listener)
        close_clusters()


@pytest.mark.row("S3")
def test_a_batch_query(spark: SparkSession, topics: Topics):
    """All rows, or none: the second one ends in its last row."""
    name = topics.make(2)
    options = {**topics.options(), "topic": name, "transactional": "true"}

    def save(query: str) -> None:
        spark.sql(query).write.format("kraft").options(**options).mode("append").save()

    save("select string(id) as value from range(0, 40, 1, 3)")
    with pytest.raises(PySparkException, match="Message size too large"):
        save("select if(id = 79, repeat('v', 3000000), string(id)) as value from range(40, 80, 1, 3)")
    assert committed(topics, name, 2) == sorted(b"%d" % each for each in range(40))
    assert read(spark, {**topics.options(name), **COMMITTED}).count() == 40


@pytest.mark.long
@pytest.mark.row("S3", "S5")
def test_leaders_and_coordinators_die(spark: SparkSession, cluster: LocalCluster, tmp_path: Path):
    """Whatever the busiest node was, somebody else is by the next micro-batch."""
    copying = Copying(Topics(cluster.bootstrap), tmp_path)
    for node in (1, 2):
        copying.fill(10)
        copying.run(spark)
        cluster.kill(node)
        copying.fill(10)
        copying.run(spark)
        cluster.start_node(node)
    copying.check()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param({"kafka.acks": "1"}, "KAFKA_CLIENT_CONFIG.*idempotence", marks=pytest.mark.long),
        ({"kafka.transaction.timeout.ms": "9999999"}, "(?i)transaction.?timeout"),
    ],
)
def test_options_that_do_not_go_together(spark: SparkSession, topics: Topics, options, says):
    given = {**topics.options(), "topic": topics.make(1), "transactional": "true", **options}
    with pytest.raises(PySparkException, match=says):
        spark.sql("select 'v' as value").write.format("kraft").options(**given).mode("append").save()
