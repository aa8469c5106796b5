"""Clusters whose nodes are not all alike: controllers, brokers, or both, as one says."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kraft.config.node_config import Config
from kraft.config.properties import format_properties
from kraft.local.free_ports import HOST
from kraft.peers.blocking_client import live_brokers
from kraft.storage.bootstrap import parse_user
from kraft.storage.formatter import format_storage
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.uuids import random_uuid, uuid_text
from tests.support.nodes.forks import FORKS, Fork
from tests.support.waiting import wait_until

CONTROLLER = "controller"
BROKER = "broker"
BOTH = "broker,controller"


@dataclass
class RoleNodes:
    """Node ids with their roles, ports and processes."""

    directory: Path
    roles: Mapping[int, str]
    ports: Mapping[int, int]
    """A broker's clients come in here; a controller without a broker listens here for its like."""
    quorum_ports: Mapping[int, int]
    more: Mapping[str, str]
    users: Sequence[str] = ()
    """As the format command takes them."""
    cluster_id: str = field(default_factory=lambda: uuid_text(random_uuid(random.SystemRandom())))
    processes: dict[int, Fork] = field(default_factory=dict)

    @property
    def brokers(self) -> list[int]:
        return [node_id for node_id, roles in self.roles.items() if BROKER in roles]

    @property
    def controllers(self) -> list[int]:
        return [node_id for node_id, roles in self.roles.items() if CONTROLLER in roles]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self.ports[node_id]}" for node_id in self.brokers)

    def properties(self, node_id: int) -> dict[str, str]:
        roles = self.roles[node_id]
        listeners = []
        if BROKER in roles:
            listeners.append(f"PLAINTEXT://{HOST}:{self.ports[node_id]}")
        if CONTROLLER in roles:
            listeners.append(f"CONTROLLER://{HOST}:{self.quorum_ports[node_id]}")
        voters = ",".join(f"{each}@{HOST}:{self.quorum_ports[each]}" for each in self.controllers)
        copies = str(min(3, len(self.brokers)))
        return {
            "process.roles": roles,
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "log.dirs": str(self.directory / f"node-{node_id}" / "data"),
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "group.initial.rebalance.delay.ms": "0",
            **self.more,
        }

    def format(self) -> None:
        for node_id in self.roles:
            home = self.directory / f"node-{node_id}"
            home.mkdir()
            values = self.properties(node_id)
            (home / "server.properties").write_text(format_properties(values))
            config = Config.from_properties(values)
            rng = random.SystemRandom()
            users = [parse_user(each, rng) for each in self.users]
            format_storage(OsDisk(), config, self.cluster_id, rng, users=users, new_cluster=True)

    def start(self, node_id: int) -> None:
        home = self.directory / f"node-{node_id}"
        arguments = [str(home / "server.properties"), "--with", str(os.getpid())]
        self.processes[node_id] = FORKS.launch("kraft.node.process", arguments, home / "node.log")

    def kill(self, node_id: int) -> None:
        """SIGKILL, and wait."""
        process = self.processes.pop(node_id)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self, node_id: int, patience_s: float = 30) -> int:
        """SIGTERM; its exit code."""
        process = self.processes.pop(node_id)
        process.send_signal(signal.SIGTERM)
        return process.wait(patience_s)

    def wait_ready(self) -> None:
        """Until every running broker knows every running broker."""
        wanted = {node_id for node_id in self.brokers if node_id in self.processes}
        for node_id in wanted:
            wait_until(lambda at=node_id: self._knows(at) == wanted, f"node {node_id} knows {wanted}")

    def _knows(self, node_id: int) -> set[int]:
        for each, process in self.processes.items():
            log = self.directory / f"node-{each}" / "node.log"
            assert process.poll() is None, f"node {each} ended: {log.read_text()[-2_000:]}"
        return live_brokers(HOST, self.ports[node_id])


@contextmanager
def role_nodes(
    directory: Path,
    ports: list[int],
    roles: Mapping[int, str],
    more: Mapping[str, str] | None = None,
    users: Sequence[str] = (),
) -> Iterator[RoleNodes]:
    """Started and ready; two ports for each node; every process is killed at the end."""
    ids = list(roles)
    nodes = RoleNodes(
        directory, roles, dict(zip(ids, ports, strict=False)), dict(zip(ids, ports[len(ids) :], strict=True)),
        more or {}, users,
    )  # fmt: skip
    nodes.format()
    with ExitStack() as at_the_end:
        at_the_end.callback(lambda: [nodes.kill(node_id) for node_id in list(nodes.processes)])
        for node_id in ids:
            nodes.start(node_id)
        nodes.wait_ready()
        yield nodes
