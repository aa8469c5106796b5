"""The workload and the observer on real clusters: calm, with a leader killed, with a leader gone silent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.checker import check
from chaos.history import Header, History, HistoryWriter, Operation, Poll, read
from chaos.observed import NO_NODE
from chaos.observer import Coordinated, Observer, addresses_of
from chaos.workload import Mix, Pace, TopicSpec, Workload, create_topics
from chaos.workload.workload import LATE_PROCESSES
from kraft.local.local_cluster import LocalCluster
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.heavy

SEED = 11
CLIENTS = 4
PACE = Pace(operations_per_s=200, delivery_timeout_s=10)
BUSY = Mix(send=50, poll=40, assign=3, subscribe=3, crash=2)
"""Much of everything in a short time."""
SOCIABLE = Mix(send=50, poll=40, assign=0.5, subscribe=1, crash=0.2)
"""Of everything, but a member of the group stays long enough to be given something; one that crashed keeps
the others waiting for six seconds."""
KINDS = {"send", "poll", "assign", "subscribe", "owned", "commit", "crash"}


def topics_named(name: str) -> list[TopicSpec]:
    return [
        TopicSpec(f"{name}-zero", acks=0),
        TopicSpec(f"{name}-one", acks=1),
        TopicSpec(f"{name}-all"),
        TopicSpec(f"{name}-once", idempotent=True),
    ]


class Run:
    """A workload on a cluster of its own topics, its record and its observer."""

    def __init__(
        self, cluster: LocalCluster, topics: Sequence[TopicSpec], directory: Path, *, mix: Mix = BUSY
    ) -> None:
        began = time.monotonic_ns()
        self.now = lambda: time.monotonic_ns() - began
        self.path = directory / "history.jsonl"
        self.topics = topics
        create_topics(cluster.bootstrap, topics)
        self.operations: list[Operation] = []
        """As they are recorded."""
        self._writer = HistoryWriter(self.path, Header({each.name: each.mode for each in topics}, seed=SEED))
        self.workload = Workload(
            [cluster.bootstrap] * CLIENTS, topics,
            seed=SEED, now_ns=self.now, record=self._note, mix=mix, pace=PACE,
        )  # fmt: skip
        self.observer = Observer(
            addresses_of(cluster.bootstrap), [each.name for each in topics],
            now_ns=self.now, path=directory / "cluster.jsonl",
        )  # fmt: skip
        self.statistics = self.workload.statistics

    def _note(self, operation: Operation) -> None:
        self._writer.append(operation)
        self.operations.append(operation)

    def wait_for_acks(self, each: int = 40) -> None:
        """Of every topic so many more."""
        since = self.now()
        for topic in self.topics:
            wait_until(
                lambda name=topic.name: self.statistics.acks(name, since, self.now()) >= each,  # type: ignore[misc]
                f"{topic.name} is written",
            )

    def history(self) -> History:
        """After the final phase."""
        self.workload.stop()
        assert not self.workload.final_phase(PATIENCE_S).missing
        self._writer.close()
        return read(self.path)


@contextmanager
def running(run: Run) -> Iterator[Run]:
    with run.observer, run.workload:
        assert run.observer.wait_for(lambda: run.observer.controller() is not None, PATIENCE_S)
        yield run


def check_form(history: History, keys: set[str]) -> None:
    """What the checker takes for granted, and that the final phase was what it should be."""
    busy_until: dict[int, int] = {}
    retired: set[int] = set()
    last: dict[int, int] = {}
    for operation in history.operations:
        assert operation.process not in retired
        assert busy_until.get(operation.process, 0) <= operation.start <= operation.end
        busy_until[operation.process] = operation.end
        if operation.process < LATE_PROCESSES:
            worker = operation.process % CLIENTS
            assert operation.process >= last.get(worker, 0)
            last[worker] = operation.process
        if operation.outcome == "info":
            retired.add(operation.process)
    final = [operation for operation in history.operations if operation.final]
    assert {operation.f for operation in final} == {"crash", "assign", "poll", "committed"}
    assert all(set(operation.keys) == keys for operation in final if operation.f == "assign")
    assert keys_polled(final) == keys_polled(history.operations)


def is_late(operation: Operation) -> bool:
    """The commit of a member that has been replaced, as it must end."""
    return operation.f == "commit" and operation.outcome == "fail" and operation.generation is not None


def keys_polled(operations: Iterable[Operation]) -> set[str]:
    return {
        key for each in operations for poll in each.ops if isinstance(poll, Poll) for key in poll.messages
    }


@pytest.mark.row("C2")
def test_a_calm_cluster_keeps_every_promise(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    topics = topics_named("calm")
    with running(Run(shared_cluster, topics, tmp_path, mix=SOCIABLE)) as run:
        run.wait_for_acks()
        wait_until(lambda: {each.f for each in list(run.operations)} >= KINDS, "there is every kind")
        wait_until(lambda: any(each.rebalanced for each in list(run.operations)), "a group is rebalanced")
        wait_until(lambda: any(map(is_late, list(run.operations))), "a late commit is refused")
        history = run.history()
    check_form(history, {key for topic in topics for key in topic.keys})
    offsets = {
        topic.name: {send.offset is None for each in history.operations for send in each.ops
                     if not isinstance(send, Poll) and each.outcome == "ok" and send.key in topic.keys}
        for topic in topics
    }  # fmt: skip
    assert offsets == {"calm-zero": {True}, "calm-one": {False}, "calm-all": {False}, "calm-once": {False}}
    verdict = check(history)
    assert verdict.ok, verdict.anomalies
    # Without acks nothing is promised, and on a busy machine the last may still be on their way.
    assert not [each for each in verdict.anomalies if not each.key.startswith("calm-zero-")]


@pytest.mark.row("C2")
def test_a_leader_that_is_killed_loses_nothing_and_the_observer_sees_it_all(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    topics = topics_named("killed")
    key = "killed-all-0"
    with running(Run(cluster, topics, tmp_path)) as run:
        run.wait_for_acks()
        observer = run.observer
        assert observer.wait_for(lambda: set(observer.isr(key)) == {1, 2, 3}, PATIENCE_S)
        assert set(observer.replicas(key)) == {1, 2, 3}
        victim = wait_until(lambda: observer.leader(key), "a leader is seen")
        killed_ns = run.now()
        cluster.kill(victim)
        assert observer.wait_for(lambda: observer.leader(key) not in (victim, None), PATIENCE_S)
        assert observer.wait_for(lambda: observer.state(victim) == "down", PATIENCE_S)
        assert observer.wait_for(lambda: victim not in observer.isr(key), PATIENCE_S)
        run.wait_for_acks()
        cluster.start_node(victim, wait=False)
        assert observer.wait_for(lambda: len(observer.isr(key)) == 3, PATIENCE_S)
        assert observer.wait_for(lambda: observer.state(victim) == "up", PATIENCE_S)
        assert observer.wait_for(lambda: observer.high_watermark(key), PATIENCE_S)
        group = Coordinated(run.workload.group)  # it may still be loaded by its new coordinator
        assert observer.wait_for(lambda: observer.coordinator(group), PATIENCE_S) in (1, 2, 3)
        history = run.history()
    check_form(history, {key for topic in topics for key in topic.keys})
    seen = [since.partition for since in observer.history(key)]
    before = [since.partition for since in observer.history(key) if since.time_ns <= killed_ns]
    assert before[-1].leader == victim
    assert len(before[-1].isr) == 3
    after = seen[len(before) :]
    assert any(each.leader not in (victim, NO_NODE) for each in after)
    assert any(victim not in each.isr for each in after)
    assert len(after[-1].isr) == 3
    verdict = check(history)
    assert verdict.ok, verdict.anomalies


def test_a_crash_leaves_what_a_silent_leader_was_sent_unknown(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    """One node is enough, and it is stopped: nothing can be answered while it is."""
    single = LocalCluster.create(tmp_path / "cluster", nodes=1, ports=free_ports(3))
    topics = [TopicSpec("silent", replication=1, min_insync_replicas=1)]
    try:
        single.start()
        run = Run(single, topics, tmp_path, mix=Mix(send=0, poll=50, assign=1, subscribe=0, crash=10))
        with running(run):
            wait_until(lambda: run.statistics.acks("silent", 0, run.now()), "crashing clients were answered")
            single.pause(1)
            assert run.observer.wait_for(lambda: run.observer.state(1) == "paused", PATIENCE_S)
            paused_ns = run.now()
            count = lambda: run.statistics.outcomes("silent", paused_ns, run.now())  # noqa: E731
            wait_until(lambda: count().get("info", 0) >= CLIENTS, "clients crash with sends in flight")
            assert set(count()) == {"info"}
            resumed_ns = run.now()
            assert run.statistics.gap_ns("silent", paused_ns, resumed_ns) == resumed_ns - paused_ns
            single.resume(1)
            assert run.observer.wait_for(lambda: run.observer.state(1) == "up", PATIENCE_S)
            history = run.history()
    finally:
        single.close(patience_s=0)
    check_form(history, set(topics[0].keys))
    assert check(history).ok
