"""Chaos by hand: clients that do one thing at a time on a topic of a real cluster, and the checker's verdict.

A `Stage` is for schedules that lead a cluster into one certain place, step by step, each step waiting for
what the one before has brought about. What its clients do is recorded as the workload records it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from chaos.checker import Verdict, check
from chaos.history import Header, History, Operation, Poll, Send, TopicMode
from chaos.live.cluster import ChaosCluster
from chaos.workload.consumer import ReadingClient
from chaos.workload.discard import DiscardedClients
from chaos.workload.final import bounds_of, read_all
from chaos.workload.generator import AssignStep, Ending, SendStep, Step
from chaos.workload.journal import Journal
from chaos.workload.late_members import LateMembers
from chaos.workload.producer import SendingClient
from chaos.workload.settle import ask_committed, settle
from chaos.workload.statistics import Statistics
from chaos.workload.topics import TopicSpec, Writing
from chaos.workload.transactional import TransactionalClient
from chaos.workload.transactor import Transactor
from chaos.workload.worker import Making, Worker
from kraft.local.free_ports import HOST
from kraft.peers.blocking_client import METADATA_VERSION, ask
from kraft.wire.api_keys import ApiKey
from tests.support.waiting import wait_until

CLIENTS: Final = 4
WRITER, OTHER_WRITER, HASTY_WRITER, READER = range(CLIENTS)
DELIVERY_TIMEOUT_S: Final = 60.0
HASTY_S: Final = 2.0
"""For what is sent in vain, and only to a leader that has answered before. Shorter than a failover (6.5 s
here, less where a heartbeat was late): after one the client sends to the new leader, over other links."""
FINAL_PATIENCE_S: Final = 180
SETTLE_S: Final = 5.0
"""For markers: no transaction is left open here."""


class Stage:
    """A cluster with a topic of one partition, three clients, and their history."""

    def __init__(self, cluster: ChaosCluster, topic: str, mode: TopicMode) -> None:
        self.cluster = cluster
        self.key = f"{topic}-0"
        self.operations: list[Operation] = []
        self._topic, self._mode = topic, mode
        self._began = time.monotonic_ns()
        self._discarded = DiscardedClients()
        self.transactors: dict[int, Transactor] = {}
        self._workers = [self._worker(number, cluster.bootstrap()) for number in range(CLIENTS)]

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self._began

    def _worker(self, number: int, bootstrap: str) -> Worker:
        nothing: Iterator[Step] = iter(())
        mode = self._mode
        writing = Writing(mode.acks, mode.idempotent, mode.transactional)
        patience_s = HASTY_S if number == HASTY_WRITER else DELIVERY_TIMEOUT_S
        making = Making(
            lambda: SendingClient(bootstrap, writing, patience_s, self._now_ns),
            lambda: ReadingClient(bootstrap),
            lambda instance_id: ReadingClient(bootstrap, "nobody", instance_id),
        )
        journal = Journal(number, CLIENTS, self._now_ns, self.operations.append)
        settings = {"transactional.id": f"{self._topic}-{number}"}

        def transactional() -> TransactionalClient:
            sender = SendingClient(bootstrap, writing, DELIVERY_TIMEOUT_S, self._now_ns, settings)
            return TransactionalClient(sender, self._now_ns)

        self.transactors[number] = Transactor(
            settings["transactional.id"], transactional, journal, self._discarded
        )
        return Worker(nothing, making, journal=journal, discarded=self._discarded)

    def close(self) -> None:
        for number, worker in enumerate(self._workers):
            worker.close()
            self.transactors[number].drop()
        self._discarded.wait(10)

    # --- clients ------------------------------------------------------------------------------

    def put(self, client: int, bootstrap: str) -> None:
        """Let a client that has done nothing yet find the cluster elsewhere."""
        self._workers[client] = self._worker(client, bootstrap)

    def send(self, *values: int, by: int = WRITER) -> str:
        """One after another; the outcome of the last."""
        for value in values:
            self._workers[by].do(SendStep(((self.key, value),)))
        return self.operations[-1].outcome

    @contextmanager
    def transaction(self, *values: int, ending: Ending, late: Sequence[int] = ()) -> Iterator[None]:
        """Around what happens while a transaction is open that has sent these values."""
        transactor = self.transactors[WRITER]
        client = transactor.ready()
        start, process = self._now_ns(), self._workers[WRITER].journal.process
        assert client is not None
        assert transactor.begin(client)
        client.send([(self.key, value) for value in values])
        yield
        outcome = transactor.end(client, ending, [(self.key, value) for value in late])
        transactor.note(client, start, outcome, process)

    @contextmanager
    def sending(self, value: int) -> Iterator[None]:
        """Around what happens while one value is on its way."""
        thread = threading.Thread(target=self.send, args=(value,))
        thread.start()
        yield
        thread.join()

    def poll(self, times: int, *, until: int | None = None) -> None:
        """Read on, from the beginning; no further than the value `until`."""
        reader = self._workers[READER]
        if not any(operation.f == "poll" for operation in self.operations):
            reader.do(AssignStep((self.key,), from_beginning=True))
        for _ in range(times):
            reader.poll(0.2)
            [found] = self.operations[-1].ops
            assert isinstance(found, Poll)
            if any(value == until for _, value in found.messages.get(self.key, ())):
                return

    def late_members(self) -> LateMembers:
        """Members that commit when another has their place."""
        journals = [
            Journal(CLIENTS * 1_000 + number, CLIENTS, self._now_ns, self.operations.append)
            for number in range(2)
        ]
        return LateMembers(self.cluster.bootstrap(), f"late-{self._topic}", self.key, journals)

    def wait_until_readable(self) -> None:
        """What was sent last. A planted leader acknowledges before the high watermark is there, and the final
        read goes no further than that."""
        [sent] = self.operations[-1].ops
        assert isinstance(sent, Send)
        assert sent.offset is not None
        bound = sent.offset
        reader = self._workers[READER]
        wait_until(lambda: (reader.end_of(self.key) or 0) > bound, "the last record can be read")

    def verdict(self, *, is_lossy: bool) -> Verdict:
        """Everything is read once more, by a new client, and judged."""
        reader = self._workers[READER]
        if self._mode.transactional:
            settle(self.cluster.bootstrap(), [self.key], reader.journal, SETTLE_S)
        for group in {
            each.group for each in self.operations if each.f == "commit" and each.group is not None
        }:
            ask_committed(self.cluster.bootstrap(), group, [self.key], reader.journal, FINAL_PATIENCE_S)
        deadline_ns = self._now_ns() + FINAL_PATIENCE_S * 10**9
        statistics = Statistics()
        for operation in self.operations:
            statistics.note(operation)
        topic = TopicSpec(
            self._topic, partitions=1, transactional=self._mode.transactional,
            settings={"unclean.leader.election.enable": "true"} if is_lossy else {},
        )  # fmt: skip
        bounds = bounds_of([topic], statistics)
        missing = read_all(reader, bounds, deadline_ns, self._now_ns)
        assert missing == {}
        print(*self.operations, sep="\n")  # pytest shows it where something fails
        return check(History(Header({self._topic: self._mode}), self.operations))

    # --- the cluster --------------------------------------------------------------------------

    def port(self, node: int) -> int:
        return self.cluster.local.node(node).client_port

    def seen_by(self, node: int) -> tuple[int, set[int], set[int]]:
        """Leader, ISR and live brokers as one node has taken them up."""
        fields = {"topics": [{"topic_id": None, "name": self._topic}], "allow_auto_topic_creation": False}
        try:
            answer = ask(HOST, self.port(node), ApiKey.METADATA, (METADATA_VERSION, METADATA_VERSION), fields)
        except OSError:
            return -1, set(), set()
        partitions = answer.topics[0].partitions
        alive = {broker.node_id for broker in answer.brokers}
        if not partitions:
            return -1, set(), alive
        return partitions[0].leader_id, set(partitions[0].isr_nodes), alive

    def wait_for_leader(self, condition: Callable[[int], bool], *, seen_by: int) -> None:
        wait_until(lambda: condition(self.seen_by(seen_by)[0]), "another leader")

    def wait_for_isr(self, condition: Callable[[set[int]], bool], *, seen_by: int) -> None:
        wait_until(lambda: condition(self.seen_by(seen_by)[1]), "another ISR")

    def log_of(self, node: int) -> Path:
        """The first segment of the partition on a node."""
        return self.cluster.home(node) / "data" / self.key / "00000000000000000000.log"


@contextmanager
def stage(
    cluster: ChaosCluster, topic: str, replicas: Sequence[int], mode: TopicMode, min_insync: int
) -> Iterator[Stage]:
    """A new topic, its replicas where they are wanted; the first of them leads."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap(), "log_level": 0})
    config = {"min.insync.replicas": str(min_insync)}
    wanted = NewTopic(topic, 1, replica_assignment=[list(replicas)], config=config)
    admin.create_topics([wanted])[topic].result(60)
    made = Stage(cluster, topic, mode)
    for node in cluster.nodes:
        made.wait_for_isr(lambda isr: isr == set(replicas), seen_by=node)
    try:
        yield made
    finally:
        made.close()
