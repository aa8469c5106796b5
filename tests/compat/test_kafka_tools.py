"""Apache Kafka's own shell tools against our nodes: what they print is what they print of a Kafka."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from tests.compat.conftest import MakeTopic
from tests.support.clients.rdkafka import read, send
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.nodes.cluster import FEW_COORDINATORS
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.row("U2")]


def table(text: str) -> list[list[str]]:
    """The words of each line that has any."""
    return [line.split() for line in text.splitlines() if line.strip()]


def test_the_life_of_a_topic(tools: KafkaTools) -> None:
    topic = ("TopicCommand", "--topic", "jvm-life")
    made = tools(
        *topic, "--create", "--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=9"
    )
    assert made == "Created topic jvm-life.\n"
    tools(*topic, "--alter", "--partitions", "3")
    first, *partitions = tools(*topic, "--describe").splitlines()
    assert "PartitionCount: 3\tReplicationFactor: 3" in first
    assert "retention.ms=9" in first
    for number, line in enumerate(partitions):
        found = dict(part.split(": ") for part in line.strip().split("\t") if ": " in part)
        assert found["Partition"] == str(number)
        assert found["Leader"] == found["Replicas"].split(",")[0]
        assert sorted(found["Isr"].split(",")) == ["1", "2", "3"]
    assert "jvm-life" in tools("TopicCommand", "--list").splitlines()
    assert tools("TopicCommand", "--describe", "--unavailable-partitions") == ""
    tools(*topic, "--delete")
    assert "jvm-life" not in tools("TopicCommand", "--list").splitlines()


@pytest.mark.row("P5")
def test_console_producer_and_consumer(tools: KafkaTools, bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    tools(
        "ConsoleProducer", "--topic", topic, "--compression-codec", "zstd",
        "--property", "parse.key=true", "--property", "key.separator=:",
        stdin="".join(f"key-{n}:value-{n}\n" for n in range(30)),
    )  # fmt: skip
    read_back = tools(
        "consumer.ConsoleConsumer", "--topic", topic, "--group", "jvm-console", "--from-beginning",
        "--max-messages", "30", "--property", "print.key=true", "--property", "print.partition=true",
    )  # fmt: skip
    found = {
        key: (place, value) for place, key, value in (line.split("\t") for line in read_back.splitlines())
    }
    assert {key: value for key, (_, value) in found.items()} == {f"key-{n}": f"value-{n}" for n in range(30)}
    # librdkafka's murmur2 sends the same keys to the same partitions.
    reports = send(
        bootstrap, topic, ({"key": f"key-{n}", "value": ""} for n in range(30)), partitioner="murmur2_random"
    )
    for report in reports:
        assert found[report.key().decode()][0] == f"Partition:{report.partition()}"
    groups = tools("consumer.group.ConsumerGroupCommand", "--list").split()
    assert "jvm-console" in groups
    described = table(tools("consumer.group.ConsumerGroupCommand", "--describe", "--group", "jvm-console"))
    offsets = {
        int(row[2]): (int(row[3]), int(row[4])) for row in described if row[:2] == ["jvm-console", topic]
    }
    assert sum(committed for committed, _ in offsets.values()) == 30
    assert sum(end for _, end in offsets.values()) == 60


def test_configs(tools: KafkaTools, make_topic: MakeTopic) -> None:
    topic = make_topic()
    resource = ("kafka.admin.ConfigCommand", "--entity-type", "topics", "--entity-name", topic)
    tools(*resource, "--alter", "--add-config", "max.message.bytes=12345,cleanup.policy=[compact,delete]")
    described = tools(*resource, "--describe")
    assert "max.message.bytes=12345 sensitive=false" in described
    assert "cleanup.policy=compact,delete" in described
    assert "DEFAULT_CONFIG:message.max.bytes=1048588" in described
    tools(*resource, "--alter", "--delete-config", "max.message.bytes,cleanup.policy")
    assert tools(*resource, "--describe") == f"Dynamic configs for topic {topic} are:\n"
    everyone = ("kafka.admin.ConfigCommand", "--entity-type", "brokers", "--entity-default")
    tools(*everyone, "--alter", "--add-config", "log.cleaner.delete.retention.ms=86400001")
    assert "log.cleaner.delete.retention.ms=86400001" in tools(*everyone, "--describe")
    tools(*everyone, "--alter", "--delete-config", "log.cleaner.delete.retention.ms")


@pytest.mark.row("Q8")
def test_metadata_quorum(tools: KafkaTools, bare: KafkaTools, shared_cluster: LocalCluster) -> None:
    status = dict(
        line.split(":", 1) for line in tools("MetadataQuorumCommand", "describe", "--status").splitlines()
    )
    assert status["ClusterId"].strip() == shared_cluster.cluster_id
    assert int(status["LeaderId"]) in (1, 2, 3)
    assert int(status["HighWatermark"]) > 0
    assert [voter["id"] for voter in json.loads(status["CurrentVoters"])] == [1, 2, 3]
    controller = f"{HOST}:{shared_cluster.node(2).controller_port}"
    header, *rows = table(
        bare("MetadataQuorumCommand", "--bootstrap-controller", controller, "describe", "--replication")
    )
    assert header[0] == "NodeId"
    assert sorted((row[0], row[-1]) for row in rows) == sorted(
        (str(n), "Leader" if n == int(status["LeaderId"]) else "Follower") for n in (1, 2, 3)
    )


@pytest.mark.row("L3", "L5")
def test_offsets_and_delete_records(
    tools: KafkaTools, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2)
    send(bootstrap, topic, ({"value": "v", "partition": 0, "timestamp": 1000 + n} for n in range(5)))
    assert tools("GetOffsetShell", "--topic", topic) == f"{topic}:0:5\n{topic}:1:0\n"
    assert f"{topic}:0:3\n" in tools("GetOffsetShell", "--topic", topic, "--time", "1003")
    wanted = tmp_path / "offsets.json"
    partitions = [{"topic": topic, "partition": 0, "offset": 2}]
    wanted.write_text(json.dumps({"version": 1, "partitions": partitions}))
    done = tools("DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert f"partition: {topic}-0\tlow_watermark: 2" in done
    assert f"{topic}:0:2\n" in tools("GetOffsetShell", "--topic", topic, "--time", "earliest")


@pytest.mark.row("Q11")
def test_leader_election(tools: KafkaTools, make_topic: MakeTopic) -> None:
    topic = make_topic()
    place = ("--topic", topic, "--partition", "0")
    done = tools("LeaderElectionCommand", "--election-type", "preferred", *place)
    assert f"Valid replica already elected for partitions {topic}-0" in done


def test_log_dirs_and_versions(
    tools: KafkaTools, make_topic: MakeTopic, shared_cluster: LocalCluster
) -> None:
    topic = make_topic()
    found = tools("LogDirsCommand", "--describe", "--topic-list", topic).splitlines()[-1]
    brokers = {broker["broker"]: broker["logDirs"] for broker in json.loads(found)["brokers"]}
    assert brokers.keys() == {1, 2, 3}
    for node_id, (directory,) in brokers.items():
        assert directory["logDir"] == str(shared_cluster.home(node_id) / "data")
        assert [each["partition"] for each in directory["partitions"]] == [f"{topic}-0"]
    versions = tools("BrokerApiVersionsCommand")
    assert "Fetch(1): 4 to 18 [usable: 18]" in versions
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    assert len(re.findall(r"^\S+ \(id: \d rack: null isFenced: false\) -> \($", versions, re.MULTILINE)) == 3


@pytest.mark.row("P3")
def test_verifiable_clients_and_perf(
    tools: KafkaTools, bare: KafkaTools, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    last = json.loads(
        tools("VerifiableProducer", "--topic", topic, "--max-messages", "500", "--acks", "-1").splitlines()[
            -1
        ]
    )
    assert (last["sent"], last["acked"]) == (500, 500)
    events = [
        json.loads(line)
        for line in tools(
            "VerifiableConsumer", "--topic", topic, "--group-id", "jvm-verifiable", "--max-messages", "500",
            "--reset-policy", "earliest",
        ).splitlines()
    ]  # fmt: skip
    assert sum(each["count"] for each in events if each["name"] == "records_consumed") == 500
    assert all(each["success"] for each in events if each["name"] == "offsets_committed")
    done = bare(
        "ProducerPerformance", "--topic", topic, "--num-records", "5000", "--record-size", "100",
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}", "acks=all",
    )  # fmt: skip
    assert done.startswith("5000 records sent")
    done = tools("ConsumerPerformance", "--topic", topic, "--messages", "5500", "--timeout", "60000")
    assert table(done.replace(",", " "))[-1][6] == "5500"


@pytest.mark.row("L1")
def test_dump_log_segments_reads_our_files(
    bare: KafkaTools, bootstrap: str, shared_cluster: LocalCluster, make_topic: MakeTopic
) -> None:
    """Log, indexes, and on a follower too, the epoch of each batch."""
    topic = make_topic(1, **{"index.interval.bytes": "500", "segment.bytes": "1048576"})
    values = [b"%d " % n + b"x" * 200 for n in range(400)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        messages = ({"key": b"k", "value": v, "headers": [("h", b"1")]} for v in values)
        send(
            bootstrap, topic, messages, compression_type=codec, enable_idempotence=True, batch_num_messages=20
        )
    end = len(values) * 5
    for node_id in (1, 2, 3):
        home = shared_cluster.home(node_id) / "data" / f"{topic}-0"
        log = home / f"{0:020}.log"
        wait_until(lambda log=log: log.stat().st_size == leader_size(shared_cluster, topic), "all is copied")
        files = ",".join(str(path) for path in [*sorted(home.glob("*.*index")), log])
        if node_id == 1:
            dumped = bare("kafka.tools.DumpLogSegments", "--files", files, "--print-data-log")
            assert dumped.count("isvalid: true") == dumped.count("baseOffset: ")
            assert dumped.count("payload: ") == end
            for codec in ("gzip", "snappy", "lz4", "zstd", "none"):
                assert f"compresscodec: {codec} " in dumped
            assert "Found timestamp mismatch" not in dumped
            assert "Index entries" not in dumped
        else:
            dumped = bare("kafka.tools.DumpLogSegments", "--files", files, "--index-sanity-check")
            assert dumped.count("passed sanity check") == 1  # said of the offset index only
    assert read(bootstrap, topic, 1, offset=end - 1)[0].value() == values[-1]


def leader_size(cluster: LocalCluster, topic: str) -> int:
    """Of the first log file, on whichever node it is longest."""
    return max(
        (cluster.home(n) / "data" / f"{topic}-0" / f"{0:020}.log").stat().st_size for n in cluster.nodes
    )


@pytest.mark.row("G3")
def test_dump_log_segments_reads_committed_offsets(
    bare: KafkaTools, bootstrap: str, shared_cluster: LocalCluster, make_topic: MakeTopic
) -> None:
    from confluent_kafka import TopicPartition

    from tests.support.clients.rdkafka import consumer

    topic = make_topic()
    with consumer(bootstrap, group_id="dumped-group") as reader:
        reader.commit(offsets=[TopicPartition(topic, 0, 42)], asynchronous=False)
    number = java_hash("dumped-group") % int(FEW_COORDINATORS["offsets.topic.num.partitions"])
    log = shared_cluster.home(1) / "data" / f"__consumer_offsets-{number}" / f"{0:020}.log"
    wait_until(lambda: log.exists() and log.stat().st_size > 0, "the offset is copied to node 1")
    dumped = bare("kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(log))
    key = f'"group":"dumped-group","topic":"{topic}","partition":0'
    assert re.search(re.escape(key) + '.*"offset":42', dumped)


def java_hash(text: str) -> int:
    """String.hashCode without its sign, as Kafka's Utils.abs has it."""
    code = 0
    for character in text:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return 2**32 - code if code >= 2**31 else code


@pytest.mark.row("Q3")
def test_metadata_tools_read_a_live_quorum(
    bare: KafkaTools, shared_cluster: LocalCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(**{"retention.ms": "4321"})
    log = shared_cluster.home(3) / "data" / "__cluster_metadata-0" / f"{0:020}.log"
    wait_until(lambda: topic.encode() in log.read_bytes(), "the topic is in node 3's metadata log")
    dumped = bare("kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(log))
    assert "isvalid: false" not in dumped
    records = [
        json.loads(line.partition("payload: ")[2]) for line in dumped.splitlines() if "payload: " in line
    ]
    assert any(each["type"] == "TOPIC_RECORD" and each["data"]["name"] == topic for each in records)
    assert {each["type"] for each in records} >= {
        "REGISTER_BROKER_RECORD", "BROKER_REGISTRATION_CHANGE_RECORD", "PARTITION_RECORD", "CONFIG_RECORD",
        "FEATURE_LEVEL_RECORD",
    }  # fmt: skip


@pytest.mark.row("R12")
def test_client_quotas(tools: KafkaTools) -> None:
    """kafka-configs, for users, client ids and addresses, and their defaults."""
    config = "kafka.admin.ConfigCommand"
    user = ("--entity-type", "users", "--entity-name", "jvm-user")
    pair = (*user, "--entity-type", "clients", "--entity-default")
    values = "producer_byte_rate=9000000,request_percentage=55.5"
    done = tools(config, *pair, "--alter", "--add-config", values)
    assert done == "Completed updating config for user jvm-user.\n"
    described = tools(config, *pair, "--describe")
    assert described.startswith("Quota configs for user-principal 'jvm-user', the default client-id are ")
    assert "producer_byte_rate=9000000.0" in described
    assert "request_percentage=55.5" in described
    tools(config, *user, "--alter", "--add-config", "consumer_byte_rate=8000000")
    assert "consumer_byte_rate=8000000.0" in tools(config, *user, "--describe")
    tools(config, *user, "--alter", "--delete-config", "consumer_byte_rate")
    tools(config, *pair, "--alter", "--delete-config", "producer_byte_rate,request_percentage")
    assert tools(config, *pair, "--describe") == ""
    address = ("--ip", "10.1.2.3")
    tools(config, *address, "--alter", "--add-config", "connection_creation_rate=1000")
    assert "connection_creation_rate=1000.0" in tools(config, *address, "--describe")
    tools(config, *address, "--alter", "--delete-config", "connection_creation_rate")


@pytest.mark.row("U2")
def test_features(tools: KafkaTools) -> None:
    described = tools("FeatureCommand", "describe")
    found = {line.split("\t")[0]: line.split("\t")[1:] for line in described.splitlines()}
    assert found["Feature: metadata.version"][2] == "FinalizedVersionLevel: 4.1-IV1"
    done = tools(
        "FeatureCommand", "downgrade", "--feature", "transaction.version=1", "--dry-run",
    )  # fmt: skip
    assert done == "transaction.version can be downgraded to 1.\n"
    done = tools("FeatureCommand", "upgrade", "--feature", "transaction.version=2")
    assert done == "transaction.version was upgraded to 2.\n"


def test_client_metrics(tools: KafkaTools) -> None:
    """Subscriptions are kept, though nobody receives what they ask for."""
    name = ("--name", "jvm-subscription")
    done = tools(
        "ClientMetricsCommand", "--alter", *name, "--metrics", "org.apache.kafka.", "--interval", "60000",
        "--match", "client_id=none-.*",
    )  # fmt: skip
    assert done == "Altered client metrics config for jvm-subscription.\n"
    described = tools("ClientMetricsCommand", "--describe", *name)
    assert "interval.ms=60000" in described
    assert "jvm-subscription" in tools("ClientMetricsCommand", "--list").splitlines()
    tools("ClientMetricsCommand", "--delete", *name)
    assert "jvm-subscription" not in tools("ClientMetricsCommand", "--list").splitlines()
