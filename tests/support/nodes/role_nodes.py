"""Clusters whose nodes are not all alike: controllers, brokers, or both, as one says; each of them kraft or
Apache Kafka, on the same properties and directories."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from kraft.config.node_config import Config
from kraft.config.properties import format_properties
from kraft.local.free_ports import HOST
from kraft.peers.blocking_client import live_brokers
from kraft.storage.bootstrap import parse_user
from kraft.storage.formatter import format_storage
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.uuids import random_uuid, uuid_text
from tests.support.nodes.cluster import FEW_COORDINATORS
from tests.support.nodes.forks import FORKS
from tests.support.waiting import wait_until

CONTROLLER = "controller"
BROKER = "broker"
BOTH = "broker,controller"


class NodeProcess(Protocol):
    """As much of `subprocess.Popen` as is asked for."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: signal.Signals) -> None: ...


class Software(Protocol):
    """What a node runs: kraft, or Apache Kafka."""

    def format(self, properties: Path, cluster_id: str, users: Sequence[str]) -> None: ...

    def launch(self, properties: Path, log: Path) -> NodeProcess:
        """What the node says is appended to `log`."""


class Kraft:
    """Ours."""

    def format(self, properties: Path, cluster_id: str, users: Sequence[str]) -> None:
        rng = random.SystemRandom()
        records = [parse_user(each, rng) for each in users]
        format_storage(
            OsDisk(), Config.load(str(properties)), cluster_id, rng, users=records, new_cluster=True
        )

    def launch(self, properties: Path, log: Path) -> NodeProcess:
        return FORKS.launch("kraft.node.process", [str(properties), "--with", str(os.getpid())], log)


KRAFT: Final = Kraft()


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
    software: dict[int, Software] = field(default_factory=dict)
    """Of the nodes that do not run kraft."""
    cluster_id: str = field(default_factory=lambda: uuid_text(random_uuid(random.SystemRandom())))
    processes: dict[int, NodeProcess] = field(default_factory=dict)

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
            **FEW_COORDINATORS,
            **self.more,
        }

    def home(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}"

    def log(self, node_id: int) -> Path:
        """What the node has said."""
        return self.home(node_id) / "node.log"

    def format(self) -> None:
        for node_id in self.roles:
            self.home(node_id).mkdir()
            properties = self.configure(node_id)
            self.software.get(node_id, KRAFT).format(properties, self.cluster_id, self.users)

    def start(self, node_id: int) -> None:
        properties = self.configure(node_id)
        software = self.software.get(node_id, KRAFT)
        self.processes[node_id] = software.launch(properties, self.log(node_id))

    def configure(self, node_id: int) -> Path:
        """Its properties file, as it is to be now."""
        path = self.home(node_id) / "server.properties"
        path.write_text(format_properties(self.properties(node_id)))
        return path

    def kill(self, node_id: int) -> None:
        """SIGKILL, and wait."""
        process = self.processes.pop(node_id)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self, node_id: int, patience_s: float = 30) -> int:
        """SIGTERM; its exit code."""
        process = self.processes[node_id]
        process.send_signal(signal.SIGTERM)
        status = process.wait(patience_s)
        del self.processes[node_id]
        return status

    def wait_ready(self) -> None:
        """Until every running broker knows every running broker."""
        wanted = {node_id for node_id in self.brokers if node_id in self.processes}
        for node_id in wanted:
            wait_until(lambda at=node_id: self._knows(at) == wanted, f"node {node_id} knows {wanted}")

    def _knows(self, node_id: int) -> set[int]:
        for each, process in self.processes.items():
            assert process.poll() is None, f"node {each} ended: {self.log(each).read_text()[-2_000:]}"
        return live_brokers(HOST, self.ports[node_id])


@contextmanager
def role_nodes(
    directory: Path,
    ports: list[int],
    roles: Mapping[int, str],
    more: Mapping[str, str] | None = None,
    users: Sequence[str] = (),
    software: Mapping[int, Software] | None = None,
    later: Collection[int] = (),
) -> Iterator[RoleNodes]:
    """Ready; two ports for each node; every process is killed at the end. `software`: of those that do not
    run kraft; `later`: those that are formatted and not started."""
    ids = list(roles)
    nodes = RoleNodes(
        directory, roles, dict(zip(ids, ports, strict=False)), dict(zip(ids, ports[len(ids) :], strict=True)),
        more or {}, users, dict(software or {}),
    )  # fmt: skip
    nodes.format()
    with ExitStack() as at_the_end:
        at_the_end.callback(lambda: [nodes.kill(node_id) for node_id in list(nodes.processes)])
        for node_id in ids:
            if node_id not in later:
                nodes.start(node_id)
        nodes.wait_ready()
        yield nodes
