"""The checker finds what it must: each planted bug is brought to light by a schedule on a real cluster, and
the same schedule on the product as it is shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chaos.history import TopicMode
from chaos.live.cluster import ChaosCluster
from chaos.live.planted import PLANTS
from chaos.workload.producer import CLIENT_SETTINGS
from kraft.local.free_ports import HOST
from tests.support.chaos.directed import HASTY_WRITER, OTHER_WRITER, WRITER, Stage, stage
from tests.support.nodes.cluster import FEW_COORDINATORS
from tests.support.waiting import wait_until

pytestmark = pytest.mark.heavy


@dataclass(frozen=True)
class Directed:
    """How a bug comes to light."""

    schedule: Callable[[Stage], None]
    nodes: int = 3
    replicas: tuple[int, ...] = (1, 2, 3)
    min_insync: int = 2
    idempotent: bool = False
    transactional: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


def calm(on: Stage) -> None:
    """Nothing happens but writing."""
    on.send(*range(20))


def leader_dies_unheard(on: Stage) -> None:
    """The leader is the only one to have a record, and dies; another takes its place in the log."""
    on.send(0, by=HASTY_WRITER)
    on.poll(50, until=0)
    on.cluster.links.cut(1, 2)
    on.cluster.links.cut(1, 3)
    on.send(1, by=HASTY_WRITER)
    on.poll(8, until=1)
    on.cluster.kill(1)
    on.cluster.links.heal_all()
    on.wait_for_leader(lambda leader: leader in (2, 3), seen_by=2)
    on.cluster.start_node(1)
    assert on.send(2) == "ok"
    on.wait_until_readable()


def ack_is_lost(on: Stage) -> None:
    """A client whose ack was lost sends again."""
    on.put(WRITER, on.cluster.bootstrap(0))
    on.send(0)
    before = on.log_of(2).stat().st_size
    on.cluster.links.cut(1, "c0")
    with on.sending(1):
        wait_until(lambda: on.log_of(2).stat().st_size > before, "the record is replicated")
        on.cluster.links.heal_all()
    on.send(2)


def slow_newcomer(on: Stage) -> None:
    """A follower that is far behind comes back, and takes long to catch up; as soon as it is in the ISR
    the leader dies."""
    on.cluster.kill(3)
    on.wait_for_leader(lambda leader: leader == 1, seen_by=1)
    on.send(*range(20))
    on.cluster.disk(3).slow(100, f"data/{on.key}", reads=False)
    on.cluster.start_node(3, wait=False)
    on.wait_for_isr(lambda isr: 3 in isr, seen_by=1)
    on.cluster.kill(1)
    on.wait_for_leader(lambda leader: leader == 3, seen_by=2)
    on.cluster.disk(3).heal()
    on.cluster.start_node(1)


def deposed_leader_wakes(on: Stage) -> None:
    """A leader sleeps until another is elected, and wakes; clients of both go on."""
    on.put(OTHER_WRITER, ",".join(f"{HOST}:{on.port(node)}" for node in (2, 3)))
    on.send(0)
    on.cluster.pause(1)
    on.wait_for_leader(lambda leader: leader == 2, seen_by=2)
    on.send(100, 101, by=OTHER_WRITER)
    on.cluster.resume(1)
    on.send(1)
    on.cluster.kill(1)
    on.cluster.start_node(1)
    on.wait_for_isr(lambda isr: isr == {1, 2, 3}, seen_by=2)


def last_of_the_isr_dies(on: Stage) -> None:
    """Only one has the newest record, and dies; the other comes back alone."""
    on.send(0)
    on.cluster.kill(2)
    on.wait_for_isr(lambda isr: isr == {1}, seen_by=1)
    on.send(1)
    on.cluster.kill(1)
    on.cluster.start_node(2, wait=False)
    wait_until(lambda: on.seen_by(3)[2] == {2, 3}, "the one that comes back is let in, the other is not")
    on.cluster.start_node(1)
    on.wait_for_isr(lambda isr: isr == {1, 2}, seen_by=3)


def two_leaders_die(on: Stage) -> None:
    """KIP-101's first scenario: the leader dies before its followers know that the last record is committed;
    one leads, the other follows, and before it has fetched anything it must lead itself."""
    on.send(0)  # a log's files are opened with its first record, by the loop
    on.cluster.disk(2).slow(30_000, f"data/{on.key}", writes=False)
    on.send(1)
    on.cluster.kill(1)
    on.wait_for_leader(lambda leader: leader == 2, seen_by=3)
    on.cluster.start_node(1)
    on.cluster.kill(2)
    on.wait_for_leader(lambda leader: leader not in (-1, 2), seen_by=3)
    on.cluster.start_node(2)


def all_die(on: Stage) -> None:
    """Everybody is killed at once, and comes back."""
    on.send(0, 1, 2)
    for node in on.cluster.nodes:
        on.cluster.kill(node)
    for node in on.cluster.nodes:
        on.cluster.start_node(node, wait=False)
    on.wait_for_leader(lambda leader: leader > 0, seen_by=1)


def read_while_open(on: Stage) -> None:
    """Somebody reads on while transactions are open; one is committed, one is aborted."""
    with on.transaction(0, ending="commit"):
        on.poll(8, until=0)
    with on.transaction(1, 2, ending="abort"):
        on.poll(8, until=2)
    with on.transaction(3, ending="commit"):
        pass


def ends_in_an_abort(on: Stage) -> None:
    """The last transaction is aborted."""
    with on.transaction(0, ending="commit"):
        pass
    with on.transaction(1, ending="abort"):
        pass


def taken_over(on: Stage) -> None:
    """A producer loses its id in the midst of a transaction, writes on, and asks for the commit."""
    with on.transaction(0, ending="commit"):
        pass
    with on.transaction(1, ending="zombie", late=(2,)):
        pass


def members_come_late(on: Stage) -> None:
    """One commits when another has its place already, twice."""
    on.send(0)
    late = on.late_members()
    for _ in range(3):
        late.take_turn()
    told = [(each.f, each.generation) for each in on.operations if each.generation is not None]
    turns = [[("owned", last + 1), ("commit", last), ("commit", last + 1)] for last in (1, 2)]
    assert told == [("owned", 1), ("commit", 1), *turns[0], *turns[1]], "the last one is late"


SHORT_SESSIONS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "400"}
ALONE: Mapping[str, Any] = {"nodes": 1, "replicas": (1,), "min_insync": 1}
SCHEDULES = {
    "acknowledge-before-isr": Directed(leader_dies_unheard),
    "misreport-offsets": Directed(calm, **ALONE),
    "refuse-what-is-kept": Directed(calm, **ALONE),
    "forget-producer-state": Directed(ack_is_lost, idempotent=True),
    "join-isr-too-early": Directed(
        slow_newcomer, replicas=(3, 1, 2), settings={"replica.fetch.max.bytes": "100"}
    ),
    "skip-fencing": Directed(
        deposed_leader_wakes,
        min_insync=1,
        settings={**SHORT_SESSIONS, "replica.lag.time.max.ms": "1000"},
    ),
    "elect-outside-isr": Directed(
        last_of_the_isr_dies, replicas=(1, 2), min_insync=1, settings=SHORT_SESSIONS
    ),
    "truncate-to-hw": Directed(two_leaders_die, settings={"replica.fetch.wait.max.ms": "5000"}),
    "lose-on-restart": Directed(all_die, **ALONE),
    "read-beyond-hw": Directed(leader_dies_unheard),
    "skip-records": Directed(calm, **ALONE),
    "swap-offsets": Directed(calm, **ALONE),
    "show-what-is-open": Directed(read_while_open, transactional=True, **ALONE),
    "drop-abort-marker": Directed(ends_in_an_abort, transactional=True, **ALONE),
    "take-late-commits": Directed(members_come_late, **ALONE),
    "forget-fencing": Directed(taken_over, transactional=True, **ALONE),
}


TWINS = frozenset({"read-beyond-hw"})
"""Brought to light by a schedule that another bug has, too."""


def _plants() -> list[object]:
    return [
        pytest.param(name, marks=[pytest.mark.long] if each.settings or name in TWINS else [])
        for name, each in SCHEDULES.items()
    ]


def _schedules() -> list[object]:
    """Each once. Those with settings take a cluster of their own, which is long for what it tells."""
    once = {each.schedule: each for each in SCHEDULES.values()}
    return [
        pytest.param(each, id=schedule.__name__, marks=[pytest.mark.long] if each.settings else [])
        for schedule, each in once.items()
    ]


@pytest.fixture(autouse=True)
def patient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay with a leader that does not refuse them."""
    monkeypatch.setitem(CLIENT_SETTINGS, "topic.metadata.refresh.interval.ms", 300_000)


@contextmanager
def running(
    directory: Path, take_ports: Callable[[int], list[int]], directed: Directed, plant: str | None
) -> Iterator[ChaosCluster]:
    with ChaosCluster.create(
        directory,
        nodes=directed.nodes,
        clients=1,
        settings={**FEW_COORDINATORS, **directed.settings},
        plant=plant,
        take_ports=take_ports,
    ) as cluster:
        cluster.start()
        yield cluster


def on_stage(cluster: ChaosCluster, topic: str, directed: Directed, *, is_lossy: bool) -> set[str]:
    """Play it; the forbidden anomalies that the checker reports. A sound cluster is read to
    what was acknowledged, though its newest leader may not know yet that this is committed."""
    mode = TopicMode(1, -1, directed.idempotent, directed.transactional)
    with stage(cluster, topic, directed.replicas, mode, directed.min_insync) as on:
        directed.schedule(on)
        verdict = on.verdict(is_lossy=is_lossy)
    found = {kind for kind, count in verdict.counts.items() if count.forbidden}
    assert verdict.ok == (not found)
    return found


@pytest.mark.row("C3")
@pytest.mark.pure("bugs are planted in Python")
@pytest.mark.parametrize("plant", _plants())
def test_a_planted_bug_is_found(plant: str, tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    with running(tmp_path, free_ports, SCHEDULES[plant], plant) as cluster:
        found = on_stage(cluster, "t", SCHEDULES[plant], is_lossy=True)
    assert found >= set(PLANTS[plant].shows)


@pytest.fixture(scope="module")
def sound(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[ChaosCluster]:
    """The product as it is, with its own settings; every schedule leaves it running."""
    with running(tmp_path_factory.mktemp("sound"), free_ports, Directed(calm), None) as cluster:
        yield cluster


@pytest.mark.row("C3")
@pytest.mark.parametrize("directed", _schedules())
def test_without_a_bug_the_schedule_shows_nothing(
    directed: Directed, request: pytest.FixtureRequest, tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    topic = directed.schedule.__name__
    if not directed.settings:
        assert on_stage(request.getfixturevalue("sound"), topic, directed, is_lossy=False) == set()
        return
    with running(tmp_path, free_ports, directed, None) as cluster:
        assert on_stage(cluster, topic, directed, is_lossy=False) == set()


def test_every_plant_has_its_schedule() -> None:
    assert SCHEDULES.keys() == PLANTS.keys()
