"""Every controller of a cluster registers (KIP-919), and does so again when it comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from chaos.simulator.cluster import CONTROLLER_PORT, Cluster, ClusterShape, host_of
from chaos.simulator.draws import Draws
from chaos.simulator.network import Network
from chaos.simulator.scheduler import Scheduler
from chaos.simulator.story import Story
from metadata_quorum.foundation.features import METADATA_VERSION, SUPPORTED_FEATURES
from metadata_quorum.foundation.model import ControllerRegistration, FeatureRange
from metadata_quorum.protocol.commands import FeatureUpdate

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


@pytest.mark.row("Q13")
def test_a_controller_ends_that_does_not_know_the_clusters_level(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been given an older version, with which brokers are refused: as a leader it would decide
    otherwise than the others, which would then stop."""
    scheduler = cluster.scheduler
    low, high = SUPPORTED_FEATURES[METADATA_VERSION]
    monkeypatch.setitem(SUPPORTED_FEATURES, METADATA_VERSION, (low, high + 1))
    for node_id in cluster.machines:
        cluster.machines[node_id].kill("")
        cluster.start(node_id)
    scheduler.run(WITHIN_S, lambda: cluster.is_ready and registered(cluster).keys() == {1, 2, 3})
    leader = cluster.leader
    assert leader is not None
    controller = leader.node.controller_role.controller  # type: ignore[union-attr]
    leader.loop.post(
        leader.loop.create_task,
        controller.update_features(
            [FeatureUpdate(name=METADATA_VERSION, level=high + 1)], supported_ranges()
        ),
    )
    scheduler.run(
        scheduler.now + WITHIN_S,
        lambda: cluster.running[4].node.context.image.features[METADATA_VERSION] > high,
    )
    ends: list[tuple[int, str]] = []
    cluster.on_end.append(lambda node_id, error, why: ends.append((node_id, str(error))))
    victim = leader.node.config.node_id % 3 + 1
    cluster.machines[victim].kill("")
    monkeypatch.setitem(SUPPORTED_FEATURES, METADATA_VERSION, (low, high))
    cluster.start(victim)
    scheduler.run(scheduler.now + WITHIN_S, lambda: bool(ends))
    assert ends == [
        (
            victim,
            f"the cluster runs at metadata.version={high + 1}, and this version of kraft supports "
            f"{low} to {high}. Start the version that this node had.",
        )
    ]
    monkeypatch.setitem(SUPPORTED_FEATURES, METADATA_VERSION, (low, high + 1))
    cluster.start(victim)
    scheduler.run(scheduler.now + WITHIN_S, lambda: cluster.is_ready)
    assert cluster.is_ready


def supported_ranges() -> list[FeatureRange]:
    return [FeatureRange(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()]
