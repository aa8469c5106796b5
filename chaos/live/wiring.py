"""The proxies between nodes, and each node's settings to connect through its own.

    replication-2-1    node 2 -> node 1's inter-broker listener        (kraft.peer.addresses of node 2)
    controllers-2-1    node 2 -> node 1's controller listener          (controller.quorum.voters of node 2)
    clients-c0-1       client c0 -> its own listener CLIENT0 on node 1 (advertised there as the proxy)

One proxy per ordered pair: from node 2 to node 1 and from node 1 to node 2 are different links.
A client has a listener of its own on every node, because a node advertises the addresses of all nodes,
and different ones on each listener. DIR/links.json holds all this for other processes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Self

from chaos.live.link_faults import End
from kraft.cli.errors import CliError
from kraft.local.free_ports import HOST
from kraft.local.layout import LocalNode
from kraft.local.local_cluster import LocalCluster
from kraft.local.security import PLAINTEXT

REPLICATION: Final = "replication"
CONTROLLERS: Final = "controllers"
CLIENTS: Final = "clients"
FILE: Final = "links.json"

TakePorts = Callable[[int], list[int]]
"""So many free ports."""


@dataclass(frozen=True, slots=True)
class Link:
    """One proxy: `source` connects to `listen` in place of `upstream`, which is `target`'s."""

    kind: str
    source: End
    target: int
    listen: int
    upstream: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.source}-{self.target}"

    @property
    def proxy(self) -> dict[str, str]:
        """As Toxiproxy's API has it."""
        return {
            "name": self.name,
            "listen": f"{HOST}:{self.listen}",
            "upstream": f"{HOST}:{self.upstream}",
        }


@dataclass(frozen=True, slots=True)
class Wiring:
    """All links of a cluster."""

    api_port: int
    nodes: tuple[int, ...]
    clients: int
    links: tuple[Link, ...]
    past_them: tuple[int, ...] = ()
    """The nodes that are yet to be started again to go through them: who put the links in was interrupted."""

    @classmethod
    def plan(cls, nodes: Sequence[LocalNode], clients: int, take_ports: TakePorts) -> Self:
        """For these nodes, and clients c0, c1, …"""
        pairs = [(a, b) for a in nodes for b in nodes if a is not b]
        # Per pair of nodes two proxies; per client and node a proxy and a listener; and the API.
        ports = iter(take_ports(2 * len(pairs) + 2 * clients * len(nodes) + 1))
        links: list[Link] = []
        for a, b in pairs:
            links.append(Link(REPLICATION, a.id, b.id, next(ports), b.client_port))
            links.append(Link(CONTROLLERS, a.id, b.id, next(ports), b.controller_port))
        for client in range(clients):
            links += (Link(CLIENTS, f"c{client}", node.id, next(ports), next(ports)) for node in nodes)
        return cls(next(ports), tuple(node.id for node in nodes), clients, tuple(links))

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Of a cluster that has links. Raises CliError."""
        try:
            fields = json.loads((directory / FILE).read_text())
        except FileNotFoundError:
            raise CliError(f"the cluster in {directory} has no links") from None
        links = tuple(Link(**link) for link in fields["links"])
        past_them = tuple(fields.get("past_them", ()))  # not in files of earlier versions
        return cls(fields["api_port"], tuple(fields["nodes"]), fields["clients"], links, past_them)

    def save(self, directory: Path) -> None:
        half_done = directory / f"{FILE}.tmp"
        half_done.write_text(json.dumps(asdict(self), indent=1) + "\n")
        half_done.replace(directory / FILE)

    def without(self, node_id: int) -> Self:
        """That node goes through them now."""
        return replace(self, past_them=tuple(each for each in self.past_them if each != node_id))

    def install(self, cluster: LocalCluster) -> None:
        """Tell the nodes, for their next start."""
        for node in cluster.nodes.values():
            cluster.configure(node.id, self.settings(cluster, node))
        self.save(cluster.directory)

    def settings(self, cluster: LocalCluster, node: LocalNode) -> dict[str, str]:
        """The settings of `node`: the addresses of its peers, and its own for clients."""
        own = f"{node.id}@{HOST}:{node.controller_port}"
        voters = [own, *(_address(link) for link in self._of(CONTROLLERS, node.id))]
        doors = [link for link in self.links if link.kind == CLIENTS and link.target == node.id]
        direct = f"PLAINTEXT://{HOST}:{node.client_port}"
        listeners = [direct, *(f"{_listener(link)}://{HOST}:{link.upstream}" for link in doors)]
        advertised = [direct, *(f"{_listener(link)}://{HOST}:{link.listen}" for link in doors)]
        names = ["PLAINTEXT", "CONTROLLER", *(_listener(link) for link in doors)]
        return {
            "controller.quorum.voters": ",".join(voters),
            "kraft.peer.addresses": ",".join(_address(link) for link in self._of(REPLICATION, node.id)),
            "listeners": ",".join((*listeners, f"CONTROLLER://{HOST}:{node.controller_port}")),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "inter.broker.listener.name": "PLAINTEXT",
        }

    def bootstrap(self, client: int) -> str:
        """HOST:PORT,... of a client's own links. Raises CliError."""
        own = [f"{HOST}:{link.listen}" for link in self._of(CLIENTS, f"c{client}")]
        if not own:
            raise CliError(f"there is no client c{client}; there are {self.clients}, counted from c0")
        return ",".join(own)

    def between(self, source: End, target: End) -> list[Link]:
        """The links that `source` opens to `target`."""
        return [link for link in self.links if (link.source, link.target) == (source, target)]

    def _of(self, kind: str, source: End) -> list[Link]:
        return [link for link in self.links if (link.kind, link.source) == (kind, source)]


def require_plain(cluster: LocalCluster) -> None:
    """Raises CliError where listeners have certificates or logins: links have plain ones."""
    if cluster.security != PLAINTEXT:
        protocol = cluster.security.protocol
        raise CliError(f"links are for plain listeners; those of this cluster are {protocol}")


def _address(link: Link) -> str:
    return f"{link.target}@{HOST}:{link.listen}"


def _listener(link: Link) -> str:
    return f"CLIENT{str(link.source).removeprefix('c')}"
