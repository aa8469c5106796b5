"""Which proxies there are, and that a node knows its peers only by its own."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from chaos.live.wiring import CLIENTS, CONTROLLERS, REPLICATION, Wiring
from kraft.cli.errors import CliError
from kraft.config.node_config import Config
from kraft.local.local_cluster import LocalCluster


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    return LocalCluster.create(tmp_path, nodes=3, port=20_000)


@pytest.fixture
def wiring(cluster: LocalCluster) -> Wiring:
    ports = count(30_000)
    return Wiring.plan(list(cluster.nodes.values()), 2, lambda n: [next(ports) for _ in range(n)])


def test_one_proxy_per_ordered_pair_and_per_client_and_node(wiring: Wiring) -> None:
    pairs = {(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b}
    for kind in (REPLICATION, CONTROLLERS):
        assert {(link.source, link.target) for link in wiring.links if link.kind == kind} == pairs
    assert {(link.source, link.target) for link in wiring.links if link.kind == CLIENTS} == {
        (client, node) for client in ("c0", "c1") for node in (1, 2, 3)
    }
    ports = [wiring.api_port, *(link.listen for link in wiring.links)]
    assert len(set(ports)) == len(ports)


def test_a_node_knows_its_peers_by_its_own_links_only(cluster: LocalCluster, wiring: Wiring) -> None:
    wiring.install(cluster)
    listens = {link.name: link.listen for link in wiring.links}
    for node in cluster.nodes.values():
        config = Config.load(str(cluster.home(node.id) / "server.properties"))
        others = cluster.nodes.keys() - {node.id}
        voters = {voter.node_id: voter.port for voter in config.voters}
        assert voters == {node.id: node.controller_port} | {
            other: listens[f"controllers-{node.id}-{other}"] for other in others
        }
        peers = {peer.node_id: peer.port for peer in config.peer_addresses.values()}
        assert peers == {other: listens[f"replication-{node.id}-{other}"] for other in others}
        assert config.inter_broker_listener == "PLAINTEXT"
        advertised = {endpoint.name: endpoint.port for endpoint in config.advertised_endpoints}
        assert advertised == {
            "PLAINTEXT": node.client_port,
            "CLIENT0": listens[f"clients-c0-{node.id}"],
            "CLIENT1": listens[f"clients-c1-{node.id}"],
        }


def test_another_process_reads_the_same(cluster: LocalCluster, wiring: Wiring) -> None:
    wiring.install(cluster)
    assert Wiring.load(cluster.directory) == wiring
    assert wiring.bootstrap(1).count(",") == 2
    with pytest.raises(CliError, match="there is no client c2; there are 2, counted from c0"):
        wiring.bootstrap(2)
