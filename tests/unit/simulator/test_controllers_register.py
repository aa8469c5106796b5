"""Every controller of a cluster registers (KIP-919), and does so again when it comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from chaos.simulator.cluster import CONTROLLER_PORT, Cluster, ClusterShape, host_of
from chaos.simulator.draws import Draws
from chaos.simulator.network import Network
from chaos.simulator.scheduler import Scheduler
from chaos.simulator.story import Story
from metadata_quorum.foundation.features import SUPPORTED_FEATURES
from metadata_quorum.foundation.model import ControllerRegistration

WITHIN_S = 20.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three controllers and a broker, each by itself."""
    scheduler, draws = Scheduler(), Draws(1)
    shape = ClusterShape(controllers=(1, 2, 3), brokers=(4,))
    cluster = Cluster(shape, scheduler, Network(scheduler, draws), draws, Story())
    for node_id in shape.nodes:
        cluster.start(node_id)
    yield cluster
    cluster.close()


def registered(cluster: Cluster) -> Mapping[int, ControllerRegistration]:
    """As the broker knows it."""
    broker = cluster.running[4].node if 4 in cluster.running else None
    return {} if broker is None else broker.context.image.controllers


@pytest.mark.row("Q13")
def test_each_process_of_a_controller_registers_itself(cluster: Cluster) -> None:
    scheduler = cluster.scheduler
    scheduler.run(WITHIN_S, lambda: cluster.is_ready and registered(cluster).keys() == {1, 2, 3})
    first = registered(cluster)
    assert first.keys() == {1, 2, 3}
    for node_id, each in first.items():
        assert [(e.name, e.host, e.port) for e in each.endpoints] == [
            ("CONTROLLER", host_of(node_id), CONTROLLER_PORT)
        ]
        ranges = {f.name: (f.min_supported_version, f.max_supported_version) for f in each.features}
        assert ranges == SUPPORTED_FEATURES
    leader = cluster.leader
    assert leader is not None
    killed = leader.node.config.node_id
    cluster.machines[killed].kill("")
    cluster.start(killed)
    scheduler.run(scheduler.now + WITHIN_S, lambda: registered(cluster)[killed] != first[killed])
    now = registered(cluster)
    assert now[killed].incarnation_id != first[killed].incarnation_id
    assert {each: now[each] for each in now if each != killed} == {
        each: first[each] for each in first if each != killed
    }
