"""The nodes of a simulated cluster: formatted, started, killed and started again on their machines.

    ClusterShape -> Machine per node -> start: Config, Storage, NodeEnvironment -> Node, unmodified

What ends a node, and why, goes into the story; observers hear of nodes that end by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from random import Random
from typing import Final

from chaos.sim.disk import Killed
from chaos.simulator.draws import Draws
from chaos.simulator.machine import Machine
from chaos.simulator.network import Network
from chaos.simulator.process_loop import ProcessLoop
from chaos.simulator.scheduler import Scheduler
from chaos.simulator.software import THIS, Software
from chaos.simulator.story import Story
from kraft.node.node import Node
from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.foundation.supervision import ErrorBoundary, place_of
from metadata_quorum.foundation.uuids import random_uuid, uuid_text

BROKER_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
WORLD: Final = "world"
SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """Which nodes there are, and with which settings."""

    controllers: tuple[int, ...]
    brokers: tuple[int, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = 3
    """Of every topic, where there are so many brokers."""
    racks: int = 0
    """Over which the brokers are spread; consumers then read from a replica in their own."""
    log_dirs: int = 1
    """Of a broker, each on a device of its own. The metadata is in the first."""

    @property
    def copies(self) -> int:
        return min(self.replication_factor, len(self.brokers))

    @property
    def min_isr(self) -> int:
        return self.copies // 2 + 1

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(sorted({*self.controllers, *self.brokers}))

    def log_dirs_of(self, node_id: int) -> list[str]:
        count = self.log_dirs if node_id in self.brokers else 1
        return [f"/{host_of(node_id)}/data", *(f"/{host_of(node_id)}-{i}/data" for i in range(2, count + 1))]

    def properties(self, node_id: int) -> dict[str, str]:
        """The server.properties of a node."""
        roles, listeners, host = [], [], host_of(node_id)
        if node_id in self.brokers:
            roles.append("broker")
            listeners.append(f"PLAINTEXT://{host}:{BROKER_PORT}")
        if node_id in self.controllers:
            roles.append("controller")
            listeners.append(f"CONTROLLER://{host}:{CONTROLLER_PORT}")
        voters = ",".join(f"{each}@{host_of(each)}:{CONTROLLER_PORT}" for each in self.controllers)
        return {
            "process.roles": ",".join(roles),
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "log.dirs": ",".join(self.log_dirs_of(node_id)),
            "default.replication.factor": str(self.copies),
            "offsets.topic.replication.factor": str(self.copies),
            "transaction.state.log.replication.factor": str(self.copies),
            "min.insync.replicas": str(self.min_isr),
            "transaction.state.log.min.isr": str(self.min_isr),
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            **self._nearby(node_id),
            **self.settings,
        }

    def _nearby(self, node_id: int) -> dict[str, str]:
        if not self.racks:
            return {}
        return {"broker.rack": rack_of(node_id % self.racks), "replica.selector.class": SELECTOR}


def rack_of(number: int) -> str:
    return f"rack-{number}"


def host_of(node_id: int) -> str:
    return f"n{node_id}"


@dataclass(slots=True)
class RunningNode:
    """A node's present process."""

    node: Node
    loop: ProcessLoop
    starting: asyncio.Task[None] | None = None
    is_stopping: bool = False
    """It was asked to."""
    _has_started: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether it serves."""
        if not self._has_started and self.starting is not None and self.starting.done():
            self._has_started = self.starting.exception() is None
        return self._has_started


class Cluster:
    """See the module."""

    def __init__(
        self,
        shape: ClusterShape,
        scheduler: Scheduler,
        network: Network,
        draws: Draws,
        story: Story,
        software: Software = THIS,
    ) -> None:
        """`software`: every node's, at first."""
        self.shape = shape
        self.scheduler = scheduler
        self.network = network
        self.draws = draws
        self.story = story
        self.running: dict[int, RunningNode] = {}
        self.on_end: list[Callable[[int, BaseException, str], None]] = []
        """Told of every node that ends by itself, and why."""
        self.on_error: list[Callable[[int, str, Exception], None]] = []
        """Told of every error that ended some work of a node, but not the node."""
        self.on_start: list[Callable[[int, RunningNode], None]] = []
        """Observers of every new process."""
        self._processes: list[ProcessLoop] = []
        self.machines = {node_id: self._machine(host_of(node_id)) for node_id in shape.nodes}
        self.software = dict.fromkeys(shape.nodes, software)
        """What each node is started with, the next time."""
        self._cluster_id = uuid_text(random_uuid(draws.fresh("cluster id")))
        for node_id, machine in self.machines.items():
            machine.on_death = partial(self._died, node_id)
            machine.clock.differ(draws.fresh(f"clock of {node_id}"))
            chance = draws.fresh(f"format {node_id}")
            config = software.config(shape.properties(node_id))
            software.format_storage(machine.disk, config, self._cluster_id, chance, new_cluster=True)

    def _machine(self, host: str) -> Machine:
        return Machine(host, self.scheduler, self.network, self.draws, self._note)

    def _note(self, host: str, what: str) -> None:
        self.story.tell(self.scheduler.now, host, what)

    def client(self, name: str) -> ProcessLoop:
        """A machine for a client, and its process."""
        return self._new_process(self._machine(name))

    def _new_process(self, machine: Machine) -> ProcessLoop:
        loop = machine.start(len(self._processes) + 1)
        self._processes.append(loop)
        return loop

    def close(self) -> None:
        """Nothing of it runs any more, and no coroutine is left half-way."""
        for loop in self._processes:
            loop.kill()
        for loop in self._processes:
            loop.abandon()

    # ---- life of a node

    def format(self, node_id: int) -> None:
        """What its disks lack, while it is down. Raises FatalError where a disk does not work."""
        software, config = self.software[node_id], self.shape.properties(node_id)
        chance = self.draws.fresh(f"format {node_id} at {self.scheduler.now}")
        disk = self.machines[node_id].disk
        software.format_storage(
            disk, software.config(config), self._cluster_id, chance, ignore_formatted=True
        )

    def start(self, node_id: int) -> None:
        """Start it on what its disk has; nothing where it runs."""
        machine = self.machines[node_id]
        if machine.is_up:
            return
        loop = self._new_process(machine)
        loop.boundary = ErrorBoundary(partial(self._ended, node_id, loop), loop.time)
        loop.on_error = partial(self._failed, node_id)
        self._note(loop.name, "starts")
        loop.post(self._begin, node_id, loop)

    def _begin(self, node_id: int, loop: ProcessLoop) -> None:
        """As kraft/node/serve.py does it."""
        machine, software = self.machines[node_id], self.software[node_id]
        assert loop.boundary is not None
        try:
            config = software.config(self.shape.properties(node_id))
            node = software.node(
                config,
                software.read_storage(machine.disk, config),
                software.environment(
                    loop,
                    machine.disk,
                    self._chance(loop),
                    machine.clock.now_ms,
                    loop.boundary,
                    boot_id=machine.boot_id,
                ),
            )
        except (FatalError, OSError) as error:
            self._ended(node_id, loop, error)
            return
        running = self.running[node_id] = RunningNode(node, loop)
        for observe in self.on_start:
            observe(node_id, running)
        running.starting = loop.create_task(node.start(), name="start")
        running.starting.add_done_callback(partial(self._has_started, node_id, loop))

    def _chance(self, loop: ProcessLoop) -> Random:
        return self.draws.fresh(f"process {loop.name}")

    def _has_started(self, node_id: int, loop: ProcessLoop, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._note(loop.name, "is up")
        elif not isinstance(error, Killed):
            self._ended(node_id, loop, error)

    def _ended(self, node_id: int, loop: ProcessLoop, error: BaseException) -> None:
        """Its process ends itself. Does not return where it is called by the process."""
        reason = error.reason if isinstance(error, FatalError) else f"{place_of(error)}: {error}"
        self._note(loop.name, f"ends itself: {reason}")
        for observe in self.on_end:
            observe(node_id, error, f"{loop.name}: {reason}")
        self.machines[node_id].kill("")
        raise Killed(reason)

    def _failed(self, node_id: int, work: str, error: Exception) -> None:
        for observe in self.on_error:
            observe(node_id, work, error)

    def _died(self, node_id: int) -> None:
        self.running.pop(node_id, None)

    def stop(self, node_id: int) -> None:
        """SIGTERM: a controlled shutdown, then it is gone."""
        running = self.running.get(node_id)
        if running is not None:
            self._note(running.loop.name, "is asked to stop")
            running.is_stopping = True
            running.loop.post(self._stop, node_id, running)

    def _stop(self, node_id: int, running: RunningNode) -> None:
        task = running.loop.create_task(running.node.stop(), name="stop")
        task.add_done_callback(partial(self._has_stopped, node_id, running.loop))

    def _has_stopped(self, node_id: int, loop: ProcessLoop, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Killed):
            self._ended(node_id, loop, error)
        self._note(loop.name, "has stopped")
        self.machines[node_id].kill("")

    # ---- what it shows

    @property
    def leader(self) -> RunningNode | None:
        """The active controller's node, where there is one (the newest term, of several)."""
        active = [
            (role.raft.term, running)
            for running in self.running.values()
            if (role := running.node.controller_role) is not None and role.controller.is_active
        ]
        return max(active, key=itemgetter(0), default=(0, None))[1]

    @property
    def is_ready(self) -> bool:
        """Whether every node serves."""
        return len(self.running) == len(self.machines) and all(
            each.is_ready for each in self.running.values()
        )
