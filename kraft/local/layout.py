"""The nodes of a local cluster on paper: their ports, and what their server.properties say."""

from __future__ import annotations

import random
import shlex
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraft.config.node_config import Config
from kraft.config.properties import format_properties
from kraft.local.free_ports import HOST
from kraft.local.processes import LocalProcess
from kraft.local.security import CONTROLLER, LocalSecurity
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.uuids import random_uuid, uuid_text

CONTROLLER_OFFSET: Final = 100
HTTP_OFFSET: Final = 200
"""Node i serves clients on port+i-1, controllers on that + 100, HTTP on that + 200."""


@dataclass(slots=True)
class LocalNode(LocalProcess):
    """One node as cluster.json has it."""

    id: int
    client_port: int
    controller_port: int
    http_port: int


def nodes_from(nodes: int, port: int) -> list[LocalNode]:
    """Raises FatalError if there are no such ports."""
    if not 1 <= nodes <= CONTROLLER_OFFSET or not 0 < port <= 65535 - HTTP_OFFSET - nodes:
        raise FatalError(ExitCode.USAGE, f"{nodes} nodes from port {port} on do not fit")
    ports = [port + offset + i for offset in (0, CONTROLLER_OFFSET, HTTP_OFFSET) for i in range(nodes)]
    return nodes_at(nodes, ports)


def nodes_at(nodes: int, ports: Sequence[int]) -> list[LocalNode]:
    """Raises ValueError unless there are three ports for each node."""
    if len(ports) != 3 * nodes:
        raise ValueError(f"{nodes} nodes need {3 * nodes} ports")
    columns = zip(ports[:nodes], ports[nodes : 2 * nodes], ports[2 * nodes :], strict=True)
    return [
        LocalNode(i, client_port, controller_port, http_port)
        for i, (client_port, controller_port, http_port) in enumerate(columns, start=1)
    ]


def refuse_taken_ports(nodes: Iterable[LocalNode]) -> None:
    """Raises FatalError if something listens on one of them."""
    for node in nodes:
        for port in (node.client_port, node.controller_port, node.http_port):
            _refuse_taken_port(node.id, port)


def _refuse_taken_port(node_id: int, port: int) -> None:
    """Raises FatalError if something listens there."""
    with socket.socket() as probe:
        # As the node will bind: connections of a former process that still fade away do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            raise FatalError(
                ExitCode.PORT_IN_USE, f"port {port} of node {node_id} is in use; choose others with --port"
            ) from None


def properties_of(
    node: LocalNode, nodes: Collection[LocalNode], log_dir: Path, security: LocalSecurity
) -> dict[str, str]:
    """What server.properties of a combined node says, next to the other `nodes`."""
    clients = f"{security.listener}://{HOST}:{node.client_port}"
    copies = str(min(3, len(nodes)))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.quorum.voters": ",".join(f"{n.id}@{HOST}:{n.controller_port}" for n in nodes),
        "controller.listener.names": CONTROLLER,
        "listeners": f"{clients},{CONTROLLER}://{HOST}:{node.controller_port}",
        "kraft.http.port": str(node.http_port),
        "log.dirs": str(log_dir),
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": str(min(2, len(nodes))),
        # As in the server.properties that comes with Kafka: a first consumer need not wait.
        "group.initial.rebalance.delay.ms": "0",
        **security.node_properties(),
    }


def properties_of_all(
    nodes: Collection[LocalNode], directory: Path, security: LocalSecurity, settings: Mapping[str, str]
) -> dict[int, dict[str, str]]:
    """What server.properties of each node says. Raises FatalError for settings that are wrong, and for a
    directory that it cannot name."""
    if "," in str(directory):
        raise FatalError(ExitCode.USAGE, f"{directory}: with a comma, log.dirs would be two directories")
    files = {}
    for node in nodes:
        data = home_of(directory, node.id) / "data"
        files[node.id] = {**properties_of(node, nodes, data, security), **settings}
        Config.from_properties(files[node.id])
        format_properties(files[node.id])
    return files


def home_of(directory: Path, node_id: int) -> Path:
    """Where a node keeps everything."""
    return directory / f"node-{node_id}"


def command(name: str, directory: Path) -> str:
    """A command for the cluster of a directory, as it can be typed."""
    return f"kraft {name} --dir {shlex.quote(str(directory))}"


def new_id() -> str:
    """Of a cluster, or of one of its runs."""
    return uuid_text(random_uuid(random.SystemRandom()))
