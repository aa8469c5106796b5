"""The sink: what is in the rows is in the topic."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_connector.errors import SinkError
from spark_connector.options import sink_options
from spark_connector.producing import write_task
from tests.spark.topics import Topics, read
from tests.support.clients.rdkafka import read as consume

LONG = pytest.mark.long
HEADERS = "array<struct<key:string,value:binary>>"
SCHEMA = f"key string, value binary, headers {HEADERS}, topic string, partition int, n int"


@pytest.mark.row("S3")
def test_round_trip(spark: SparkSession, topics: Topics):
    one, other = topics.make(2), topics.make(2)
    rows = [
        ("k", b"v", [("a", b"1"), ("b", None)], one, 1, 1),
        (None, None, None, one, 1, 2),
        ("", b"", [], other, 0, 3),
    ]
    spark.createDataFrame(rows, SCHEMA).coalesce(1).write.format("kraft").options(**topics.options()).mode(
        "append"
    ).save()
    first, second = consume(topics.bootstrap, one, 2, partition=1)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", [("a", b"1"), ("b", None)])
    assert (second.key(), second.value(), second.headers()) == (None, None, None)
    third = consume(topics.bootstrap, other, 1)[0]
    assert (third.key(), third.value(), third.headers()) == (b"", b"", None)


@pytest.mark.row("S3")
def test_the_option_topic_takes_precedence_over_the_column_and_equal_keys_stay_together(
    spark: SparkSession, topics: Topics
):
    name = topics.make(4)
    rows = spark.range(400).selectExpr(
        "cast(id % 7 as string) as key", "cast(id as string) as value", "'x' as topic"
    )
    rows.write.format("kraft").options(**topics.options(), topic=name).mode("append").save()
    back = read(spark, topics.options(name)).selectExpr(
        "string(key) as key", "string(value) as value", "partition"
    )
    assert sorted(int(row.value) for row in back.collect()) == list(range(400))
    places = {(row.key, row.partition) for row in back.collect()}
    assert len(places) == 7
    # Where Java's client puts the keys 0 to 6 among four partitions (murmur2).
    assert {(str(key), murmur2(str(key).encode()) % 4) for key in range(7)} == places


def murmur2(data: bytes) -> int:
    """Java's partitioner: murmur2 with seed 0x9747b28c, the sign bit cut off."""
    m, h = 0x5BD1E995, 0x9747B28C ^ len(data)
    body = len(data) // 4 * 4
    for at in range(0, body, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & 0xFFFFFFFF
        h = (h * m & 0xFFFFFFFF) ^ ((k ^ k >> 24) * m & 0xFFFFFFFF)
    if tail := data[body:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    return (h ^ h >> 15) & 0x7FFFFFFF


@pytest.mark.row("S3")
def test_rows_for_partitions_that_came_after_the_producer(topics: Topics):
    """A worker keeps its producer, which asks for the number of partitions every few minutes."""
    name = topics.make(1)
    task = write_task(sink_options({**topics.options(), "topic": name}))

    def write(partition: int) -> int:
        return task.run(
            iter([pa.record_batch({"value": [b"v"], "partition": pa.array([partition], pa.int32())})])
        )

    assert write(0) == 1
    topics.grow(name, 3)
    assert write(2) == 1
    assert len(consume(topics.bootstrap, name, 1, partition=2)) == 1
    with pytest.raises(SinkError, match=r"KAFKA_WRITE_FAILED.*Unknown partition"):
        write(3)


@pytest.mark.heavy
@pytest.mark.row("S3")
def test_from_stream_to_stream(spark: SparkSession, topics: Topics, checkpoint: str):
    into, out = topics.make(), topics.make()
    loaded = (
        spark.readStream.format("kraft")
        .options(**topics.options(into, startingOffsets="earliest"))
        .option("includeHeaders", "true")
        .load()
    )
    writer = loaded.writeStream.format("kraft").options(**topics.options(), topic=out)
    for rounds in (range(20), range(20, 30)):
        topics.fill(into, rounds, headers=[("h", b"x")])
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    source, copy = (
        sorted(
            (row.partition, row.offset, bytes(row.value), [tuple(header) for header in row.headers])
            for row in read(spark, topics.options(name, includeHeaders="true")).collect()
        )
        for name in (into, out)
    )
    assert len(source) == 90
    assert copy == source


def save(rows, **options):
    rows.write.format("kraft").options(**options).mode("append").save()


@pytest.mark.row("S3")
@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        ("select 5 as value, 't' as topic", {}, "'value' is of type int"),
        ("select 'v' as value, 99 as partition", {"topic": "?"}, "partition"),
        pytest.param("select 'v' as value", {"topic": "t", "kafka.no.such": "x"}, "no.such", marks=LONG),
        pytest.param("select 'v' as value", {"topic": "t", "topics": "x"}, "mean 'topic'", marks=LONG),
        pytest.param("select repeat('v', 3000000) as value", {"topic": "?"}, "(?i)size|large", marks=LONG),
    ],
)
def test_what_cannot_be_written(spark, topics, rows, options, says):
    given = {**topics.options(), **options}
    if given.get("topic") == "?":
        given["topic"] = topics.make(1)
    with pytest.raises(PySparkException, match=says):
        save(spark.sql(rows), **given)


def test_other_modes_than_append(spark: SparkSession, topics: Topics):
    with pytest.raises(PySparkException, match="only be appended"):
        spark.sql("select 'v' as value").write.format("kraft").options(**topics.options(), topic="t").mode(
            "overwrite"
        ).save()


def test_a_broker_that_is_not_there(spark: SparkSession, free_ports):
    options = {
        "kafka.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}",
        "kafka.delivery.timeout.ms": "1000",
    }
    with pytest.raises(PySparkException, match=r"KAFKA_WRITE_FAILED.*[Tt]imed out"):
        save(spark.sql("select 'v' as value"), **options, topic="t")
