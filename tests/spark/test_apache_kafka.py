"""The source and the sink on Apache Kafka: the whole suite, and who has no rights there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests.spark.refusals import check_a_sink_that_may_only_write, check_refusals
from tests.spark.topics import Topics, read
from tests.support.kafka.apache_kafka import PASSWORD, USER, ApacheKafka, running_kafka

ROOT = Path(__file__).parents[2]
SUITE_PATIENCE_S = 1500
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{USER}",
    "allow.everyone.if.no.acl.found": "true",
}

pytestmark = [pytest.mark.long, pytest.mark.kafka]


@pytest.fixture(scope="module")
def kafka(
    kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[ApacheKafka]:
    directory = tmp_path_factory.mktemp("kafka")
    with running_kafka(kafka_jars, directory, free_ports(3), AUTHORIZER) as running:
        yield running


@pytest.mark.timeout(SUITE_PATIENCE_S + 60)
@pytest.mark.row("S1", "S2", "S3")
def test_the_suite(kafka: ApacheKafka):
    """All of tests/spark but what kills nodes, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/spark", "-q", "-m", "not long", "-p", "no:cacheprovider"],
        cwd=ROOT, env={**os.environ, "KRAFT_SPARK_TESTS_BOOTSTRAP": kafka.bootstrap},
        capture_output=True, text=True, timeout=SUITE_PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-10_000:]


@pytest.mark.row("S1", "S3")
def test_behind_tls_and_sasl(spark: SparkSession, kafka: ApacheKafka):
    """Source, sink, and what the driver asks for transactions: all with the properties of Java's client."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    options = {
        "kafka.bootstrap.servers": kafka.secured,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.certificate),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{module} required username="{USER}" password="{PASSWORD}";',
    }
    name = Topics(kafka.bootstrap).make(2)
    for transactional in ("false", "true"):
        rows = spark.range(50).selectExpr("string(id) as value")
        given = {**options, "topic": name, "transactional": transactional}
        rows.write.format("kraft").options(**given).mode("append").save()
    assert read(spark, {**options, "subscribe": name}).count() == 100


@pytest.mark.row("S1")
def test_no_rights(spark: SparkSession, kafka: ApacheKafka, checkpoint: str):
    admin = AdminClient(
        {
            "bootstrap.servers": kafka.secured,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(kafka.certificate),
        }
    )
    check_refusals(spark, Topics(kafka.bootstrap), admin, checkpoint)
    check_a_sink_that_may_only_write(Topics(kafka.bootstrap), admin)
