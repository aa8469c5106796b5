"""librdkafka against three nodes that speak SASL_SSL among themselves and to clients, and against one with
mutual TLS: what is right works, what is wrong is refused with its own error."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.certificates import Authority
from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from kraft.net.client import Address
from kraft.net.connection_security import ConnectionSecurity, Tls, dial, renewable
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import FatalError
from tests.compat.secured import brokers, refusals, secured
from tests.support.clients.rdkafka import read, send
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.row("U4"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on PATH"),
]

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="module")
def anna(authority: Authority) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "anna",
        "sasl.password": "her = secret",
        "ssl.ca.location": str(authority.certificate),
    }


@pytest.fixture(scope="module")
def sasl_cluster(
    tmp_path_factory: pytest.TempPathFactory,
    free_ports: Callable[[int], list[int]],
    authority: Authority,
    anna: dict[str, Any],
) -> Iterator[LocalCluster]:
    """SASL_SSL on every listener, the controllers' too."""
    jaas = f'{PLAIN_MODULE} username="node" password="n0de" user_node="n0de"'
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("node", "/O=kraft/CN=node")),
        "ssl.truststore.location": str(authority.certificate),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f'{jaas} user_anna="her = secret";',
        "listener.name.controller.plain.sasl.jaas.config": f"{jaas};",
    }
    with secured(tmp_path_factory.mktemp("sasl"), free_ports(9), settings, anna) as cluster:
        yield cluster


def create_topic(cluster: LocalCluster, client: Mapping[str, Any], name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **client})
    admin.create_topics([NewTopic(name, 3, 3)])[name].result(60)


def test_a_cluster_behind_tls_and_logins_survives_a_kill(
    sasl_cluster: LocalCluster, anna: dict[str, Any]
) -> None:
    create_topic(sasl_cluster, anna, "kept")
    values = [f"{i}".encode() for i in range(100)]
    send(
        sasl_cluster.bootstrap,
        "kept",
        ({"value": each, "partition": 0} for each in values),
        acks="all",
        **anna,
    )
    sasl_cluster.kill(1)
    send(sasl_cluster.bootstrap, "kept", [{"value": b"after", "partition": 0}], acks="all", **anna)
    found = read(sasl_cluster.bootstrap, "kept", len(values) + 1, **anna)
    assert [each.value() for each in found] == [*values, b"after"]
    sasl_cluster.start_node(1, wait=False)
    wait_until(lambda: len(brokers(sasl_cluster, anna)) == 3, "the killed node is back")


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"sasl.password": "guessed"}, KafkaError._AUTHENTICATION),
        ({"sasl.username": "nobody"}, KafkaError._AUTHENTICATION),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, KafkaError._AUTHENTICATION),
        ({"ssl.ca.location": None}, KafkaError._SSL),
    ],
)
def test_who_may_not_in_gets_the_reason(
    sasl_cluster: LocalCluster, anna: dict[str, Any], tmp_path: Path, wrong: dict[str, Any], error: int
) -> None:
    if "ssl.ca.location" in wrong:
        wrong = {"ssl.ca.location": str(Authority.create(tmp_path, "stranger").certificate)}
    assert error in refusals(sasl_cluster, {**anna, **wrong})


def test_before_the_login_there_is_nothing(sasl_cluster: LocalCluster, authority: Authority) -> None:
    async def describe_cluster() -> None:
        node = sasl_cluster.nodes[2]
        way = ConnectionSecurity(renewable(Tls(ca_path=str(authority.certificate))))
        loop = asyncio.get_running_loop()
        for port in (node.client_port, node.controller_port):
            client = await dial(loop, Address(HOST, port), "test", way, timeout_s=60)
            await client.negotiate()
            endpoint_type = 1 if port == node.client_port else 2
            with pytest.raises(ConnectionError):
                await client.request(ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": endpoint_type})

    asyncio.run(describe_cluster())


def test_mutual_tls(tmp_path: Path, free_ports: Callable[[int], list[int]], authority: Authority) -> None:
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(authority.issue("member", "/CN=member")),
        "ssl.truststore.location": str(authority.certificate),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(member|bert)$/$1/",
    }
    ca = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)}

    def shows(name: str, days: int = 2) -> dict[str, Any]:
        pem = str(authority.issue(f"{name}-{days}", f"/CN={name}", days=days))
        return {**ca, "ssl.certificate.location": pem, "ssl.key.location": pem}

    bert = shows("bert")
    with secured(tmp_path, free_ports(3), settings, bert) as cluster:
        send(cluster.bootstrap, "mutual", [{"value": b"x"}], **bert)
        assert [each.value() for each in read(cluster.bootstrap, "mutual", 1, **bert)] == [b"x"]
        assert not brokers(cluster, ca)  # shows no certificate
        assert not brokers(cluster, shows("carl"))  # whom no rule fits
        assert not brokers(cluster, shows("bert", days=-1))  # whose certificate has expired
        wait_until(lambda: brokers(cluster, bert) == {1}, "who shows a good one is let in")


def test_an_expired_certificate_of_a_node(
    authority: Authority, tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    """No other node would talk to it: it ends, and says why."""
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(authority.issue("late", "/CN=late", days=-1)),
        "ssl.truststore.location": str(authority.certificate),
    }
    late = LocalCluster.create(tmp_path / "late", nodes=1, ports=free_ports(3), settings=settings)
    try:
        with pytest.raises(FatalError, match="other nodes would not accept it: certificate has expired"):
            late.start_node(1)
    finally:
        late.close(patience_s=0)
