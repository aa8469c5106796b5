"""Our command line on Apache Kafka: its questions that librdkafka has no calls for, too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients.transactions import transactional
from tests.support.kafka.kafka_node import KafkaNode
from tests.support.nodes.role_nodes import BOTH, role_nodes

pytestmark = [pytest.mark.long, pytest.mark.kafka]

ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
}


@pytest.fixture(scope="module")
def bootstrap(
    kafka_node: KafkaNode, tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("kafka")
    with role_nodes(directory, free_ports(2), {1: BOTH}, ALONE, software={1: kafka_node}) as nodes:
        yield nodes.bootstrap


def kraft(bootstrap: str, *arguments: str, status: int = 0) -> str:
    command = [sys.executable, "-m", "kraft", *arguments, "-b", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_transactions(bootstrap: str) -> None:
    assert (
        kraft(bootstrap, "txn", "describe", "nobody", status=1)
        == "kraft: nobody: there is no such transactional id\n"
    )
    producer = transactional(bootstrap, "anna")
    assert kraft(bootstrap, "txn", "describe", "anna").startswith("State: Empty\n")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result()
    producer.begin_transaction()
    producer.produce("t", b"value")
    producer.flush()
    ongoing = kraft(bootstrap, "txn", "describe", "anna")
    assert "State: Ongoing\n" in ongoing
    assert "Partitions: t-0\n" in ongoing
    producer.commit_transaction()
    assert "Open: -\n" in kraft(bootstrap, "txn", "describe", "anna")
    producer.begin_transaction()
    producer.produce("t", b"value")
    producer.flush()
    assert "Ongoing" in kraft(bootstrap, "txn", "list")
    assert "its producer is fenced" in kraft(bootstrap, "txn", "abort", "anna")


def test_metadata(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [f"dumped-{number}" for number in range(60)]
    for made in admin.create_topics([NewTopic(name, 3, 1) for name in names]).values():
        made.result()
    dumped = kraft(bootstrap, "metadata", "dump")
    assert all(name in dumped for name in names)
    assert kraft(bootstrap, "quorum", "status").startswith("LeaderId: 1\n")
