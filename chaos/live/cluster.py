"""A cluster that can be broken: kraft's local cluster with links between its nodes, and switches on them.

    ChaosCluster.create -> nodes formatted and configured for their links -> start: Toxiproxy, then the nodes
    .links  faults between nodes, and between them and their clients
    .disk(i) .clock(i)  faults around one;  .kill(i) .pause(i) .restart(i)  of one

Each client has a listener of its own on every node, behind its own links: `bootstrap(0)` is client c0's.
`bootstrap()` bypasses all links, for observers. `put_links_in` is for a cluster that was started without: so
a `kraft up` can be broken by hand.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from chaos.live.clock import ClockSwitch
from chaos.live.disk_switch import DiskSwitch
from chaos.live.links import Links
from chaos.live.toxiproxy import NAME, run_beside, runs_beside
from chaos.live.wiring import TakePorts, Wiring, require_plain
from kraft.cli.errors import CliError
from kraft.local.free_ports import HOST
from kraft.local.layout import LocalNode
from kraft.local.local_cluster import START_PATIENCE_S, LocalCluster
from kraft.local.processes import POLL_S
from kraft.peers.blocking_client import out_of_sync

PROGRAM: Final = "chaos.live.process"
CLIENTS: Final = 4


class ChaosCluster:
    """Made by `create`; a context that starts nothing, and leaves nothing behind."""

    def __init__(self, local: LocalCluster, wiring: Wiring) -> None:
        self.local = local
        """The cluster without what makes it breakable."""
        self.wiring = wiring
        self.links = Links(wiring)

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        nodes: int = 3,
        clients: int = CLIENTS,
        settings: Mapping[str, str] | None = None,
        plant: str | None = None,
        port: int | None = None,
        take_ports: TakePorts,
        detached: bool = False,
    ) -> Self:
        """`settings`: for every node. `plant`: a bug of chaos/live/planted.py. `port`: as `kraft up`
        counts; without it the nodes' ports are taken, too."""
        local = LocalCluster.create(
            directory,
            nodes=nodes,
            port=port or 0,
            ports=take_ports(3 * nodes) if port is None else None,
            settings=settings,
            detached=detached,
            program=(PROGRAM,) if plant is None else (PROGRAM, "--plant", plant),
        )
        require_plain(local)
        wiring = Wiring.plan(list(local.nodes.values()), clients, take_ports)
        wiring.install(local)
        return cls(local, wiring)

    @classmethod
    def attach(cls, directory: Path) -> Self:
        """One that runs already, by its directory. Raises CliError."""
        local = LocalCluster.attach(directory)
        if not runs_beside(local):
            raise CliError(f"the cluster in {directory} has no links")
        return cls(local, Wiring.load(local.directory))

    @property
    def directory(self) -> Path:
        return self.local.directory

    @property
    def nodes(self) -> tuple[int, ...]:
        """Their ids."""
        return tuple(self.local.nodes)

    def home(self, node_id: int) -> Path:
        """The directory of a node."""
        return self.local.home(node_id)

    def bootstrap(self, client: int | None = None) -> str:
        """HOST:PORT,... for one client, through its own links; past all links for None."""
        return self.local.bootstrap if client is None else self.wiring.bootstrap(client)

    def disk(self, node_id: int) -> DiskSwitch:
        return DiskSwitch(self.home(node_id))

    def clock(self, node_id: int) -> ClockSwitch:
        return ClockSwitch(self.home(node_id))

    # -- running --------------------------------------------------------------------------------

    def start(self, patience_s: float = START_PATIENCE_S) -> None:
        """The links, then every node; returns when all are registered and unfenced."""
        run_beside(self.local, self.wiring.api_port, [link.proxy for link in self.wiring.links])
        self.local.start(patience_s)

    def renew_links(self) -> None:
        """End a Toxiproxy that hangs, and start another: every connection breaks, nothing else is wrong."""
        self.links.close()
        self.local.dismiss(NAME)
        _await_silence(self.wiring.api_port)
        run_beside(self.local, self.wiring.api_port, [link.proxy for link in self.wiring.links])
        self.links = Links(self.wiring)

    def close(self) -> None:
        """End everything at once, without waiting for leaders that move. The data stays."""
        self.links.close()
        self.local.close(patience_s=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def kill(self, node_id: int) -> None:
        """SIGKILL: what a crash looks like."""
        self.local.kill(node_id)

    def stop(self, node_id: int) -> None:
        """SIGTERM: the node hands its leaders over and ends."""
        self.local.stop(node_id)

    def start_node(self, node_id: int, *, wait: bool = True) -> None:
        """Start one that does not run; `wait` until the others see it."""
        self.local.start_node(node_id, wait=wait)

    def restart(self, node_id: int) -> None:
        """Stop it in order, start it, and wait until the others see it."""
        self.stop(node_id)
        self.start_node(node_id)

    def pause(self, node_id: int) -> None:
        """SIGSTOP: the node is silent, its connections stay open."""
        self.local.pause(node_id)

    def resume(self, node_id: int) -> None:
        """SIGCONT."""
        self.local.resume(node_id)


def _await_silence(port: int) -> None:
    """The keeper was ended; the server ends soon after it. Raises CliError."""
    deadline = time.monotonic() + START_PATIENCE_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection((HOST, port), timeout=POLL_S).close()
        except OSError:
            return
        time.sleep(POLL_S)
    raise CliError(f"Toxiproxy was ended, and port {port} is still answered after {START_PATIENCE_S:g} s")


def put_links_in(
    local: LocalCluster, clients: int, say: Callable[[str], None], take_ports: TakePorts
) -> Wiring:
    """Give links to a cluster that runs without, restarting its nodes one after another. What an earlier call
    has begun (it was interrupted, or gave up) is brought to its end. Raises CliError."""
    require_plain(local)
    running = [node.id for node in local.nodes.values() if node.process() is not None]
    if not running:
        raise CliError(f"no node of the cluster in {local.directory} runs")
    if runs_beside(local):
        wiring = Wiring.load(local.directory)
    else:
        plan = Wiring.plan(list(local.nodes.values()), clients, take_ports)
        wiring = replace(plan, past_them=tuple(running))
        wiring.save(local.directory)  # first: what runs beside the cluster is what is written down
        run_beside(local, wiring.api_port, [link.proxy for link in wiring.links])
    wiring.install(local)
    for node_id in wiring.past_them:
        say(f"restarting node {node_id}, to connect it through links")
        if local.node(node_id).process() is not None:
            _await_in_sync(local.node(node_id))
            local.stop(node_id)
        local.start_node(node_id)
        wiring = wiring.without(node_id)
        wiring.save(local.directory)
    for node in local.nodes.values():
        if node.process() is not None:
            _await_in_sync(node)
    return wiring


def _await_in_sync(node: LocalNode) -> None:
    """Until every partition has all its replicas in sync, as far as the node knows: one more node can
    then be away without a failed write."""
    deadline = time.monotonic() + START_PATIENCE_S
    while time.monotonic() < deadline:
        lagging = out_of_sync(HOST, node.client_port)
        if not lagging:
            return
        time.sleep(POLL_S)
    raise CliError(f"not all replicas came in sync within {START_PATIENCE_S:g} s: {', '.join(lagging)}")
