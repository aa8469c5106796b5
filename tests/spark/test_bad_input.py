"""What cannot be meant: one clear error that names the option, and soon."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.session import ROOT
from tests.spark.topics import Collected, Topics, read, stream

pytestmark = pytest.mark.heavy

REDACTION = "spark.sql.redaction.options.regex"
DOCUMENTED = re.findall(rf'"{re.escape(REDACTION)}", r"(.*)"', Path(ROOT, "docs", "SPARK.md").read_text())
"""Spark itself takes no key for a secret."""


def long(options: dict[str, str], says: str) -> object:
    """Queries of Spark for what is seen without one, too (tests/unit/spark/test_options.py)."""
    return pytest.param(options, says, marks=pytest.mark.long)


@pytest.mark.row("S1")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffset": "earliest"}, "'startingoffset': is unknown.*did you mean 'startingOffsets'"),
        long({"subscribePattern": "x"}, "'subscribePattern': only one of"),
        long({"startingOffsets": "newest"}, "'startingOffsets': is earliest, latest or"),
        long({"kafka.auto.offset.reset": "earliest"}, "'kafka.auto.offset.reset': is not supported"),
        long({"kafka.isolation.levl": "x"}, "did you mean 'kafka.isolation.level'"),
        ({"kafka.bootstrap.servers": ""}, "'kafka.bootstrap.servers': must be set"),
        long({"failOnDataLoss": "maybe"}, "'failOnDataLoss': is 'true' or 'false'"),
    ],
)  # fmt: skip
def test_a_source_that_cannot_be_loaded(spark, topics, options, says):
    for reader in (spark.read, spark.readStream):
        with pytest.raises(PySparkException, match=says):
            reader.format("kraft").options(**{**topics.options("t"), **options}).load()


@pytest.mark.row("S1")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        long({"startingOffsets": "latest"}, "'startingOffsets': can't be latest for batch"),
        long({"subscribe": "no-such-topic"}, "'subscribe': topic no-such-topic does not exist"),
        ({"startingOffsets": '{"%s":{"0":0}}'}, "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"),
        long({"startingTimestamp": "9999999999999"}, "startingOffsetsByTimestampStrategy"),
        long({"kafka.bootstrap.servers": "nonsense"}, "'kafka.bootstrap.servers': 'nonsense'"),
        ({"endingOffsets": '{"%s":{"0":0,"1":0}}', "startingTimestamp": "0"}, "RESOLVED_START_OFFSET"),
    ],
)  # fmt: skip
def test_a_batch_query_that_cannot_be_run(spark, topics, options, says):
    name = topics.make(2)
    topics.fill(name, range(2), partitions=2)
    topics.forget(name, 0, 1)
    given = {key: value.replace("%s", name) for key, value in options.items()}
    with pytest.raises(PySparkException, match=says):
        read(spark, {**topics.options(name), **given}).count()


def test_a_schema_of_ones_own(spark: SparkSession, topics: Topics):
    with pytest.raises(PySparkException, match="schema of its own"):
        spark.read.schema("value string").format("kraft").options(**topics.options("t")).load().count()


@pytest.mark.long
@pytest.mark.row("S1")
def test_a_stream_with_an_end(spark: SparkSession, topics: Topics, checkpoint: str):
    options = topics.options("t", endingOffsets="latest")
    with pytest.raises(PySparkException, match="'endingOffsets': is for batch queries"):
        stream(spark, options, checkpoint, Collected()).awaitTermination()


@pytest.mark.row("S1")
def test_a_cluster_that_is_not_there(spark: SparkSession, free_ports, checkpoint: str):
    options = {
        "kafka.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}",
        "kafka.default.api.timeout.ms": "500",
        "subscribe": "t",
    }
    for query in (
        lambda: read(spark, options).count(),
        lambda: stream(spark, options, checkpoint, Collected()).awaitTermination(),
    ):
        with pytest.raises(PySparkException, match=r"UNREACHABLE.*'kafka\.bootstrap\.servers'"):
            query()


@pytest.mark.row("S1")
def test_secrets_are_not_shown(spark: SparkSession, topics: Topics, capfd):
    name = topics.make(1)
    secrets = {
        "kafka.sasl.jaas.config": 'PlainLoginModule required username="u" password="hush-hush";',
        "kafka.ssl.key.password": "hush-hush",
        "kafka.ssl.keystore.key": "hush-hush",
        "kafka.ssl.key.pem": "hush-hush",
    }
    spark.conf.set(REDACTION, *DOCUMENTED)
    options = {**topics.options(name), **secrets}
    loaded = read(spark, options)
    loaded.explain(True)
    assert loaded.count() == 0
    with pytest.raises(PySparkException) as caught:
        read(spark, {**options, "startingOffsets": "latest"}).count()
    printed = capfd.readouterr()
    for text in (printed.out, printed.err, str(caught.value), repr(caught.value)):
        assert "hush" not in text
