"""More of Apache Kafka's tools: what they see of a cluster, its features, its files, its internal topics."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from pathlib import Path

import pytest

from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from tests.compat.conftest import MakeTopic
from tests.support.clients.rdkafka import send
from tests.support.clients.transactions import transactional, write
from tests.support.kafka.kafka_tools import JVM, TOOLS, KafkaTools
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.row("U2")]

CONSOLE_CONSUMER = "consumer.ConsoleConsumer"
FORMATTERS = "org.apache.kafka.tools.consumer."
READ_ALL_MS = 3_000
"""How long a console consumer waits for more before it ends."""


@pytest.mark.row("Q8")
def test_cluster(bare: KafkaTools, shared_cluster: LocalCluster) -> None:
    where = ("--bootstrap-server", shared_cluster.bootstrap)
    assert bare("ClusterTool", "cluster-id", *where) == f"Cluster ID: {shared_cluster.cluster_id}\n"
    nodes = shared_cluster.nodes.values()
    brokers = bare("ClusterTool", "list-endpoints", *where).splitlines()[1:]
    assert [line.split()[:5] for line in brokers] == [
        [str(node.id), HOST, str(node.client_port), "null", "unfenced"] for node in nodes
    ]
    controller = ("--bootstrap-controller", f"{HOST}:{shared_cluster.node(1).controller_port}")
    controllers = bare("ClusterTool", "list-endpoints", *controller).splitlines()[1:]
    assert [line.split()[:3] for line in controllers] == [
        [str(node.id), HOST, str(node.controller_port)] for node in nodes
    ]


def test_broker_loggers(tools: KafkaTools, shared_cluster: LocalCluster) -> None:
    """Each node's own, changed where the request arrives."""
    config = ("kafka.admin.ConfigCommand", "--entity-type", "broker-loggers", "--entity-name")
    logger = "kraft.broker.lifecycle"

    def level(node: int) -> str:
        (found,) = re.findall(rf"^  {logger}=(\w+) ", tools(*config, str(node), "--describe"), re.MULTILINE)
        return found

    before = {node: level(node) for node in shared_cluster.nodes}
    for node in shared_cluster.nodes:
        tools(*config, str(node), "--alter", "--add-config", f"{logger}=ERROR")
        assert level(node) == "ERROR"
        refused = tools.run(
            *config, str(node), "--bootstrap-server", shared_cluster.bootstrap,
            "--alter", "--add-config", "no.such.logger=ERROR",
        )  # fmt: skip
        assert refused.status == 1
        tools(*config, str(node), "--alter", "--delete-config", logger)
        assert level(node) == before[node]


@pytest.mark.row("L1")
def test_storage_reads_our_directories(bare: KafkaTools, shared_cluster: LocalCluster) -> None:
    properties = shared_cluster.home(2) / "server.properties"
    printed = bare("kafka.tools.StorageTool", "info", "-c", str(properties))
    assert str(shared_cluster.home(2) / "data") in printed
    assert f"cluster.id={shared_cluster.cluster_id}" in printed
    assert "node.id=2" in printed


def test_latency_from_end_to_end(bare: KafkaTools, bootstrap: str, make_topic: MakeTopic) -> None:
    printed = bare("EndToEndLatency", bootstrap, make_topic(), "20", "all", "100")
    assert re.search(r"Avg latency: \d+", printed)


def test_the_compatibility_test_of_apache_kafka(
    tools: KafkaTools, make_topic: MakeTopic, shared_cluster: LocalCluster
) -> None:
    """What its own system tests ask of brokers: produce, times, admin, ACLs, configs, idempotence."""
    abilities = (
        "offsets-for-times", "cluster-id", "create-topics", "describe-acls", "describe-configs",
        "idempotent-producer",
    )  # fmt: skip
    printed = tools(
        "ClientCompatibilityTest", "--topic", make_topic(), "--num-cluster-nodes", "3",
        "--expect-record-too-large-exception", "false",
        *(argument for each in abilities for argument in (f"--{each}-supported", "true")),
    )  # fmt: skip
    assert printed.splitlines()[-1] == "SUCCESS."


def test_console_with_headers_and_tombstones(tools: KafkaTools, make_topic: MakeTopic) -> None:
    topic = make_topic()
    shown = ("--property", "print.headers=true", "--property", "print.key=true")
    tools(
        "ConsoleProducer", "--topic", topic, "--property", "parse.headers=true",
        "--property", "parse.key=true", "--property", "null.marker=NULL",
        stdin="one:1,two:2\tkey\tvalue\nNULL\tgone\tNULL\n",
    )  # fmt: skip
    wanted = "one:1,two:2\tkey\tvalue\nNO_HEADERS\tgone\tnull\n"
    place = ("--partition", "0", "--offset", "0", "--max-messages", "2")
    assert tools(CONSOLE_CONSUMER, "--topic", topic, *place, *shown) == wanted
    pattern = ("--include", f"{topic[:-1]}[{topic[-1]}]", "--from-beginning", "--max-messages", "2")
    assert tools(CONSOLE_CONSUMER, *pattern, *shown) == wanted


@pytest.mark.long
@pytest.mark.row("P4", "G3")
def test_console_consumer_reads_what_coordinators_write(
    tools: KafkaTools, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = transactional(bootstrap, topic)
    producer.begin_transaction()
    write(producer, topic, ["aborted"])
    producer.abort_transaction(PATIENCE_S)
    producer.begin_transaction()
    write(producer, topic, ["committed"])
    producer.commit_transaction(PATIENCE_S)
    values = tools(
        CONSOLE_CONSUMER, "--topic", topic, "--isolation-level", "read_committed", "--group", topic,
        "--from-beginning", "--max-messages", "1",
    )  # fmt: skip
    assert values == "committed\n"

    def all_of(internal: str, formatter: str) -> list[dict[str, dict]]:
        printed = tools(
            CONSOLE_CONSUMER, "--topic", internal, "--from-beginning", "--timeout-ms", str(READ_ALL_MS),
            "--formatter", FORMATTERS + formatter,
        )  # fmt: skip
        # They stand behind each other without a newline.
        return json.loads("[" + printed.replace('}{"key"', '},{"key"') + "]")

    offsets = [
        each["value"]["data"]["offset"]
        for each in all_of("__consumer_offsets", "OffsetsMessageFormatter")
        if each["key"]["data"]["group"] == topic and each["value"]
    ]
    assert offsets[-1] >= 4  # behind two records and the marker of the first
    states = [
        each["value"]["data"]["transactionStatus"]
        for each in all_of("__transaction_state", "TransactionLogMessageFormatter")
        if each["key"]["data"]["transactionalId"] == topic
    ]
    assert [states.count(status) for status in (2, 3, 4, 5)] == [1, 1, 1, 1]  # prepared and completed


@pytest.mark.row("G5")
def test_consumer_groups(tools: KafkaTools, bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    send(bootstrap, topic, ({"value": "v", "partition": 0, "timestamp": 1000 + n} for n in range(5)))
    tools(CONSOLE_CONSUMER, "--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "5")
    group = ("consumer.group.ConsumerGroupCommand", "--group", topic)

    def reset(*how: str) -> dict[str, str]:
        rows = [line.split() for line in tools(*group, "--reset-offsets", *how).splitlines()]
        return {row[2]: row[3] for row in rows if row[:2] == [topic, topic]}

    whole = ("--topic", topic)
    assert reset(*whole, "--to-earliest", "--dry-run") == {"0": "0", "1": "0"}
    assert reset("--topic", f"{topic}:0", "--shift-by=-2", "--dry-run") == {"0": "3"}
    # 1970-01-01T00:00:01.002
    assert reset(*whole, "--to-datetime", "1970-01-01T00:00:01.002+0000", "--dry-run")["0"] == "2"
    assert reset(*whole, "--to-offset", "4", "--execute")["0"] == "4"
    offsets = [line.split()[:6] for line in tools(*group, "--describe", "--offsets").splitlines()]
    assert [topic, topic, "0", "4", "5", "1"] in offsets
    state = tools(*group, "--describe", "--state").split()
    assert "Empty" in state
    assert re.search(rf"^{topic}\s+Classic\s", tools("GroupsCommand", "--list"), re.MULTILINE)
    assert "Successful" in tools(*group, "--delete-offsets", "--topic", topic)
    assert "was successful" in tools(*group, "--delete")
    assert topic not in tools("consumer.group.ConsumerGroupCommand", "--list").split()


def test_streams_application_reset(tools: KafkaTools, bootstrap: str, make_topic: MakeTopic) -> None:
    """Offsets of its input go back, its internal topics are deleted."""
    source = make_topic()
    application = f"app-{source}"
    send(bootstrap, source, [{"value": "v"}] * 3)
    internal = f"{application}-counts-changelog"
    tools("TopicCommand", "--create", "--topic", internal)
    tools(
        CONSOLE_CONSUMER, "--topic", source, "--group", application, "--from-beginning", "--max-messages", "3"
    )
    printed = tools(
        "StreamsResetter", "--application-id", application, "--input-topics", source,
        "--internal-topics", internal, "--to-offset", "1",
    )  # fmt: skip
    assert f"Topic: {source} Partition: 0 Offset: 1" in printed
    wait_until(
        lambda: internal not in tools("TopicCommand", "--list").split(), "the internal topic is deleted"
    )
    described = tools("consumer.group.ConsumerGroupCommand", "--describe", "--group", application)
    assert [line.split()[3:6] for line in described.splitlines() if source in line] == [["1", "3", "2"]]


@pytest.mark.long
@pytest.mark.row("R1")
def test_replica_verification(kafka_jars: Path, bootstrap: str, make_topic: MakeTopic) -> None:
    """It compares what leader and followers have, byte by byte, until it is ended."""
    topic = make_topic(2)
    send(bootstrap, topic, ({"key": str(n), "value": "v" * 100} for n in range(500)))
    tool = subprocess.Popen(
        [
            "java", *JVM, "-cp", f"{kafka_jars}/*", f"{TOOLS}ReplicaVerificationTool",
            "--broker-list", bootstrap, "--topics-include", topic,
            "--time", "-2", "--report-interval-ms", "200",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    with tool:
        watch = threading.Timer(PATIENCE_S, tool.kill)
        watch.start()
        try:
            assert tool.stdout is not None
            reports = (line for line in tool.stdout if "max lag is" in line)
            assert re.search(r"max lag is 0 for .* among 2 partitions", next(reports))
        finally:
            watch.cancel()
            tool.kill()
