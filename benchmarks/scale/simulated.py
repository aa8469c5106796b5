"""Clusters that run in one process and in virtual time (chaos/simulator): what their growth costs the code.

    start -> create -> rest -> a broker dies -> it starts -> the active controller dies -> it starts

The nodes are unmodified; their network and disks are memory, where an fsync takes 0.2 to 2 ms of virtual time
and computing takes none. So a step has two figures: virtual seconds (waiting: timeouts, messages, fsyncs) and
CPU seconds of all nodes together. What else the machine does hardly matters. The longest callback of a loop
is measured, too: what waits behind it waits as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from chaos.simulator.clients.cluster_client import ClusterClient
from chaos.simulator.cluster import BROKER_PORT, Cluster, ClusterShape, RunningNode, host_of
from chaos.simulator.draws import Draws
from chaos.simulator.jobs import Job
from chaos.simulator.network import Network
from chaos.simulator.run import deterministic_garbage
from chaos.simulator.scheduler import ScheduledCall, Scheduler
from chaos.simulator.story import Story
from kraft.net.client import Address
from kraft.wire.api_keys import ApiKey
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage

SEED: Final = 1
TOPIC_PARTITIONS: Final = 1000
REST_S: Final = 30.0
"""Of virtual time: several checkpoints, and two looks at the ISRs."""
PATIENCE_S: Final = 600.0
CREATE_TIMEOUT_MS: Final = 60_000
_CONTROLLERS: Final = (1, 2, 3)


class _TimedScheduler(Scheduler):
    """Notes the longest callback of any loop; what runs beside a loop, in an executor, does not count."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_s = 0.0
        self.longest = ""

    def _call(self, call: ScheduledCall) -> None:
        before = time.thread_time()
        super()._call(call)
        took_s = time.thread_time() - before
        if took_s > self.longest_s and not isinstance(getattr(call.callback, "__self__", None), Job):
            self.longest_s, self.longest = took_s, _name(call)

    def _reset_alarm(self) -> None:
        """Very many callbacks a second are what is measured here."""
        self._alarm_at = self.events + (1 << 40)


def _name(call: ScheduledCall) -> str:
    """Of a callback, or of the coroutine that a task goes on with."""
    owner: Any = getattr(call.callback, "__self__", None)
    coroutine = owner.get_coro() if hasattr(owner, "get_coro") else None
    return str(getattr(coroutine or call.callback, "__qualname__", call.callback))


class Simulated:
    """One cluster, and its figures by name."""

    def __init__(self, shape: ClusterShape, partitions: int, replication: int) -> None:
        self.figures: dict[str, float] = {}
        self.longest: dict[str, str] = {}
        """What a loop's longest callback was, by step."""
        self._partitions = partitions
        self._replication = replication
        self._scheduler = _TimedScheduler()
        draws = Draws(SEED)
        network = Network(self._scheduler, draws)
        self._cluster = Cluster(shape, self._scheduler, network, draws, Story())
        self._brokers = shape.brokers
        addresses = {broker: Address(host_of(broker), BROKER_PORT) for broker in shape.brokers}
        self._client = ClusterClient(self._cluster.client("client"), addresses, draws.stream("client"))

    def close(self) -> None:
        self._cluster.close()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        scheduler = self._scheduler
        scheduler.longest_s, scheduler.longest = 0.0, ""
        cpu_before, before = time.process_time(), scheduler.now
        yield
        self.figures[name] = scheduler.now - before
        self.figures[f"{name}.cpu"] = time.process_time() - cpu_before
        self.figures[f"{name}.stall"] = scheduler.longest_s
        self.longest[name] = scheduler.longest

    # -- time -------------------------------------------------------------------------------------

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        end = self._scheduler.now + PATIENCE_S
        while not reached():
            if self._scheduler.now >= end:
                raise TimeoutError(f"waited {PATIENCE_S:.0f} virtual seconds until {what}")
            self._scheduler.run(self._scheduler.now + 0.01)

    def _do(self, work: Coroutine[Any, Any, None], what: str) -> None:
        tasks: list[Any] = []
        loop = self._client.loop
        loop.post(lambda: tasks.append(loop.create_task(work)))
        self._until(lambda: bool(tasks) and tasks[0].done(), what)
        tasks[0].result()

    # -- what the nodes show ----------------------------------------------------------------------

    @property
    def _image(self) -> MetadataImage:
        """The active controller's; empty while there is none."""
        leader = self._cluster.leader
        role = None if leader is None else leader.node.controller_role
        return EMPTY_IMAGE if role is None else role.state_machine.image

    def _all_have_applied(self) -> bool:
        """Whether every broker that runs serves by the newest metadata."""
        offset = self._image.offset
        roles = [running.node.broker_role for running in self._cluster.running.values()]
        return offset >= 0 and all(
            role is None or role.publisher.published_offset >= offset for role in roles
        )

    def _active(self, broker: int) -> bool:
        return self._image.is_active(broker)

    def _node_of(self, running: RunningNode) -> int:
        return next(node_id for node_id, each in self._cluster.running.items() if each is running)

    # -- steps ------------------------------------------------------------------------------------

    def start(self) -> None:
        with self.step("start"):
            for node_id in self._cluster.shape.nodes:
                self._cluster.start(node_id)
            self._until(lambda: self._cluster.is_ready, "all nodes serve")
            self._until(lambda: all(map(self._active, self._brokers)), "all brokers are active")

    def create(self) -> None:
        with self.step("create"):
            self._do(self._create(), "the topics are made")
            self._until(self._all_have_applied, "all brokers have them")

    async def _create(self) -> None:
        left = self._partitions
        while left:
            size = min(left, TOPIC_PARTITIONS)
            topic = {
                "name": f"scale-{left}",
                "num_partitions": size,
                "replication_factor": self._replication,
                "assignments": [],
                "configs": [],
            }
            fields = {"topics": [topic], "timeout_ms": CREATE_TIMEOUT_MS, "validate_only": False}
            answer = await self._client.request(
                self._brokers[0], ApiKey.CREATE_TOPICS, fields, timeout_s=PATIENCE_S
            )
            if answer.topics[0].error_code:
                raise ValueError(f"a topic is refused with error {answer.topics[0].error_code}")
            left -= size

    def rest(self) -> None:
        """`rest.node`: cores of one node."""
        self._scheduler.run(self._scheduler.now + REST_S)  # what creation has left to do
        with self.step("rest"):
            self._scheduler.run(self._scheduler.now + REST_S)
        cores = self.figures["rest.cpu"] / REST_S
        self.figures["rest.node"] = cores / len(self._cluster.shape.nodes)

    def broker_dies(self) -> None:
        """One that is not the active controller."""
        leader = self._cluster.leader
        active = -1 if leader is None else self._node_of(leader)
        self._dies("fence", next(broker for broker in self._brokers if broker != active))

    def controller_dies(self) -> None:
        """`failover`: until another one is active. Its own broker, if it is one, is fenced after that."""
        leader = self._cluster.leader
        assert leader is not None
        self._dies("failover", self._node_of(leader))

    def _dies(self, name: str, victim: int) -> None:
        with self.step(name):
            self._cluster.machines[victim].kill("")
            killed_at = self._scheduler.now
            self._until(lambda: self._cluster.leader is not None, "a controller is active")
            self.figures[f"{name}.elected"] = self._scheduler.now - killed_at
            self._until(lambda: not self._active(victim), f"broker {victim} is fenced")
            self._until(self._all_have_applied, "the other brokers know")
        with self.step(f"{name}.start"):
            self._cluster.start(victim)
            self._until(lambda: self._cluster.is_ready, f"node {victim} serves")
            if victim in self._brokers:
                self._until(lambda: self._active(victim), f"broker {victim} is active")
                self._until(self._in_sync, "every ISR is full")

    def _in_sync(self) -> bool:
        return all(
            len(partition.isr) == len(partition.replicas)
            for topic in self._image.topics_by_name.values()
            for partition in topic.partitions.values()
        )


def three_nodes(partitions: int, replication: int) -> Simulated:
    """Each of them broker and controller."""
    return _measured(ClusterShape(_CONTROLLERS, _CONTROLLERS), partitions, replication)


def many_brokers(brokers: int, partitions: int) -> Simulated:
    """Beside three controllers; three copies of each partition."""
    first = _CONTROLLERS[-1] + 1
    shape = ClusterShape(_CONTROLLERS, tuple(range(first, first + brokers)))
    return _measured(shape, partitions, min(3, brokers))


def _measured(shape: ClusterShape, partitions: int, replication: int) -> Simulated:
    with deterministic_garbage():
        cluster = Simulated(shape, partitions, replication)
        try:
            cluster.start()
            cluster.create()
            cluster.rest()
            cluster.broker_dies()
            cluster.controller_dies()
        finally:
            cluster.close()
    return cluster
