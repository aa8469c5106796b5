"""A cluster in the test's own process and in virtual time: `kraft.testing.simulated`.

    with simulated(seed=7) as kafka:
        kafka.run(story(kafka))        # a coroutine; an hour of it takes seconds, and is the same each time

The coroutine runs on a host of its own, which has the nodes as n1, n2, …; whatever it starts ends with it.
"""

from __future__ import annotations

import gc
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from chaos.simulator.ambient import ambient
from chaos.simulator.cluster import BROKER_PORT, Cluster, ClusterShape, host_of
from chaos.simulator.draws import Draws
from chaos.simulator.network import Network
from chaos.simulator.run import BOOT_S, COLLECT_S, deterministic_garbage
from chaos.simulator.scheduler import Scheduler
from chaos.simulator.story import Story

T = TypeVar("T")

LONGEST_S: Final = 7 * 86_400.0
CLIENT: Final = "client"


class SimulatedCluster:
    """Combined nodes 1, 2, …, all up."""

    def __init__(self, seed: int, nodes: int, settings: Mapping[str, str]) -> None:
        ids = tuple(range(1, nodes + 1))
        self._scheduler = Scheduler()
        self._draws = Draws(seed)
        self._network = Network(self._scheduler, self._draws)
        self.story = Story()
        """What happened to the nodes."""
        shape = ClusterShape(ids, ids, settings)
        self._cluster = Cluster(shape, self._scheduler, self._network, self._draws, self.story)
        self._loop = self._cluster.client(CLIENT)
        for node_id in ids:
            self.start(node_id)
        self._until(lambda: self._cluster.is_ready, BOOT_S, "the nodes to start")

    @property
    def nodes(self) -> tuple[int, ...]:
        """All ids, of those that are down too."""
        return self._cluster.shape.nodes

    @property
    def bootstrap(self) -> str:
        """HOST:PORT,... for bootstrap.servers."""
        return ",".join(f"{host_of(node)}:{BROKER_PORT}" for node in self.nodes)

    @property
    def now_s(self) -> float:
        """Since the cluster was made."""
        return self._scheduler.now

    @property
    def digest(self) -> int:
        """Two runs that did the same have the same."""
        return self._scheduler.digest

    def run(self, story: Coroutine[Any, Any, T], *, seconds: float = LONGEST_S) -> T:
        """Run a coroutine to its end; its result. Raises TimeoutError after `seconds` of virtual time."""
        tasks: list[Any] = []
        self._loop.post(lambda: tasks.append(self._loop.create_task(story)))
        with ambient(self._scheduler, self._draws.stream("ambient")):
            self._until(lambda: bool(tasks) and tasks[0].done(), seconds, "the story to end")
        result: T = tasks[0].result()
        return result

    def _until(self, reached: Any, seconds: float, what: str) -> None:
        end = self._scheduler.now + seconds
        while not reached():
            if self._scheduler.now >= end:
                raise TimeoutError(f"waited {seconds:g} virtual seconds for {what}")
            self._scheduler.run(min(end, self._scheduler.now + COLLECT_S), reached)
            gc.collect()

    # ---- faults; from inside of the story

    def kill(self, node: int) -> None:
        """SIGKILL: a crash."""
        self._cluster.machines[node].kill("")

    def lose_power(self, node: int) -> None:
        """What was not synced is kept, lost or torn; no connection is reset."""
        self._cluster.machines[node].lose_power()

    def stop(self, node: int) -> None:
        """SIGTERM: it hands its leaders over and ends; returns at once."""
        self._cluster.stop(node)

    def start(self, node: int) -> None:
        """Start it on its own data; returns at once."""
        self._cluster.start(node)

    def partition(self, *groups: tuple[int | str, ...]) -> None:
        """Cut every link between groups of nodes; the test itself is the end CLIENT."""
        for here in groups:
            for there in groups:
                if here is not there:
                    for a in here:
                        for b in there:
                            self._network.cut(_host(a), _host(b))

    def heal(self) -> None:
        """No link is cut any more."""
        self._network.heal_all()

    def close(self) -> None:
        """The test is over."""
        self._cluster.close()


def _host(end: int | str) -> str:
    return host_of(end) if isinstance(end, int) else end


@contextmanager
def simulated(seed: int, nodes: int, settings: Mapping[str, str]) -> Iterator[SimulatedCluster]:
    """For `kraft.testing.simulated`, which says what it is."""
    with deterministic_garbage():
        cluster = SimulatedCluster(seed, nodes, settings)
        try:
            yield cluster
        finally:
            cluster.close()
