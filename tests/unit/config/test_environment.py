"""Configurations in the environment are those that Apache Kafka's image would make of it."""

from __future__ import annotations

import pytest

from kraft.config.environment import FOR_THE_JVM, properties_of_environment


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "listener.security.protocol.map"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_A____B", "a-.b"),
        ("KAFKA_A_____B", "a-_b"),
        ("KAFKA_KRAFT_HTTP_PORT", "kraft.http.port"),
        ("KAFKA_LISTENER_NAME_KAFKA_SSL_KEYSTORE_LOCATION", "listener.name.kafka.ssl.keystore.location"),
    ],
)
def test_names(variable: str, key: str) -> None:
    assert properties_of_environment({variable: "Value, as it is"}) == {key: "Value, as it is"}


def test_other_variables_are_no_configurations() -> None:
    others = dict.fromkeys(
        FOR_THE_JVM | {"PATH", "CLUSTER_ID", "kafka_node_id", "MY_KAFKA_NODE_ID", "KAFKA_"}, "x"
    )
    assert properties_of_environment(others) == {}
