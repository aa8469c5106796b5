"""Batch queries: every way to say what to read."""

from __future__ import annotations

import json
import time

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.spark.topics import Topics, expected, read, records
from tests.support.clients.rdkafka import send

ROUNDS = range(20)
T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def filled(topics: Topics) -> str:
    """Three partitions of twenty records, a second apart."""
    name = topics.make(name="batch")
    for each in ROUNDS:
        topics.fill(name, range(each, each + 1), timestamp=T0 + 1000 * each)
    return name


def test_columns(spark: SparkSession, topics: Topics):
    name = topics.make(1)
    before = int(time.time() * 1000)
    send(
        topics.bootstrap,
        name,
        [
            {"key": b"k", "value": b"v", "headers": [("a", b"1"), ("a", None)], "timestamp": T0 + 1},
            {"key": None, "value": None},
        ],
    )
    loaded = read(spark, topics.options(name, includeHeaders="true"))
    assert loaded.schema == StructType(
        [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("timestamp", TimestampType()),
            StructField("timestampType", IntegerType()),
            StructField(
                "headers",
                ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
            ),
        ]
    )
    first, second = loaded.selectExpr("*", "unix_millis(timestamp) as ms").orderBy("offset").collect()
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (b"k", b"v", name, 0, 0)
    assert (first.ms, first.timestampType) == (T0 + 1, 0)
    assert [tuple(header) for header in first.headers] == [("a", b"1"), ("a", None)]
    assert (second.key, second.value, second.offset, second.headers) == (None, None, 1, None)
    assert second.ms >= before
    assert "headers" not in read(spark, topics.options(name)).columns


def at(*offsets: int) -> str:
    """JSON for all partitions of the topic; `{}` stands for its name."""
    return '{"{}":' + json.dumps({str(number): offset for number, offset in enumerate(offsets)}) + "}"


@pytest.mark.row("S1", "S2")
@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({}, (0, 0, 0), (20, 20, 20)),
        ({"startingOffsets": at(5, -2, 19), "endingOffsets": at(7, -1, 20)}, (5, 0, 19), (7, 20, 20)),
        ({"startingTimestamp": str(T0 + 4500), "endingTimestamp": str(T0 + 7000)}, (5, 5, 5), (7, 7, 7)),
        (
            {
                "startingOffsetsByTimestamp": at(T0 + 1000, T0, T0 + 19_000),
                "endingOffsetsByTimestamp": at(T0 + 2000, T0, T0 + 60_000),
            },
            (1, 0, 19),
            (2, 0, 20),
        ),
        (
            {"startingTimestamp": str(T0 + 60_000), "startingOffsetsByTimestampStrategy": "latest"},
            (20, 20, 20),
            (20, 20, 20),
        ),
    ],
    ids=["all", "offsets", "time", "times", "no-record-young-enough"],
)
def test_from_where_to_where(spark, topics, filled, options, first, last):
    given = {key: value.replace("{}", filled, 1) for key, value in options.items()}
    got = records(read(spark, topics.options(filled, **given)).collect())
    assert got == [each for each in expected(ROUNDS) if first[each[0]] <= each[1] < last[each[0]]]


@pytest.mark.heavy
@pytest.mark.row("S2")
def test_which_partitions(spark: SparkSession, topics: Topics, filled: str):
    assigned = topics.options(assign=json.dumps({filled: [0, 2]}), endingOffsets="latest")
    assert records(read(spark, assigned).collect()) == [each for each in expected(ROUNDS) if each[0] != 1]
    others = topics.make(1, name="batch-too")
    topics.fill(others, range(2), partitions=1)
    pattern = topics.options(subscribePattern=f"^({filled}|batch-too.*)$")
    counts = {row.topic: row["count"] for row in read(spark, pattern).groupBy("topic").count().collect()}
    assert counts == {filled: 60, others: 2}
    both = topics.options(f" {filled} , {others}")
    assert read(spark, both).count() == 62


@pytest.mark.row("S2")
@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, 3),
        ({"minPartitions": "6"}, 6),
        ({"maxRecordsPerPartition": "5"}, 12),
        ({"startingOffsets": "earliest", "endingOffsets": "latest", "minPartitions": "2"}, 3),
    ],
)
def test_how_many_tasks(spark, topics, filled, options, tasks):
    loaded = read(spark, topics.options(filled, **options))
    assert loaded.rdd.getNumPartitions() == tasks
    assert records(loaded.collect()) == expected(ROUNDS)


@pytest.mark.heavy
@pytest.mark.row("S4")
def test_filters_are_pushed_down_where_spark_allows_it(spark: SparkSession, topics: Topics, filled: str):
    second = T0 // 1000 + 6
    condition = f"partition in (0, 1) and offset between 3 and 9 and timestamp >= timestamp_seconds({second})"
    wanted = [each for each in expected(ROUNDS) if each[0] in (0, 1) and 6 <= each[1] <= 9]
    tasks = {}
    for allowed in ("false", "true"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", allowed)
        try:
            loaded = read(spark, topics.options(filled)).where(condition)
            assert records(loaded.collect()) == wanted
            tasks[allowed] = loaded.rdd.getNumPartitions()
            plan = loaded._jdf.queryExecution().executedPlan().toString()
        finally:
            spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert tasks == {"false": 3, "true": 2}
    assert "offset" not in plan.partition("Filter")[2].partition("\n")[0]  # Spark leaves it to us


@pytest.mark.row("S1")
def test_an_empty_topic(spark: SparkSession, topics: Topics):
    assert read(spark, topics.options(topics.make(2))).count() == 0
