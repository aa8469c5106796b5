"""Brokers of ours under Apache Kafka's controllers 1, 2 and 3: 11, 12 and, later, 14; Kafka's own is 13."""

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
from tests.support.clients.load import Load
from tests.support.kafka.kafka_node import KafkaNode, errors_in
from tests.support.nodes.role_nodes import BROKER, CONTROLLER, role_nodes

pytestmark = [pytest.mark.long, pytest.mark.kafka]

CONTROLLERS = (1, 2, 3)
KAFKAS, LATER = 13, 14


@pytest.fixture(scope="module")
def cluster(
    kafka_node: KafkaNode, tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[MixedCluster]:
    roles = dict.fromkeys(CONTROLLERS, CONTROLLER) | dict.fromkeys((11, 12, KAFKAS, LATER), BROKER)
    software = dict.fromkeys((*CONTROLLERS, KAFKAS), kafka_node)
    directory = tmp_path_factory.mktemp("kafka-controllers")
    with role_nodes(directory, free_ports(14), roles, SETTINGS, software=software, later=[LATER]) as nodes:
        yield MixedCluster(nodes)
        for node_id in software:
            # Kafka's own brokers ask leaders that are not active yet, or no longer.
            assert [line for line in errors_in(nodes.log(node_id)) if f"clientId={KAFKAS}," not in line] == []


def test_either_is_killed_as_a_leader(cluster: MixedCluster) -> None:
    both_lead(cluster, KAFKAS, 11, 12)


def test_coordinators_move_both_ways(cluster: MixedCluster) -> None:
    coordinators_move(cluster, KAFKAS, 11)


def test_the_active_controller_is_killed(cluster: MixedCluster) -> None:
    """And stopped: each time brokers find the next one, and follow it."""
    topic = "without-controller"
    cluster.make_topic(topic, [[11, 12, KAFKAS], [KAFKAS, 11, 12]])
    with Load(cluster.bootstrap, topic, 2) as load:
        for end, victim in ((cluster.nodes.kill, 11), (cluster.nodes.stop, KAFKAS)):
            active = cluster.active_controller()
            end(active)
            cluster.nodes.kill(victim)
            load.wait_for_acks()
            cluster.nodes.start(active)
            cluster.start(victim)
            cluster.elect_preferred()
        load.wait_for_acks()
    load.check(cluster.bootstrap)
    cluster.check_equal_logs(topic)


def test_a_fresh_one_catches_up(cluster: MixedCluster) -> None:
    catches_up(cluster, LATER)


def test_everything_moves_onto_it_and_away(cluster: MixedCluster) -> None:
    everything_moves(cluster, (LATER, 12), (KAFKAS, 11))
