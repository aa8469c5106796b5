"""The Spark reader on Apache Kafka: transactions, codecs, and a broker that asks who is there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from metadata_quorum.foundation.model import TopicPartition
from spark_connector.connections import close_clusters, cluster_client
from spark_connector.errors import OptionError, SourceError
from spark_connector.reader import read_range
from tests.support.kafka.apache_kafka import PASSWORD, STORE_PASSWORD, USER, ApacheKafka, running_kafka

pytestmark = [pytest.mark.kafka, pytest.mark.row("S1")]

TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, 0)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROUNDS = 3
RECORDS = 50
"""In one transaction."""


@pytest.fixture(scope="module")
def kafka(
    kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[ApacheKafka]:
    with running_kafka(kafka_jars, tmp_path_factory.mktemp("kafka"), free_ports(3)) as running:
        yield running


@pytest.fixture(autouse=True)
def _closed_afterwards() -> Iterator[None]:
    yield
    close_clusters()


@pytest.fixture(scope="module")
def committed(kafka: ApacheKafka) -> list[tuple[bytes, bytes]]:
    """What is in the topic for good: of every codec, every other transaction."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
    kept = []
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap, "transactional.id": codec, "compression.type": codec}
        )
        producer.init_transactions()
        for nth in range(ROUNDS):
            records = [
                (b"%d" % number, b"%s %d %03d" % (codec.encode(), nth, number)) for number in range(RECORDS)
            ]
            producer.begin_transaction()
            for key, value in records:
                producer.produce(TOPIC, value, key, headers=[("codec", codec.encode())])
            if nth % 2:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                kept += records
    return kept


def read(properties: dict[str, str], *, headers: bool = False) -> list[dict[str, object]]:
    source = cluster_client(properties)
    start, end = source.earliest([PARTITION])[PARTITION], source.latest([PARTITION])[PARTITION]
    batches = read_range(properties, TOPIC, 0, start, end, include_headers=headers)
    return [row for batch in batches for row in batch.to_pylist()]


def secured(kafka: ApacheKafka, mechanism: str, module: str, password: str = PASSWORD) -> dict[str, str]:
    """As Java's clients are configured."""
    return {
        "bootstrap.servers": kafka.secured,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.certificate),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'org.apache.kafka.{module} required username="{USER}" password="{password}";',
    }


def test_committed_records_only(kafka: ApacheKafka, committed: list[tuple[bytes, bytes]]) -> None:
    rows = read({"bootstrap.servers": kafka.bootstrap, "isolation.level": "read_committed"}, headers=True)
    assert [(row["key"], row["value"]) for row in rows] == committed
    assert all(row["headers"] == [{"key": "codec", "value": row["value"].split()[0]}] for row in rows)  # type: ignore[attr-defined]
    everything = read({"bootstrap.servers": kafka.bootstrap})
    assert len(everything) == len(CODECS) * ROUNDS * RECORDS


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "common.security.plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "common.security.scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "common.security.scram.ScramLoginModule"),
    ],
)
def test_behind_tls_and_sasl(
    kafka: ApacheKafka, committed: list[tuple[bytes, bytes]], mechanism: str, module: str
) -> None:
    properties = secured(kafka, mechanism, module) | {"isolation.level": "read_committed"}
    assert [(row["key"], row["value"]) for row in read(properties)] == committed


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password(kafka: ApacheKafka, mechanism: str) -> None:
    module = f"common.security.{mechanism[:5].lower()}.{mechanism[:5].title()}LoginModule"
    with pytest.raises(SourceError, match="SASL_AUTHENTICATION_FAILED") as caught:
        cluster_client(secured(kafka, mechanism, module, "wrong secret")).topic_names()
    assert "wrong secret" not in str(caught.value)


def test_a_truststore_of_java_converted_as_the_error_says(
    kafka: ApacheKafka, committed: list[tuple[bytes, bytes]], tmp_path: Path
) -> None:
    store, pem = kafka.certificate.with_suffix(".p12"), tmp_path / "ca.pem"
    properties = secured(kafka, "PLAIN", "common.security.plain.PlainLoginModule")
    with pytest.raises(OptionError, match="keytool -list -rfc -keystore STORE"):
        cluster_client(properties | {"ssl.truststore.location": str(store), "ssl.truststore.type": "PKCS12"})
    with pem.open("wb") as out:
        keytool = ["keytool", "-list", "-rfc", "-keystore", str(store), "-storepass", STORE_PASSWORD]
        subprocess.run(keytool, stdout=out, check=True)
    assert cluster_client(properties | {"ssl.truststore.location": str(pem)}).topic_names() == [TOPIC]


def test_a_broker_that_nobody_vouches_for(kafka: ApacheKafka) -> None:
    properties = secured(kafka, "PLAIN", "common.security.plain.PlainLoginModule")
    del properties["ssl.truststore.location"]
    with pytest.raises(SourceError, match=r"\[TLS\] .* is not trusted"):
        cluster_client(properties).topic_names()
