"""Brokers of ours under Apache Kafka's controllers 1, 2 and 3: 11, 12 and, later, 14; Kafka's own is 13."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from tests.mixed.brokers import (
    SETTINGS,
    MixedCluster,
    both_lead,
    catches_up,
    coordinators_move,
    everything_moves,
)
from tests.mixed.dynamic_quorum import DynamicQuorum
from tests.support.clients.load import Load
from tests.support.kafka.kafka_node import KafkaNode, errors_in
from tests.support.nodes.role_nodes import BROKER, CONTROLLER, Software, role_nodes

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.row("M2")]

CONTROLLERS = (1, 2, 3)
OURS, KAFKAS, LATER = (11, 12), 13, 14
KAFKAS_OWN: Final = re.compile(r"clientId=\d+,")


ROLES = dict.fromkeys(CONTROLLERS, CONTROLLER) | dict.fromkeys((*OURS, KAFKAS, LATER), BROKER)


@pytest.fixture(scope="module", params=["static", "dynamic"])
def cluster(
    request: pytest.FixtureRequest,
    kafka_node: KafkaNode,
    tmp_path_factory: pytest.TempPathFactory,
    free_ports: Callable[[int], list[int]],
) -> Iterator[MixedCluster]:
    """Its quorum stands in the properties, or (kraft.version 1) in the log, found by bootstrap servers."""
    directory = tmp_path_factory.mktemp("kafka-controllers")
    ports = free_ports(2 * len(ROLES))
    software: dict[int, Software] = dict.fromkeys((*CONTROLLERS, KAFKAS), kafka_node)
    more = dict(SETTINGS)
    if request.param == "dynamic":
        addresses = dict(zip(CONTROLLERS, ports[len(ROLES) :], strict=False))
        quorum = DynamicQuorum(kafka_node, addresses)
        more |= quorum.properties
        software |= dict.fromkeys(CONTROLLERS, quorum.controller)
        software[KAFKAS] = quorum.broker
    with role_nodes(directory, ports, ROLES, more, software=software, later=[LATER]) as nodes:
        yield MixedCluster(nodes)
        check_logs([nodes.log(node_id) for node_id in software])


NO_LEADER_NOW: Final = ("Beginning graceful shutdown", "Deactivated periodic tasks")
ON_ITS_WAY: Final = timedelta(seconds=1)
"""A heartbeat that was sent before our broker could know: its fetch is answered as the controller resigns."""


def check_logs(logs: Sequence[Path]) -> None:
    """Of Apache Kafka's nodes. Their own (with numbers for client ids) ask leaders that are not active yet or
    any more; ours do not."""
    for log in logs:
        resigned = [
            when(line)
            for line in log.read_text(errors="replace").splitlines()
            if any(sign in line for sign in NO_LEADER_NOW)
        ]
        for line in errors_in(log):
            late = "BROKER_HEARTBEAT" in line and any(
                timedelta(0) <= when(line) - each <= ON_ITS_WAY for each in resigned
            )
            assert KAFKAS_OWN.search(line) or late, line


def when(line: str) -> datetime:
    return datetime.strptime(line[: len("2026-01-31 12:00:00,000")], "%Y-%m-%d %H:%M:%S,%f")  # noqa: DTZ007


@pytest.mark.newest_kafka
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
