"""Apache Kafka's tools that put a cluster right: leaders that are not where they should be, a transaction
that nobody ends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.local_cluster import LocalCluster
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.batch import Record, encode_batch
from tests.support.clients.rdkafka import send
from tests.support.clients.transactions import committed
from tests.support.clients.wire_client import Wire
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.nodes.cluster import running_cluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.row("U2")]

PRODUCE_VERSION = 11
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    # As in clusters of before KIP-890, where late batches could open transactions.
    "transaction.partition.verification.enable": "false",
}
LONG_AGO_MS = 1_000


@pytest.fixture(scope="module")
def trusting(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("trusting"), free_ports(9), SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def tools(kafka_jars: Path, trusting: LocalCluster) -> KafkaTools:
    return KafkaTools(kafka_jars, trusting.bootstrap)


def create(cluster: LocalCluster, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result()


def leaders(tools: KafkaTools, topic: str) -> tuple[list[str], list[str]]:
    """Who leads each partition, and who should."""
    described = tools("TopicCommand", "--describe", "--topic", topic)
    return re.findall(r"Leader: (\d)", described), re.findall(r"Replicas: (\d)", described)


@pytest.mark.row("Q11")
def test_leaders_go_back_to_where_they_should_be(
    tools: KafkaTools, trusting: LocalCluster, tmp_path: Path
) -> None:
    topic = "elected"
    create(trusting, topic, 6)
    trusting.kill(2)
    trusting.start_node(2)
    wait_until(
        lambda: tools("TopicCommand", "--describe", "--under-replicated-partitions") == "",
        "node 2 is in sync",
    )
    actual, preferred = leaders(tools, topic)
    wrong = [number for number in range(6) if actual[number] != preferred[number]]
    assert [preferred[number] for number in wrong] == ["2", "2"]
    one = tmp_path / "election.json"
    one.write_text(json.dumps({"partitions": [{"topic": topic, "partition": wrong[0]}]}))
    elected = tools("LeaderElectionCommand", "--election-type", "preferred", "--path-to-json-file", str(one))
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-{wrong[0]}" in elected
    actual, _ = leaders(tools, topic)
    assert [number for number in range(6) if actual[number] != preferred[number]] == wrong[1:]
    tools("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    actual, _ = leaders(tools, topic)
    assert actual == preferred


@pytest.mark.row("P4")
def test_a_hanging_transaction_is_found_and_aborted(tools: KafkaTools, trusting: LocalCluster) -> None:
    topic = "hanging"
    create(trusting, topic, 1)
    send(trusting.bootstrap, topic, [{"value": "before"}])
    record = Record(timestamp=LONG_AGO_MS, key=None, value=b"of nobody")
    batch = encode_batch([record], producer_id=4321, producer_epoch=0, base_sequence=0, transactional=True)
    (leader,), _ = leaders(tools, topic)
    with Wire() as wire:
        answer = wire.ask(
            trusting.node(int(leader)).client_port, ApiKey.PRODUCE, PRODUCE_VERSION, acks=-1,
            timeout_ms=10_000, transactional_id="long gone",
            topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
        )  # fmt: skip
    assert answer.responses[0].partition_responses[0].error_code == 0
    send(trusting.bootstrap, topic, [{"value": "behind"}])
    assert committed(trusting.bootstrap, topic) == ["before"]

    def hanging() -> list[list[str]]:
        found = tools("TransactionsCommand", "find-hanging", "--topic", topic).splitlines()[1:]
        return [line.split() for line in found if line.strip()]

    ((name, partition, producer_id, *_),) = hanging()
    assert (name, partition, producer_id) == (topic, "0", "4321")
    tools("TransactionsCommand", "abort", "--topic", topic, "--partition", "0", "--start-offset", "1")
    assert hanging() == []
    assert committed(trusting.bootstrap, topic) == ["before", "behind"]
