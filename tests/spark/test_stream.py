"""Streaming queries: how far micro-batches read, what comes and goes meanwhile, what Spark learns."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from metadata_quorum.foundation.model import TopicPartition
from spark_connector.offsets import (
    Offsets,
    from_spark,
)
from spark_connector.progress import offsets_behind_latest
from spark_connector.reader import LEAST_FETCH_BYTES
from tests.spark.topics import LIMITED_STEPS, Collected, Topics, expected, read, stream
from tests.support.waiting import wait_until

limited_steps = pytest.mark.skipif(not LIMITED_STEPS, reason="AvailableNow is one micro-batch in Spark 4.1")


def source_of(query: StreamingQuery) -> dict:
    """What the last micro-batch's progress says of the source."""
    progress = query.lastProgress
    assert progress is not None
    return json.loads(progress.json)["sources"][0]


def ends(topic: str, *offsets: int) -> Offsets:
    return {TopicPartition(topic, partition): offset for partition, offset in enumerate(offsets)}


@limited_steps
@pytest.mark.row("S1", "S2")
def test_available_now_in_limited_steps(spark: SparkSession, topics: Topics, checkpoint: str):
    name = topics.make()
    topics.fill(name, range(10))
    topics.fill(name, range(10, 40), partitions=1)
    options = topics.options(name, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    got = Collected()
    query = stream(spark, options, checkpoint, got)
    query.awaitTermination()
    assert got.records() == sorted(expected(range(10)) + expected(range(10, 40), 1))
    # Of 40 : 10 : 10 records 20 are 13 : 3 : 3, and so on; never more than 20.
    assert [len(each) for each in got.batches.values()] == [13 + 3 + 3, 13 + 3 + 3, 12 + 3 + 3, 2 + 1 + 1]
    assert [
        offsets_behind_latest(each.sources[0])["maxOffsetsBehindLatest"] for each in query.recentProgress
    ][:4] == [27, 14, 2, 0]
    source = source_of(query)
    assert from_spark(source["endOffset"]) == from_spark(source["latestOffset"]) == ends(name, 40, 10, 10)
    # What comes later is for the next run.
    topics.fill(name, range(10, 12))
    later = Collected()
    stream(spark, options, checkpoint, later).awaitTermination()
    assert len(later.records()) == 6


@pytest.mark.heavy
@pytest.mark.row("S1", "S2")
def test_a_query_that_begins_at_the_end_follows_what_comes(
    spark: SparkSession, topics: Topics, checkpoint: str
):
    name = topics.make(2)
    topics.fill(name, range(5), partitions=2)
    got = Collected()
    query = stream(spark, topics.options(name), checkpoint, got, processingTime="0 seconds")
    try:
        query.processAllAvailable()
        assert got.records() == []
        topics.fill(name, range(5, 8), partitions=2)
        query.processAllAvailable()
        assert got.records() == expected(range(5, 8), 2)
        topics.grow(name, 3)
        topics.fill(name, range(1), partitions=3)
        wait_until(lambda: len(got.records()) == 9, "the new partition's first record")
        known = ends(name, 9, 9, 1)
        wait_until(
            lambda: from_spark(source_of(query)["latestOffset"]) == known,
            "progress that tells of the partition",
        )
    finally:
        query.stop()


@pytest.mark.heavy
@pytest.mark.row("S2")
def test_a_micro_batch_waits_for_enough_records(spark: SparkSession, topics: Topics, checkpoint: str):
    name = topics.make(1)
    options = topics.options(
        name, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="1h"
    )
    got = Collected()
    query = stream(spark, options, checkpoint, got, processingTime="0 seconds")
    try:
        query.processAllAvailable()
        topics.fill(name, range(9), partitions=1)
        query.processAllAvailable()
        assert got.records() == []
        topics.fill(name, range(9, 10), partitions=1)  # one, so that no record of these comes too late for it
        wait_until(got.records, "the micro-batch")
        assert got.records() == expected(range(10), 1)
    finally:
        query.stop()


@pytest.mark.heavy
@pytest.mark.row("S2")
def test_new_topics_that_match_the_pattern(spark: SparkSession, topics: Topics, checkpoint: str):
    first = topics.make(1, name="pattern")
    topics.fill(first, range(3), partitions=1)
    options = topics.options(subscribePattern="pattern-.*", startingOffsets="earliest")
    got = Collected()
    query = stream(spark, options, checkpoint, got, processingTime="0 seconds")
    try:
        wait_until(lambda: len(got.records()) == 3, "the first topic")
        topics.fill(topics.make(1, name="pattern"), range(4), partitions=1)
        wait_until(lambda: len(got.records()) == 7, "the second topic")
    finally:
        query.stop()


def slow_query(spark, topics, checkpoint, **options):
    """A query that has read half of a topic when the rest of it is lost to retention; its records. What is
    lost is too large to have been fetched with what comes before, and kept."""
    name = topics.make(1)
    topics.fill(name, range(4), partitions=1)
    topics.fill(name, range(4, 10), partitions=1, key=bytes(LEAST_FETCH_BYTES))
    given = topics.options(name, startingOffsets="earliest", maxOffsetsPerTrigger="4", **options)
    got = Collected()

    def slow(rows, batch):
        got(rows, batch)
        if batch == 0:
            topics.forget(name, 0, 7)

    query = stream(spark, given, checkpoint, slow)
    return query, got


@limited_steps
@pytest.mark.row("S2")
def test_records_lost_to_retention_end_the_query(spark: SparkSession, topics: Topics, checkpoint: str):
    query, got = slow_query(spark, topics, checkpoint)
    with pytest.raises(StreamingQueryException, match=r"KAFKA_DATA_LOSS.*'failOnDataLoss' to 'false'"):
        query.awaitTermination()
    assert got.records() == expected(range(4), 1)


@limited_steps
@pytest.mark.long
@pytest.mark.row("S2")
def test_records_lost_to_retention_are_passed_over(spark: SparkSession, topics: Topics, checkpoint: str):
    query, got = slow_query(spark, topics, checkpoint, failOnDataLoss="false")
    query.awaitTermination()
    assert got.records() == sorted(expected(range(4), 1) + expected(range(7, 10), 1))


@pytest.mark.long
@pytest.mark.row("S2")
def test_a_topic_that_was_deleted(spark: SparkSession, topics: Topics, checkpoint: str):
    stays, goes = topics.make(1), topics.make(1)
    for name in (stays, goes):
        topics.fill(name, range(3), partitions=1)
    options = topics.options(f"{stays},{goes}", startingOffsets="earliest")
    stream(spark, options, checkpoint, Collected()).awaitTermination()
    topics.delete(goes)
    topics.fill(stays, range(3, 5), partitions=1)
    got = Collected()
    stream(spark, {**options, "failOnDataLoss": "false"}, checkpoint, got).awaitTermination()
    assert got.records() == expected(range(3, 5), 1)


@pytest.mark.heavy
@pytest.mark.row("S2")
def test_a_topic_that_was_recreated(spark: SparkSession, topics: Topics, checkpoint: str):
    """Offsets of the old one mean nothing in it; its first records are not passed over in silence."""
    name = topics.make(1)
    topics.fill(name, range(3), partitions=1)
    options = topics.options(name, startingOffsets="earliest")
    stream(spark, options, checkpoint, Collected()).awaitTermination()
    topics.make_anew(name, 1)
    topics.fill(name, range(10, 15), partitions=1)
    with pytest.raises(StreamingQueryException, match=rf"KAFKA_DATA_LOSS.*{name}: deleted and re-created"):
        stream(spark, options, checkpoint, Collected()).awaitTermination()
    got = Collected()
    stream(spark, {**options, "failOnDataLoss": "false"}, checkpoint, got).awaitTermination()
    assert [value for _, _, value in got.records()] == [b"0/%d" % each for each in range(10, 15)]


@pytest.mark.long
@pytest.mark.row("S1")
def test_two_sources_in_one_query(spark: SparkSession, topics: Topics, checkpoint: str):
    name = topics.make(1)
    topics.fill(name, range(3), partitions=1)
    options = topics.options(name, startingOffsets="earliest")
    load = spark.readStream.format("kraft").options(**options).load
    rows: list[int] = []
    query = (
        load()
        .union(load())
        .writeStream.foreachBatch(lambda batch, _: rows.append(batch.count()))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sum(rows) == 2 * read(spark, topics.options(name)).count() == 6
