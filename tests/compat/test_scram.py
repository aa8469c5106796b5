"""Three nodes that know each other and their clients by SCRAM alone, the controllers' listener included:
users come with the format command and by the admin client, and go again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import aiokafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from kraft.local.local_cluster import LocalCluster
from kraft.net.connection_security import ConnectionSecurity, Login
from kraft.peers.blocking_client import SECURITY
from tests.compat.conftest import Closed
from tests.compat.secured import brokers, refusals, secured
from tests.support.clients.rdkafka import read, send
from tests.support.nodes.role_nodes import BROKER, CONTROLLER, role_nodes
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.row("U4")

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
USERS = [
    "SCRAM-SHA-512=[name=node,password=n0de]",
    "SCRAM-SHA-256=[name=anna,password=right]",
    "SCRAM-SHA-512=[name=anna,password=right]",
]


def login(user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


ANNA = login("anna", "right")


JAAS = f'{SCRAM_MODULE} username="node" password="n0de";'
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": JAAS,
    "listener.name.controller.scram-sha-512.sasl.jaas.config": JAAS,
}


@pytest.fixture(scope="module")
def scram_cluster(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("scram")
    with secured(directory, free_ports(9), SETTINGS, ANNA, users=USERS) as cluster:
        yield cluster


def admin_of(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **ANNA})


def python_login(mechanism: str, password: str = "right") -> dict[str, str]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "anna",
        "sasl_plain_password": password,
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_stock_clients_log_in(
    scram_cluster: LocalCluster, kafka: ModuleType, closed: Closed, mechanism: str
) -> None:
    topic = f"by-{mechanism.lower()}"
    send(scram_cluster.bootstrap, topic, [{"value": b"x"}], acks="all", **login("anna", "right", mechanism))
    consumer = closed(
        kafka.KafkaConsumer(
            bootstrap_servers=scram_cluster.bootstrap.split(","),
            auto_offset_reset="earliest",
            **python_login(mechanism),
        )
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    found = wait_until(lambda: consumer.poll(1_000), "the message")
    assert [each.value for batch in found.values() for each in batch] == [b"x"]

    async def read_too() -> bytes | None:
        reader = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=scram_cluster.bootstrap,
            auto_offset_reset="earliest",
            **python_login(mechanism),
        )
        async with reader:
            return (await asyncio.wait_for(reader.getone(), PATIENCE_S)).value

    assert asyncio.run(read_too()) == b"x"


@pytest.mark.parametrize("who", [("anna", "wrong"), ("nobody", "right"), ("node", "right")])
def test_who_may_not_in_gets_the_reason(scram_cluster: LocalCluster, who: tuple[str, str]) -> None:
    assert KafkaError._AUTHENTICATION in refusals(scram_cluster, login(*who))


def test_users_come_and_go(scram_cluster: LocalCluster) -> None:
    admin = admin_of(scram_cluster)
    bert = login("bert", "first")
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    alter(admin, UserScramCredentialUpsertion("bert", info, b"first"))
    wait_until(lambda: brokers(scram_cluster, bert), "bert is let in")
    alter(admin, UserScramCredentialUpsertion("bert", info, b"second"))
    wait_until(lambda: brokers(scram_cluster, login("bert", "second")), "by the new password")
    found = admin.describe_user_scram_credentials(["bert"])["bert"].result(60)
    assert [(each.mechanism, each.iterations) for each in found.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096)
    ]
    everybody = admin.describe_user_scram_credentials().result(60)
    assert set(everybody) == {"anna", "bert", "node"}
    alter(admin, UserScramCredentialDeletion("bert", ScramMechanism.SCRAM_SHA_256))
    assert KafkaError._AUTHENTICATION in refusals(scram_cluster, login("bert", "second"))
    with pytest.raises(KafkaException) as refused:
        alter(admin, UserScramCredentialDeletion("bert", ScramMechanism.SCRAM_SHA_256))
    assert refused.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def alter(admin: AdminClient, alteration: Any) -> None:
    admin.alter_user_scram_credentials([alteration])[alteration.user].result(60)


def test_the_quorum_finds_together_again(scram_cluster: LocalCluster) -> None:
    """Killed all at once: each must know the others' credentials before it has heard of any of them."""
    send(scram_cluster.bootstrap, "kept", [{"value": b"before", "partition": 0}], acks="all", **ANNA)
    for node_id in scram_cluster.nodes:
        scram_cluster.kill(node_id)
    for node_id in scram_cluster.nodes:
        scram_cluster.start_node(node_id, wait=False)
    wait_until(lambda: len(brokers(scram_cluster, ANNA)) == 3, "all are back")
    send(scram_cluster.bootstrap, "kept", [{"value": b"after", "partition": 0}], acks="all", **ANNA)
    found = read(scram_cluster.bootstrap, "kept", 2, **ANNA)
    assert [each.value() for each in found] == [b"before", b"after"]


def test_brokers_that_are_no_controllers(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    """They have no users of their own to begin with: those come with the metadata, as the rights do."""
    roles = {1: CONTROLLER, 11: BROKER, 12: BROKER}
    rights = {"authorizer.class.name": "standard", "super.users": "User:node;User:anna"}
    before = SECURITY.set(ConnectionSecurity(login=Login("SCRAM-SHA-256", "anna", "right")))
    try:
        with role_nodes(tmp_path, free_ports(6), roles, {**SETTINGS, **rights}, USERS) as nodes:
            send(nodes.bootstrap, "apart", [{"value": b"x"}], acks="all", **ANNA)
            assert [each.value() for each in read(nodes.bootstrap, "apart", 1, **ANNA)] == [b"x"]
    finally:
        SECURITY.reset(before)
