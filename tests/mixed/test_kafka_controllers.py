"""Brokers of ours under Apache Kafka's controllers 1, 2 and 3: 11, 12 and, later, 14; Kafka's own is 13."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from kraft.local.free_ports import HOST
from metadata_quorum.foundation.uuids import uuid_text
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
from tests.support.nodes.role_nodes import BROKER, CONTROLLER, Software, role_nodes

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.row("M2")]

CONTROLLERS = (1, 2, 3)
OURS, KAFKAS, LATER = (11, 12), 13, 14
RESERVED = 100
"""Kafka gives directories no id up to here."""


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
        addresses = [f"{HOST}:{port}" for port in ports[len(ROLES) :][: len(CONTROLLERS)]]
        voters = zip(CONTROLLERS, addresses, strict=True)
        named = ",".join(
            f"{voter}@{address}:{uuid_text(UUID(int=RESERVED + voter))}" for voter, address in voters
        )
        more |= {
            "controller.quorum.voters": "",
            "controller.quorum.bootstrap.servers": ",".join(addresses),
        }
        first = replace(kafka_node, formatted_with=("--initial-controllers", named))
        software |= dict.fromkeys(CONTROLLERS, first)
        software[KAFKAS] = replace(kafka_node, formatted_with=("--no-initial-controllers",))
    with role_nodes(directory, ports, ROLES, more, software=software, later=[LATER]) as nodes:
        yield MixedCluster(nodes)
        check_logs([nodes.log(node_id) for node_id in software])


def check_logs(logs: Sequence[Path]) -> None:
    """Of Apache Kafka's nodes. Their own broker asks leaders that are not active yet, or no longer; of ours a
    heartbeat may be under way when the active controller is stopped."""
    errors = [line for log in logs for line in errors_in(log) if f"clientId={KAFKAS}," not in line]
    late = [line for line in errors if "BROKER_HEARTBEAT" in line and "clientId=node-" in line]
    assert len(late) <= len(OURS), late
    assert [line for line in errors if line not in late] == []


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
