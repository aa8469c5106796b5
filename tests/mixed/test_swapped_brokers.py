"""Brokers change their software on their own directories, under load: kraft, Apache Kafka, kraft."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mixed.brokers import SETTINGS, MixedCluster, swapped
from tests.support.kafka.kafka_node import KafkaNode, errors_in
from tests.support.nodes.role_nodes import BROKER, CONTROLLER, role_nodes

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.row("M3")]

ROLES = dict.fromkeys((1, 2, 3), CONTROLLER) | dict.fromkeys((11, 12, 13), BROKER)


@pytest.mark.newest_kafka
@pytest.mark.parametrize("kafkas_controllers", [False, True])
def test_there_and_back(
    kafka_node: KafkaNode, tmp_path: Path, free_ports: Callable[[int], list[int]], kafkas_controllers: bool
) -> None:
    software = dict.fromkeys((1, 2, 3), kafka_node) if kafkas_controllers else {}
    with role_nodes(tmp_path, free_ports(12), ROLES, SETTINGS, software=software) as nodes:
        swapped(MixedCluster(nodes), 11, 12, kafka_node)
        for broker in (11, 12):
            assert errors_in(nodes.log(broker)) == []
