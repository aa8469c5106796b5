"""Brokers of Apache Kafka's in a cluster of ours: controllers 1, 2 and 3, brokers 11 and 12; Kafka's are 13
and, later, 14."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.mixed.brokers import (
    SETTINGS,
    MixedCluster,
    both_lead,
    catches_up,
    coordinators_move,
    everything_moves,
)
from tests.support.kafka.kafka_node import KafkaNode, errors_in
from tests.support.nodes.role_nodes import BROKER, CONTROLLER, role_nodes

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.row("M1")]

KAFKAS, LATER = 13, 14


@pytest.fixture(scope="module")
def cluster(
    kafka_node: KafkaNode, tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[MixedCluster]:
    roles = dict.fromkeys((1, 2, 3), CONTROLLER) | dict.fromkeys((11, 12, KAFKAS, LATER), BROKER)
    software = dict.fromkeys((KAFKAS, LATER), kafka_node)
    directory = tmp_path_factory.mktemp("kafka-broker")
    with role_nodes(directory, free_ports(14), roles, SETTINGS, software=software, later=[LATER]) as nodes:
        yield MixedCluster(nodes)
        for node_id in (KAFKAS, LATER):
            assert errors_in(nodes.log(node_id)) == []


@pytest.mark.newest_kafka
def test_either_is_killed_as_a_leader(cluster: MixedCluster) -> None:
    both_lead(cluster, KAFKAS, 11, 12)


def test_coordinators_move_both_ways(cluster: MixedCluster) -> None:
    coordinators_move(cluster, KAFKAS, 11)


def test_a_fresh_one_catches_up(cluster: MixedCluster) -> None:
    catches_up(cluster, LATER)


def test_everything_moves_onto_it_and_away(cluster: MixedCluster) -> None:
    everything_moves(cluster, (KAFKAS, LATER), (11, 12))
