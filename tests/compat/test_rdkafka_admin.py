"""librdkafka's admin client: topics, partitions, configurations, the cluster, elections."""

from __future__ import annotations

import warnings
from concurrent.futures import Future

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from kraft.local.local_cluster import LocalCluster
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import ErrorCode
from tests.compat.conftest import MakeTopic
from tests.support.clients.rdkafka import read, send
from tests.support.clients.wire_client import Wire
from tests.support.waiting import wait_until


def refused(future) -> KafkaError:
    """The error that an admin call ends with."""
    with pytest.raises(KafkaException) as raised:
        future.result()
    return raised.value.args[0]


def configs(admin: AdminClient, name: str, kind: ResourceType = ResourceType.TOPIC) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    return admin.describe_configs([resource])[resource].result()


def describe(admin: AdminClient, topic: str):
    return admin.describe_topics(TopicCollection([topic]))[topic].result()


@pytest.mark.row("Q3")
def test_create_describe_and_delete(bootstrap: str, admin: AdminClient) -> None:
    new = NewTopic("short-lived", 3, 2, config={"retention.ms": "1234"})
    admin.create_topics([new], validate_only=True)["short-lived"].result()
    assert "short-lived" not in admin.list_topics(timeout=60).topics
    admin.create_topics([new])["short-lived"].result()
    for again in (new, NewTopic("short-lived", 3, 2, config={"retention.ms": "nonsense"})):
        assert refused(admin.create_topics([again])["short-lived"]).code() == KafkaError.TOPIC_ALREADY_EXISTS
    found = describe(admin, "short-lived")
    assert [len(each.replicas) for each in found.partitions] == [2, 2, 2]
    assert all(each.leader.id == each.replicas[0].id for each in found.partitions)
    assert configs(admin, "short-lived")["retention.ms"].value == "1234"
    send(bootstrap, "short-lived", [{"value": "old", "partition": 0}])
    admin.delete_topics(["short-lived"])["short-lived"].result()
    assert (
        refused(admin.delete_topics(["short-lived"])["short-lived"]).code()
        == KafkaError.UNKNOWN_TOPIC_OR_PART
    )
    admin.create_topics([new])["short-lived"].result()
    assert describe(admin, "short-lived").topic_id != found.topic_id
    send(bootstrap, "short-lived", [{"value": "new", "partition": 0}])
    assert [message.value() for message in read(bootstrap, "short-lived", 1)] == [b"new"]


@pytest.mark.row("Q3")
@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("with/slash", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("too-many-replicas", 1, 4), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("no-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("bad-value", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-key", 1, 1, config={"no.such.key": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("unknown-broker", 1, replica_assignment=[[1, 9]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("twice-the-same", 1, replica_assignment=[[1, 1]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=lambda value: value.topic[:20] if isinstance(value, NewTopic) else "",
)  # fmt: skip
def test_topics_that_cannot_be(admin: AdminClient, topic: NewTopic, code: int) -> None:
    assert refused(admin.create_topics([topic])[topic.topic]).code() == code


@pytest.mark.row("Q12")
def test_defaults_and_assignments(admin: AdminClient) -> None:
    admin.create_topics([
        NewTopic("by-default", -1, -1), NewTopic("assigned", 2, replica_assignment=[[3, 1], [2, 3]])
    ])["assigned"].result()  # fmt: skip
    assert [len(each.replicas) for each in describe(admin, "by-default").partitions] == [3]
    replicas = [[node.id for node in each.replicas] for each in describe(admin, "assigned").partitions]
    assert replicas == [[3, 1], [2, 3]]


@pytest.mark.row("Q11", "Q12")
def test_partitions_grow(bootstrap: str, admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result()
    wait_until(
        lambda: len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 4, "four are there"
    )
    (report,) = send(bootstrap, topic, [{"value": "v", "partition": 3}])
    assert (report.partition(), report.offset()) == (3, 0)
    assert (
        refused(admin.create_partitions([NewPartitions(topic, 2)])[topic]).code()
        == KafkaError.INVALID_PARTITIONS
    )
    missing = admin.create_partitions([NewPartitions("no-such-topic", 2)])["no-such-topic"]
    assert refused(missing).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    leaders = [len(each.replicas) for each in describe(admin, topic).partitions]
    assert leaders == [3, 3, 3, 3]


def test_incremental_configs(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"retention.ms": "1000"})

    def alter(name: str, value: str | None, operation: AlterConfigOpType):
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        return admin.incremental_alter_configs([resource])[resource]

    alter("max.message.bytes", "5000", AlterConfigOpType.SET).result()
    alter("retention.ms", None, AlterConfigOpType.DELETE).result()
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND).result()
    found = wait_until(
        lambda: (now := configs(admin, topic))["cleanup.policy"].value == "delete,compact" and now,
        "the policy has both",
    )
    assert (found["max.message.bytes"].value, found["max.message.bytes"].source) == (
        "5000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    )  # fmt: skip
    assert found["retention.ms"].is_default
    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT).result()
    wait_until(lambda: configs(admin, topic)["cleanup.policy"].value == "compact", "one was taken away")
    assert refused(alter("retention.ms", "never", AlterConfigOpType.SET)).code() == KafkaError.INVALID_CONFIG


def test_legacy_configs_replace_all(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"retention.ms": "1000"})
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"max.message.bytes": "7000"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # what is tested is the old way
        admin.alter_configs([resource])[resource].result()
    found = wait_until(
        lambda: (now := configs(admin, topic))["max.message.bytes"].value == "7000" and now, "it is set"
    )
    assert found["retention.ms"].is_default


def test_broker_configs(
    shared_cluster: LocalCluster, admin: AdminClient, make_topic: MakeTopic, wire: Wire
) -> None:
    """What is set for a broker, or for all, is a topic's default at once."""
    topic, key = make_topic(), "log.index.interval.bytes"
    port = shared_cluster.node(1).client_port
    found = configs(admin, "1", ResourceType.BROKER)
    assert found["node.id"].value == "1"
    assert found["node.id"].is_read_only

    def alter(name: str, value: str | None) -> Future[None]:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        return admin.incremental_alter_configs([resource])[resource]

    def now_is(value: str) -> bool:
        broker = configs(admin, "1", ResourceType.BROKER)[key].value
        return (broker, configs(admin, topic)["index.interval.bytes"].value) == (value, value)

    def for_all(**changes: object) -> int:
        """librdkafka refuses a resource without a name."""
        resource = {"resource_type": 4, "resource_name": "", "configs": [{"name": key, **changes}]}
        answer = wire.ask(
            port, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
        )
        return int(answer.responses[0].error_code)

    assert for_all(config_operation=0, value="8192") == 0
    wait_until(lambda: now_is("8192"), "all brokers have it")
    assert for_all(config_operation=1, value=None) == 0
    wait_until(lambda: now_is("4096"), "all brokers have their default again")
    assert for_all(config_operation=0, value="often") == ErrorCode.INVALID_REQUEST
    alter(key, "9000").result()
    wait_until(
        lambda: configs(admin, "1", ResourceType.BROKER)[key].value == "9000",
        "broker 1 has it",
    )
    alter(key, None).result()
    wait_until(lambda: now_is("4096"), "broker 1 has its default again")
    read_only = refused(alter("node.id", "5")).code()
    assert read_only in (KafkaError.INVALID_CONFIG, KafkaError.INVALID_REQUEST)


@pytest.mark.row("Q8")
def test_describe_cluster(admin: AdminClient) -> None:
    found = admin.describe_cluster(include_authorized_operations=True).result()
    assert sorted(node.id for node in found.nodes) == [1, 2, 3]
    assert found.controller.id in (1, 2, 3)
    assert len(found.cluster_id) == 22
    assert found.authorized_operations


@pytest.mark.row("Q11", "Q5")
def test_elections(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    place = TopicPartition(topic, 0)
    outcome = admin.elect_leaders(ElectionType.PREFERRED, [place]).result()
    assert outcome[place].code() == KafkaError.ELECTION_NOT_NEEDED
    missing = TopicPartition("no-such-topic", 0)
    outcome = admin.elect_leaders(ElectionType.PREFERRED, [missing]).result()
    assert outcome[missing].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
