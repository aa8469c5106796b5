"""Three nodes with very many partitions: what each step of their life takes.

    create -> rest -> scrape -> fetch session -> a broker dies -> it starts -> the active controller dies
    -> it starts

Beside all of it a busy topic is written to (busy.py). A step's figures: seconds by the clock, CPU seconds of
the nodes that lived through it, the p99 of the busy topic's acknowledgements, the longest gap between two of
them, and the longest stall of a loop.
"""

from __future__ import annotations

import math
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata
from confluent_kafka.cimpl import NewTopic

from benchmarks.admin import Admin
from benchmarks.cluster import NODES, BenchmarkCluster
from benchmarks.scale.busy import PARTITIONS as BUSY_PARTITIONS
from benchmarks.scale.busy import TOPIC as BUSY
from benchmarks.scale.busy import BusyTopic
from benchmarks.scale.fetch_session import FetchSession
from benchmarks.scale.stalls import StallFile

TOPIC_PARTITIONS = 1000
PREFIX = "scale-"
PATIENCE_S = 180.0
POLL_S = 0.02
QUIET_CORES = 0.1
"""All nodes together, when they rest after a step."""
POLLS = 50


class GaveUp(Exception):
    """A step did not end in time."""


@dataclass
class Nodes:
    """A cluster under measurement, and its figures by name."""

    cluster: BenchmarkCluster
    partitions: int
    replication: int
    stalls: StallFile
    scrapes: Mapping[int, str]
    """URLs of /metrics by node; empty where the system has none."""
    note: Callable[[str], None]
    settle_s: float = PATIENCE_S
    rest_s: float = 10.0
    ends_at: float = math.inf
    """Of `time.monotonic()`: then a step gives up."""
    only_deaths: bool = False
    """Nothing but the making of the partitions and the deaths."""
    figures: dict[str, float] = field(default_factory=dict)
    profile: list[str] = field(default_factory=list)
    """Where the loops stood still, by step."""
    busy: BusyTopic | None = None

    def __post_init__(self) -> None:
        self.admin = Admin(self.cluster.bootstrap)
        self._client = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})

    # -- figures ----------------------------------------------------------------------------------

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Everything within is one step."""
        self.stalls.longest()
        cpu_before, start = self.cpu_s(), time.monotonic()
        yield
        end = time.monotonic()
        cpu_s = sum(after - cpu_before.get(pid, 0.0) for pid, after in self.cpu_s().items())
        self._record(name, "", end - start)
        self._record(name, ".cpu", cpu_s)
        time.sleep(POLL_S * 5)  # the last acknowledgements and stalls are on their way
        if self.busy is not None:
            acks = self.busy.between(start, end)
            self._record(name, ".ack-p99", acks.p99_s)
            self._record(name, ".ack-gap", acks.longest_gap_s)
            if acks.failed:
                self.note(f"{name}: {acks.failed} writes to the busy topic failed")
        stalled = self.stalls.longest()
        self._record(name, ".stall", stalled.cpu_ms / 1e3)
        if stalled.stalls:
            self.profile.append(
                f"{name}: {stalled.stalls} stalls, the longest {stalled.cpu_ms} ms\n{stalled.where}"
            )
        parts = ("", ".cpu", ".ack-p99", ".ack-gap", ".stall")
        shown = {
            part or "s": round(self.figures[name + part], 3) for part in parts if name + part in self.figures
        }
        self.note(f"{name}: {shown}")

    def _record(self, step: str, part: str, value: float) -> None:
        self.figures[step + part] = value

    def cpu_s(self) -> dict[int, float]:
        """Of every process that runs, by its id."""
        found = {}
        for pid in self.cluster.pids().values():
            times = psutil.Process(pid).cpu_times()
            found[pid] = times.user + times.system
        return found

    # -- asking -----------------------------------------------------------------------------------

    def metadata(self, topic: str | None = None) -> ClusterMetadata:
        return self._client.list_topics(topic, timeout=PATIENCE_S)

    @property
    def topics(self) -> list[tuple[str, int]]:
        """Name and number of partitions of what is created."""
        whole, rest = divmod(self.partitions, TOPIC_PARTITIONS)
        sizes = [TOPIC_PARTITIONS] * whole + ([rest] if rest else [])
        return [(f"{PREFIX}{number}", size) for number, size in enumerate(sizes)]

    @property
    def last_topic(self) -> str:
        return self.topics[-1][0]

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = min(time.monotonic() + PATIENCE_S, self.ends_at)
        while True:
            try:
                if condition():
                    return
            except KafkaException:
                pass
            if time.monotonic() > deadline:
                raise GaveUp(f"the time was over before {what}")
            time.sleep(POLL_S)

    def settle(self) -> None:
        """Until the nodes have nothing left to do, or for `settle_s`."""
        deadline = min(time.monotonic() + self.settle_s, self.ends_at)
        while time.monotonic() < deadline:
            before, start = sum(self.cpu_s().values()), time.monotonic()
            time.sleep(1.0)
            if (sum(self.cpu_s().values()) - before) / (time.monotonic() - start) < QUIET_CORES:
                return


def create(nodes: Nodes) -> None:
    """Every topic, one after another, until the last three partitions take a write (acks=all) each."""
    with nodes.step("create"):
        for name, size in nodes.topics:
            if time.monotonic() > nodes.ends_at:
                raise GaveUp(f"the time was over before {name} was made")
            _create_topic(nodes, name, size)
        _write_to_last(nodes)
    nodes.settle()


def _create_topic(nodes: Nodes, name: str, size: int) -> None:
    new = NewTopic(name, num_partitions=size, replication_factor=nodes.replication)
    nodes._client.create_topics([new], request_timeout=PATIENCE_S)[name].result()


def _write_to_last(nodes: Nodes) -> None:
    topic, size = nodes.topics[-1]
    producer = Producer(
        {"bootstrap.servers": nodes.cluster.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
    )
    for partition in range(max(0, size - NODES), size):
        producer.produce(topic, b"here", partition=partition)
    if producer.flush(PATIENCE_S):
        raise GaveUp(f"the last partitions take no writes in {PATIENCE_S:.0f} s")


def rest(nodes: Nodes) -> None:
    """Idle CPU is without the busy topic; its latencies beside idle partitions are a step of their own."""
    cpu_before, start = sum(nodes.cpu_s().values()), time.monotonic()
    time.sleep(nodes.rest_s)
    cores = (sum(nodes.cpu_s().values()) - cpu_before) / (time.monotonic() - start)
    processes = [psutil.Process(pid) for pid in nodes.cluster.pids().values()]
    nodes.figures["idle.cores"] = cores / len(processes)
    nodes.figures["rss"] = max(process.memory_info().rss for process in processes)
    nodes.figures["files"] = max(process.num_fds() for process in processes)
    rss, files = nodes.figures["rss"], nodes.figures["files"]
    nodes.note(f"idle: {cores / len(processes):.4f} cores, {rss / 1e6:.0f} MB, {files:.0f} files")


def scrape(nodes: Nodes) -> None:
    """/metrics of the first node, twice: the first one may fill what later ones find."""
    if not nodes.scrapes:
        return
    url = min(nodes.scrapes.items())[1]
    for name in ("scrape.first", "scrape"):
        with nodes.step(name), urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            nodes.figures["scrape.bytes"] = len(answer.read())


def fetch_session(nodes: Nodes) -> None:
    """A consumer of everything that one node leads."""
    found = nodes.metadata()
    led: dict[int, list[tuple[str, int]]] = {broker: [] for broker in found.brokers}
    for name, topic in found.topics.items():
        for number, partition in topic.partitions.items():
            if name.startswith(PREFIX) and partition.leader in led:
                led[partition.leader].append((name, number))
    broker = max(led, key=lambda each: len(led[each]))  # one that was fenced a moment ago leads nothing
    address = found.brokers[broker]
    with FetchSession((str(address.host), address.port)) as session:
        with nodes.step("fetch.full"):
            session.open(led[broker])
        with nodes.step("fetch.polls"):
            for _ in range(POLLS):
                session.poll()


def broker_dies(nodes: Nodes) -> None:
    """One that is not the active controller. Until the last topic has no partition that it leads."""
    controller = nodes.admin.active_controller()
    _dies(nodes, "fence", next(node for node in nodes.cluster.pids() if node != controller))


def controller_dies(nodes: Nodes) -> None:
    """The active controller, which is a broker, too. Until a topic can be created; until it is fenced."""
    controller = nodes.admin.active_controller()
    _dies(nodes, "failover", controller, create="scale-after")


def _dies(nodes: Nodes, name: str, victim: int, create: str = "") -> None:
    with nodes.step(name):
        started = time.monotonic()
        nodes.cluster.kill(victim)
        if create:
            nodes.wait(lambda: nodes.admin.active_controller() != victim, "another controller is active")
            nodes.figures[f"{name}.elected"] = time.monotonic() - started
            nodes.wait(lambda: _created(nodes, create), "a topic can be created")
            nodes.figures[f"{name}.created"] = time.monotonic() - started
            nodes.note(
                f"{name}: {nodes.figures[f'{name}.elected']:.2f} {nodes.figures[f'{name}.created']:.2f}"
            )

        def fenced() -> bool:
            partitions = nodes.metadata(nodes.last_topic).topics[nodes.last_topic].partitions
            return bool(partitions) and all(each.leader != victim for each in partitions.values())

        nodes.wait(fenced, f"node {victim} leads nothing")
    nodes.settle()
    _starts(nodes, f"{name}.start", victim)
    nodes.settle()


def _created(nodes: Nodes, topic: str) -> bool:
    """With one copy: two nodes are left."""
    new = NewTopic(topic, num_partitions=1, replication_factor=1)
    try:
        nodes._client.create_topics([new], request_timeout=1.0)[topic].result()
    except KafkaException as error:
        return "already exists" in str(error)
    return True


def _starts(nodes: Nodes, name: str, node: int) -> None:
    """Until clients see it; then until it is in sync again."""
    with nodes.step(name):
        nodes.cluster.restart(node)
        nodes.wait(lambda: node in nodes.metadata(BUSY).brokers, f"node {node} is there")
    with nodes.step(f"{name}.in-sync"):
        for topic, copies in ((BUSY, NODES), (nodes.last_topic, nodes.replication)):
            nodes.wait(lambda: _in_sync(nodes, topic, copies), f"every ISR of {topic} is full")  # noqa: B023


def _in_sync(nodes: Nodes, topic: str, copies: int) -> bool:
    partitions = nodes.metadata(topic).topics[topic].partitions
    return bool(partitions) and all(len(each.isrs) == copies for each in partitions.values())


STEPS = (scrape, fetch_session, broker_dies, controller_dies)


def measure(nodes: Nodes) -> None:
    """All steps on a cluster that has just been made; it is ended by whoever made it."""
    nodes.cluster.start()
    nodes.admin.create_topic(BUSY, BUSY_PARTITIONS)
    nodes.admin.wait_for_full_isr(BUSY)
    with BusyTopic(nodes.cluster.bootstrap) as nodes.busy:
        with nodes.step("before"):
            time.sleep(min(nodes.rest_s, 3.0))
        create(nodes)
    nodes.busy = None
    nodes.settle()
    if not nodes.only_deaths:
        rest(nodes)
    steps = (broker_dies, controller_dies) if nodes.only_deaths else STEPS
    with BusyTopic(nodes.cluster.bootstrap) as nodes.busy:
        with nodes.step("beside"):
            time.sleep(min(nodes.rest_s, 5.0))
        for step in steps:
            step(nodes)
    nodes.busy = None
