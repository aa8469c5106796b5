"""Faults that overlap, and faults that find nothing to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from chaos.sim.disk import SimDisk
from chaos.simulator.cluster import Cluster, ClusterShape
from chaos.simulator.draws import Draws
from chaos.simulator.faults import OF_THE_VICTIM, SimFault, Tolerance, faults_of
from chaos.simulator.network import Network
from chaos.simulator.player import FaultPlayer
from chaos.simulator.profile import COMBINED, PROFILES
from chaos.simulator.scheduler import Scheduler
from chaos.simulator.sightings import SIGHTINGS
from chaos.simulator.story import Story
from metadata_quorum.foundation.blocking import MayBlock
from tests.support.may_block import MAY_BLOCK


class Played:
    """A cluster of three machines, and faults that are done to it."""

    def __init__(self, *faults: str, shape: ClusterShape = COMBINED.shape) -> None:
        self.scheduler = Scheduler()
        self.story = Story()
        draws = Draws(1)
        self.network = Network(self.scheduler, draws)
        self.cluster = Cluster(shape, self.scheduler, self.network, draws, self.story)
        self.player = FaultPlayer(self.cluster, [SimFault.parse(fault) for fault in faults], draws)
        for node_id in self.cluster.machines:
            self.cluster.machines[node_id].start(node_id)  # a process that does nothing
        self.player.play()

    def at(self, time: float) -> Played:
        self.scheduler.run(time)
        return self

    def told(self, what: str) -> bool:
        return any(what in line.what for line in self.story.lines)


def test_a_link_is_whole_when_the_last_cut_is_lifted() -> None:
    played = Played("at 0.1 for 0.1: cut 2>1", "at 0.15 for 0.2: isolate 2")
    assert played.at(0.12).network.is_silent("n2", "n1")
    assert played.at(0.3).network.is_silent("n2", "n1")
    assert not played.at(0.4).network.is_silent("n2", "n1")


def test_delays_add_up_and_go() -> None:
    played = Played("at 0.1 for 0.1: slow 2>1 300ms", "at 0.15 for 0.2: slow 2>1 50ms")
    times = (0.12, 0.17, 0.3, 0.4)
    assert [played.at(time).network.link("n2", "n1").extra_s for time in times] == [0.3, 0.35, 0.05, 0.0]


def test_a_node_is_up_when_nothing_keeps_it_down(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    played = Played("at 0.1 for 0.4: power 2", "at 0.2 for 0.1: kill 2", "at 0.3 for 0.1: power 2")
    monkeypatch.setattr(Cluster, "start", lambda _, node_id: started.append(node_id))
    played.at(0.45)
    assert started == []
    assert played.told("kill 2: nothing to do, n2 is down")
    played.at(0.49)
    assert started == []
    played.at(0.6)
    assert started == [2]
    assert "fault kill" not in played.story.visited
    assert played.story.visited["fault power"] == 2


def test_a_fault_that_waits_strikes_where_its_state_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[int] = []
    monkeypatch.setitem(SIGHTINGS, "elected", lambda _: iter(there))
    played = Played(
        "at 0.1 for 1 when elected 50ms: isolate seen",
        "at 0.1 for 1 when elected 0ms: pause 3",
        "at 0.1 for 1 when truncation 0ms: kill 1",
    )
    played.scheduler.at(0.5, there.append, 2)
    played.scheduler.at(0.57, there.append, 3)
    assert not played.at(0.54).network.is_silent("n2", "n1")
    assert played.at(0.56).network.is_silent("n2", "n1")
    assert "fault pause" not in played.story.visited, "it waits for node 3"
    assert played.at(0.6).story.visited["fault pause"] == 1
    assert not played.at(1.6).network.is_silent("n2", "n1")
    assert played.at(21.0).told("kill 1: nothing to do, truncation is not seen")


def test_a_fault_that_waits_looks_again_only_when_something_has_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[float] = []
    played = Played("at 0.1 for 1 when elected 0ms: pause 3", "at 0.1 for 1 when alone 0ms: pause 3")

    def look(cluster: Cluster) -> Iterator[int]:
        looks.append(cluster.scheduler.now)
        return iter(())

    monkeypatch.setitem(SIGHTINGS, "elected", look)
    played.scheduler.at(0.2, lambda: None)
    played.at(0.3)
    assert [round(at, 2) for at in looks] == [0.1, 0.2]


def test_a_successor_may_be_heard_by_no_other_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    leaders = {"t-0": 1, "t-1": 3}
    monkeypatch.setattr(FaultPlayer, "leaders", lambda _: leaders)
    monkeypatch.setattr(Cluster, "start", lambda *_: None)
    played = Played("at 0.1 for 1: successor 1 100ms alone")
    assert not played.at(0.2).cluster.machines[1].is_up
    leaders["t-0"] = 2
    assert played.at(0.25).cluster.machines[2].is_up
    assert played.network.is_silent("n2", "n3")
    assert played.network.is_silent("n3", "n2")
    assert not played.at(0.4).cluster.machines[2].is_up
    assert played.cluster.machines[3].is_up
    assert not played.at(1.2).network.is_silent("n2", "n3")


def test_a_disk_fault_that_has_not_struck_says_so() -> None:
    played = Played(
        "at 0.1 for 0.1: disk-error 2 rename EIO 3 1", "at 0.1 for 0.1: disk-error 1 open EIO 0 1"
    )
    played.at(0.15)
    with pytest.raises(OSError, match="Input/output error"):
        played.cluster.machines[1].disk.open("/n1/data/meta.properties")
    played.at(0.3)
    assert played.told("disk-error 2 rename EIO 3 1 has not struck")
    assert played.story.visited["disk-error struck"] == 1
    assert played.cluster.machines[2].disk.has_faults is False


def test_a_cold_cache_has_nothing_and_a_spoilt_page_cannot_be_read() -> None:
    played = Played("at 0.1 for 0.1: disk-cold 1 100%", "at 0.3 for 0.1: bad-sector 1")
    disk = played.cluster.machines[1].disk
    read = partial(disk.read_bytes, "/n1/data/meta.properties", MayBlock("a test"))
    assert read()
    file = disk.open("/n1/data/meta.properties")
    played.at(0.15)
    assert file.read_cached(0, 4) is None
    played.at(0.25)
    assert file.read_cached(0, 4) is not None
    played.at(0.35)
    spoilt = next(line.what for line in played.story.lines if line.what.endswith("is spoilt"))
    path = spoilt.split()[3]
    with pytest.raises(OSError, match="Input/output error"):
        disk.read_bytes(path, MayBlock("a test"))
    played.at(0.5)
    assert disk.read_bytes(path, MayBlock("a test"))
    assert played.story.visited["disk-cold missed"] == played.story.visited["bad-sector struck"] == 1


def test_a_spoilt_page_is_good_when_it_is_written_anew() -> None:
    disk = SimDisk()
    file = disk.open("/file", create=True)
    file.append([b"x" * 10])
    assert disk.spoil(Random(1)) == "page 0 of /file"
    with pytest.raises(OSError, match="Input/output error"):
        file.read(0, 1)
    file.write_at(0, b"y")
    assert file.read(0, 2) == b"yx"


def test_nodes_that_lose_power_together(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    played = Played("at 0.1 for 0.4: power-some 1+3", "at 0.2 for 0.1: kill 2")
    monkeypatch.setattr(Cluster, "start", lambda _, node_id: started.append(node_id))
    machines = played.at(0.15).cluster.machines
    assert [node_id for node_id, machine in machines.items() if not machine.is_up] == [1, 3]
    assert [machine.boots for machine in machines.values()] == [2, 1, 2]
    assert played.at(0.4).told("power-some 1+3 for 0.4 s")
    assert started == [2]
    played.at(0.6)
    assert started == [2, 1, 3]


def test_a_lost_directory_is_replaced_while_its_broker_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    played = Played("at 0.1 for 0.1: dir-lost 2 2 new", shape=replace(COMBINED.shape, log_dirs=2))
    monkeypatch.setattr(Cluster, "start", lambda _, node_id: started.append(node_id))
    disk = played.cluster.machines[2].disk
    before = disk.read_bytes("/n2-2/data/meta.properties", MAY_BLOCK)
    played.at(0.15)
    with pytest.raises(OSError, match="Input/output error"):
        disk.open("/n2-2/data/meta.properties")
    disk.open("/n2/data/meta.properties")
    played.at(0.25)
    assert not started, "it does not stop"
    played.at(5.3)
    assert started == [2]
    after = disk.read_bytes("/n2-2/data/meta.properties", MAY_BLOCK)
    assert after != before, "another directory, with another id"
    assert b"cluster.id" in after


@pytest.mark.parametrize(
    ("profile", "victims", "synced", "together"),
    [
        ("combined-harsh", 1, (), 1),
        ("five", 2, (), 2),
        ("separate-harsh", 1, (1, 2, 3), 4),
        ("one-controller", 1, (1,), 2),
        ("blackout", 1, (1, 2, 3), 3),
    ],
)
def test_who_may_lose_what_it_did_not_sync(
    profile: str, victims: int, synced: tuple[int, ...], together: int
) -> None:
    """As many as an acknowledged record has other copies; and whoever syncs what it promises."""
    found = PROFILES[profile]
    assert found.tolerance == Tolerance(victims, synced)
    lost: set[int] = set()
    at_once = 0
    for seed in range(30):
        faults = faults_of(
            Random(seed), found.severity, found.shape.nodes, ["c"], 60.0, tolerance=found.tolerance
        )
        hurt = {node for fault in faults if fault.kind in OF_THE_VICTIM for node in fault.nodes}
        assert len(hurt - set(synced)) <= victims
        lost |= hurt
        at_once = max([at_once, *(len(fault.nodes) for fault in faults)])
    assert lost == set(found.shape.nodes)
    assert at_once == together
