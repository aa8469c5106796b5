"""A broker of Apache Kafka's in a cluster of ours: controllers 1, 2 and 3, brokers 11 and 12, Kafka's 13."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.mixed.brokers import SETTINGS, MixedCluster, both_lead, coordinators_move
from tests.support.kafka.kafka_node import KafkaNode, errors_in
from tests.support.nodes.role_nodes import BROKER, CONTROLLER, role_nodes

pytestmark = [pytest.mark.long, pytest.mark.kafka]

KAFKAS = 13


@pytest.fixture(scope="module")
def cluster(
    kafka_node: KafkaNode, tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[MixedCluster]:
    roles = dict.fromkeys((1, 2, 3), CONTROLLER) | dict.fromkeys((11, 12, KAFKAS), BROKER)
    directory = tmp_path_factory.mktemp("kafka-broker")
    with role_nodes(directory, free_ports(12), roles, SETTINGS, software={KAFKAS: kafka_node}) as nodes:
        yield MixedCluster(nodes)
        assert errors_in(nodes.log(KAFKAS)) == []


def test_either_is_killed_as_a_leader(cluster: MixedCluster) -> None:
    both_lead(cluster, KAFKAS, 11, 12)


def test_coordinators_move_both_ways(cluster: MixedCluster) -> None:
    coordinators_move(cluster, KAFKAS, 11)
