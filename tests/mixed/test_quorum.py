"""The whole quorum changes its software on its own directories, and back, while clients go on: brokers 11
(kraft) and 12 (Apache Kafka) follow whoever leads, or the nodes are brokers, too."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kraft.wire.api_keys import ApiKey
from tests.mixed.brokers import SETTINGS, MixedCluster, Reading
from tests.mixed.dynamic_quorum import DynamicQuorum
from tests.mixed.quorum_change import change_quorum
from tests.support.clients.load import Load
from tests.support.clients.transactions import committed, transactional
from tests.support.kafka.kafka_node import KafkaNode
from tests.support.nodes.role_nodes import BOTH, BROKER, CONTROLLER, KRAFT, RoleNodes, Software, role_nodes
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.row("M4")]

CONTROLLERS = (1, 2, 3)
SEPARATE = dict.fromkeys(CONTROLLERS, CONTROLLER) | dict.fromkeys((11, 12), BROKER)
COMBINED = dict.fromkeys(CONTROLLERS, BOTH)
AUTHORIZED = {
    "transaction.state.log.replication.factor": "2",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def fill(cluster: MixedCluster, one: int, other: int) -> None:
    """Something of every kind; until both brokers know it."""
    cluster.make_topic("in", [[one, other]], **{"min.insync.replicas": "1"})
    configs = {"min.insync.replicas": "1", "retention.ms": "86400000"}
    cluster.make_topic("flights", [[one, other], [other, one]], **configs)
    binding = AclBinding(ResourceType.TOPIC, "flights", ResourcePatternType.LITERAL, "User:anna", "*",
                         AclOperation.READ, AclPermissionType.ALLOW)  # fmt: skip
    for created in cluster.admin.create_acls([binding]).values():
        created.result()
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    user = UserScramCredentialUpsertion("anna", credential, b"secret")
    for altered in cluster.admin.alter_user_scram_credentials([user]).values():
        altered.result()
    quota = {
        "entity": [{"entity_type": "user", "entity_name": "anna"}],
        "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
    }
    cluster.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[quota], validate_only=False)
    for broker in (one, other):
        wait_until(partial(_knows_all, cluster, broker), f"broker {broker} knows all")


def _knows_all(cluster: MixedCluster, broker: int) -> bool:
    (flights,) = cluster.ask(ApiKey.METADATA, 12, broker, topics=[{"name": "flights"}]).topics
    return not flights.error_code and all("anna" in each for each in described(cluster, broker)[2:])


def described(cluster: MixedCluster, broker: int) -> list[str]:
    """What is the same whoever leads, as one broker knows it."""
    every_acl = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
                 "principal_filter": None, "host_filter": None, "operation": 1,
                 "permission_type": 1}  # fmt: skip
    topic = {"resource_type": 2, "resource_name": "flights", "configuration_keys": ["retention.ms"]}
    (flights,) = cluster.ask(ApiKey.METADATA, 12, broker, topics=[{"name": "flights"}]).topics
    return [
        str(flights.topic_id),
        str(cluster.ask(ApiKey.DESCRIBE_CONFIGS, 4, broker, resources=[topic]).results[0].configs[0].value),
        str(cluster.ask(ApiKey.DESCRIBE_ACLS, 3, broker, **every_acl).resources),
        str(cluster.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, broker, users=None).results),
        str(cluster.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, broker, components=[], strict=False).entries),
    ]


@pytest.mark.newest_kafka
@pytest.mark.parametrize("roles", [SEPARATE, COMBINED], ids=["separate", "combined"])
def test_there_and_back(
    roles: dict[int, str], kafka_node: KafkaNode, tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    software = {12: kafka_node} if roles is SEPARATE else {}
    with role_nodes(
        tmp_path, free_ports(2 * len(roles)), roles, SETTINGS | AUTHORIZED, software=software
    ) as nodes:
        cluster = MixedCluster(nodes)
        one, other = nodes.brokers[:2]
        fill(cluster, one, other)
        producer = transactional(cluster.bootstrap, "open", transaction_timeout_ms=600_000)
        with (
            Load(cluster.bootstrap, "flights", 2) as load,
            Reading(cluster, "classic-group", "classic") as classic,
            Reading(cluster, "consumer-group", "consumer") as consumer,
        ):
            before = {broker: described(cluster, broker) for broker in (one, other)}
            for part, (command, software) in enumerate([("export", kafka_node), ("import", KRAFT)], 1):
                producer.begin_transaction()
                producer.produce("in", f"value {part}")
                producer.flush()
                change_quorum(nodes, command, software)
                load.wait_for_acks()
                wait_until(lambda: made(cluster, f"after-{command}", one, other), "a controller decides")  # noqa: B023
                for broker, known in before.items():
                    assert described(cluster, broker) == known
                producer.commit_transaction()
                for reading in (classic, consumer):
                    reading.read(part)
                cluster.wait_in_sync()
                load.wait_for_acks()
        load.check(cluster.bootstrap)
        cluster.check_equal_logs("flights")
        assert committed(cluster.bootstrap, "in") == ["value 1", "value 2"]


STATIC, DYNAMIC = 0, 1


def vote_version(nodes: RoleNodes) -> int:
    """Of Apache Kafka's `quorum-state`: the quorum's kraft.version."""
    path = nodes.home(CONTROLLERS[0]) / "data" / "__cluster_metadata-0" / "quorum-state"
    return int(json.loads(path.read_text())["data_version"])


def test_a_dynamic_quorum_is_taken_over(
    kafka_node: KafkaNode, tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    """Ours is static, and so is the one of Apache Kafka's that it is left to; brokers find either by
    bootstrap servers."""
    ports = free_ports(2 * len(SEPARATE))
    dynamic = DynamicQuorum(kafka_node, dict(zip(CONTROLLERS, ports[len(SEPARATE) :], strict=False)))
    software: dict[int, Software] = {**dict.fromkeys(CONTROLLERS, dynamic.controller), 12: dynamic.broker}
    settings = SETTINGS | AUTHORIZED
    with role_nodes(tmp_path, ports, SEPARATE, settings | dynamic.properties, software=software) as nodes:
        cluster = MixedCluster(nodes)
        fill(cluster, 11, 12)
        before = {broker: described(cluster, broker) for broker in (11, 12)}
        assert vote_version(nodes) == DYNAMIC
        with Load(cluster.bootstrap, "flights", 2) as load:
            for command, other in (("import", KRAFT), ("export", kafka_node)):
                nodes.more = settings
                change_quorum(nodes, command, other)
                load.wait_for_acks()
                wait_until(lambda: made(cluster, f"after-{command}", 11, 12), "a controller decides")  # noqa: B023
                for broker, known in before.items():
                    assert described(cluster, broker) == known
                    nodes.more = settings | dynamic.properties
                    nodes.stop(broker)
                    cluster.start(broker)
                    load.wait_for_acks()
        load.check(cluster.bootstrap)
        cluster.check_equal_logs("flights")
        assert vote_version(nodes) == STATIC


@pytest.mark.parametrize(("roles", "kafkas"), [(CONTROLLER, CONTROLLER), (BOTH, BOTH), (BOTH, BROKER)])
def test_a_directory_that_was_not_exported_is_not_started(
    roles: str, kafkas: str, kafka_node: KafkaNode, tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    """Apache Kafka's log says what to do; also where its node is to be a broker only, and no voter."""
    with role_nodes(tmp_path, free_ports(4), {1: roles, 2: BOTH}) as nodes:
        nodes.stop(1)
        nodes.roles, nodes.software[1] = {1: kafkas, 2: BOTH}, kafka_node
        nodes.start(1)
        assert nodes.processes[1].wait(PATIENCE_S) != 0
        assert "kraft storage export" in nodes.log(1).read_text()
        nodes.roles, nodes.software[1] = {1: roles, 2: BOTH}, KRAFT
        nodes.start(1)
        nodes.wait_ready()


def made(cluster: MixedCluster, topic: str, one: int, other: int) -> bool:
    with suppress(KafkaException):
        cluster.make_topic(topic, [[one, other], [other, one]])
        return True
    return False
