"""Nodes that tests start, damage and mistreat."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.free_ports import HOST
from tests.robustness.live_node import TOPIC, LiveNode
from tests.robustness.nodes import NodeFiles
from tests.robustness.traffic import QUIET

MakeNode = Callable[..., NodeFiles]


@pytest.fixture
def make_node(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> MakeNode:
    """`make_node(log_dirs="...", broker_rack=None)`: its properties are written, nothing is formatted."""
    return lambda **changes: NodeFiles(tmp_path, free_ports(2), **changes)


@pytest.fixture(scope="module")
def lived(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Callable[[], NodeFiles]:
    """A node that ran once and ended cleanly; every call gives its files as they were then."""
    home = tmp_path_factory.mktemp("lived")
    node = NodeFiles(home, free_ports(2))
    node.format()
    node.run_and_stop()
    shutil.copytree(node.data, home / "kept")

    def restore() -> NodeFiles:
        if node.data.is_dir():
            shutil.rmtree(node.data)
        node.data.unlink(missing_ok=True)
        shutil.copytree(home / "kept", node.data)
        return node

    return restore


@pytest.fixture(scope="module")
def live(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LiveNode]:
    """A node per module, with a SASL listener beside the plain one; ANONYMOUS is a super user."""
    *ports, secured = free_ports(3)
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    node = NodeFiles(
        tmp_path_factory.mktemp("live"),
        ports,
        listeners=f"PLAINTEXT://{HOST}:{ports[0]},LOGIN://{HOST}:{secured},CONTROLLER://{HOST}:{ports[1]}",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256",
        listener_name_login_plain_sasl_jaas_config=f'{jaas} user_anna="secret";',
        authorizer_class_name="standard",
        super_users="User:ANONYMOUS",
        group_initial_rebalance_delay_ms="0",
        connection_failed_authentication_delay_ms="0",
        auto_create_topics_enable="false",
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
    )
    node.format()
    with node.running() as process:
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{node.client_port}", **QUIET})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
        live = LiveNode(node, process.pid)
        live.serves_stock_clients()
        yield live
        live.serves_stock_clients()
