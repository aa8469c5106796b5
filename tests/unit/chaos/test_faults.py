"""Faults, roles, schedules and their record: as text, and on links that only note what is asked of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos import events, faults, roles, schedule
from chaos.checker.anomalies import KINDS
from chaos.events import EventLog
from chaos.evidence import Evidence
from chaos.faults import FaultContext
from chaos.history import Header, HistoryWriter
from chaos.live.link_faults import BadFault, LinkFault
from chaos.live.planted import PLANTS
from chaos.live.stage import LiveStage
from chaos.play import Player
from chaos.run_files import EVENTS, HISTORY
from chaos.scenarios import everything
from chaos.scenarios.table import SCENARIOS
from chaos.schedule import BadSchedule, ScheduledFault
from kraft.cli.errors import CliError

NODES = (1, 2, 3)
CLIENTS = 2
TEXTS = (
    "kill 2", "pause 1", "stop 3", "restart 1", "rolling 2", "start 3", "disk-full 2", "disk-error 2",
    "disk-slow 1 50ms", "fail-sync 3", "tear 2 all-0", "flip 1 all-0", "wipe 1 all-0", "hold-reads 2 all-0",
    "clock 2 +1h", "clock 3 -5s", "cut 2>1", "slow 1>3 200ms 50ms", "down c0>2", "isolate 2",
    "isolate 2 from all", "deafen 1", "mute 3", "partition 1,c0|2,3,c1",
    "move all-0 to 3,1",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_a_fault_is_its_text(text: str) -> None:
    assert str(faults.parse(text, NODES, CLIENTS)) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("explode 1", "explode: no fault"),
        ("kill 4", "the nodes are 1, 2, 3"),
        ("kill", "say `kill NODE`"),
        ("disk-slow 1", "MSms"),
        ("clock 1 tomorrow", "a time is a number"),
        ("isolate 7", "say `isolate NODE`"),
        ("partition 1|x", "separated by |"),
        ("cut 1>1", "two ends"),
        ("move all-0", "say `move TOPIC-N to"),
        ("move all-0 to 1,4", "the nodes are 1, 2, 3"),
        ("move all-0 to 1,1", "say `move TOPIC-N to"),
    ],
)
def test_what_is_no_fault_is_reported_in_a_sentence(text: str, why: str) -> None:
    with pytest.raises(BadFault) as refused:
        faults.parse(text, NODES, CLIENTS)
    assert why in str(refused.value)


def parts_of(text: str) -> set[str]:
    fault = faults.parse(text, NODES, CLIENTS)
    assert isinstance(fault, faults.LinksFault)
    return {str(way) for part in fault.parts for way in part.one_way()}


def test_an_isolated_a_deaf_and_a_mute_node() -> None:
    assert parts_of("isolate 2") == {"cut 2>1", "cut 1>2", "cut 2>3", "cut 3>2"}
    assert parts_of("deafen 2") == {"cut 1>2", "cut 3>2"}
    assert parts_of("mute 2") == {"cut 2>1", "cut 2>3"}
    assert parts_of("mute 2 from all") == {"cut 2>1", "cut 2>3", "cut 2>c0", "cut 2>c1"}


def test_sides_of_a_partition_hear_nothing_of_each_other() -> None:
    across = parts_of("partition 1,c0|2,c1")
    assert across == {"cut 1>2", "cut 2>1", "cut 1>c1", "cut c1>1", "cut c0>2", "cut 2>c0"}


# Overlapping faults of links --------------------------------------------------------------------------------


@dataclass
class NotedLinks:
    """Of each kind and way there is one, as in Toxiproxy."""

    now: dict[tuple[object, ...], str] = field(default_factory=dict)

    def apply(self, fault: LinkFault) -> None:
        for way in fault.one_way():
            self.now[way.kind, way.source, way.target] = str(way)

    def remove(self, fault: LinkFault) -> None:
        for way in fault.one_way():
            del self.now[way.kind, way.source, way.target]


@dataclass
class NotedCluster:
    links: NotedLinks = field(default_factory=NotedLinks)


def test_a_fault_that_ends_leaves_those_that_overlap_it() -> None:
    cluster = NotedCluster()
    context = FaultContext.of(cast(Any, cluster), random.Random(1))
    isolated, cut, slow, slower = (
        faults.parse(text, NODES, CLIENTS)
        for text in ("isolate 2", "cut 2-1", "slow 2>1 100ms", "slow 2>1 900ms")
    )
    for fault in (isolated, cut, slow, slower):
        fault.begin(context)
    isolated.end(context)
    slower.end(context)
    assert sorted(cluster.links.now.values()) == ["cut 1>2", "cut 2>1", "slow 2>1 100ms"]
    cut.end(context)
    slow.end(context)
    assert not cluster.links.now
    assert not context.links


# Roles ------------------------------------------------------------------------------------------------------


@dataclass
class FixedView:
    """Three replicas; node 1 leads, node 2 controls."""

    nodes: Sequence[int] = NODES
    in_sync: Sequence[int] = NODES
    leads: int | None = 1

    def keys(self) -> Sequence[str]:
        return ("a-0", "a-1")

    def leader(self, key: str) -> int | None:
        return self.leads

    def isr(self, key: str) -> Sequence[int]:
        return self.in_sync

    def replicas(self, key: str) -> Sequence[int]:
        return (3, 1, 2)

    def controller(self) -> int | None:
        return 2

    def coordinator(self, of: str) -> int | None:
        return {"readers": 3, "writer": 2}.get(of)


@pytest.mark.parametrize(
    ("text", "filled", "who"),
    [
        ("kill 2", "kill 2", None),
        ("kill leader(a-0)", "kill 1", "leader(a-0) is 1"),
        ("cut follower(a-0)>leader(a-0)", "cut 3>1", "follower(a-0) is 3, leader(a-0) is 1"),
        ("kill other(a-0)", "kill 2", "other(a-0) is 2"),
        ("kill next(a-0)", "kill 3", "next(a-0) is 3"),
        ("kill leader", "kill 1", "leader is 1"),
        ("move leader-0 to 1,2", "move leader-0 to 1,2", None),
        ("kill controller", "kill 2", "controller is 2"),
        ("kill voter", "kill 1", "voter is 1"),
        ("kill coordinator", "kill 3", "coordinator is 3"),
        ("kill coordinator(writer)", "kill 2", "coordinator(writer) is 2"),
    ],
)
def test_roles_are_filled(text: str, filled: str, who: str | None) -> None:
    assert roles.fill(text, FixedView()) == (filled, who)


def test_a_replica_that_left_the_isr_lags() -> None:
    assert roles.fill("wipe lagging(a-0) a-0", FixedView(in_sync=(1, 3)))[0] == "wipe 2 a-0"


@pytest.mark.parametrize(
    "text", ["kill leader(a-0)", "kill follower(a-0)", "kill lagging(a-0)", "kill coordinator(x)"]
)
def test_a_role_that_nobody_has_is_reported(text: str) -> None:
    with pytest.raises(roles.RoleUnfilled, match="nobody is"):
        roles.fill(text, FixedView(leads=None))


# Schedules --------------------------------------------------------------------------------------------------

STEPS = st.builds(
    ScheduledFault,
    at_s=st.integers(0, 6000).map(lambda tenths: tenths / 10),
    fault=st.sampled_from(TEXTS),
    for_s=st.none() | st.integers(1, 600).map(lambda tenths: tenths / 10),
)


@given(st.lists(STEPS))
def test_a_schedule_is_its_text(steps: list[ScheduledFault]) -> None:
    in_time = sorted(steps, key=lambda step: step.at_s)
    assert list(schedule.parse("# by hand\n\n" + schedule.text_of(in_time))) == in_time


@pytest.mark.parametrize("line", ["kill 2", "at noon: kill 2", "at 1 for: kill 2", "at 1:"])
def test_a_line_that_is_no_step_is_named(line: str) -> None:
    with pytest.raises(BadSchedule, match="line 2"):
        schedule.parse(f"at 1: kill 2\n{line}")


def test_ends_come_before_beginnings() -> None:
    steps = schedule.parse("at 1 for 2: pause 1\nat 3: kill 2")
    assert [(mark.at_s, mark.begins, mark.step.fault) for mark in schedule.step_boundaries(steps)] == [
        (1.0, True, "pause 1"), (3.0, False, "pause 1"), (3.0, True, "kill 2"),
    ]  # fmt: skip


@given(st.integers(0, 10**9), st.sampled_from([5.0, 20.0, 60.0]))
def test_everything_draws_what_can_be_played(seed: int, seconds: float) -> None:
    steps = everything.draw(random.Random(seed), seconds)
    assert steps == everything.draw(random.Random(seed), seconds)
    bad_disks = set()
    for step in steps:
        fault = faults.parse(roles.fill_with(step.fault, NODES), NODES, everything.CLIENTS)
        assert step.at_s < seconds
        assert step.for_s is None or step.end_s < seconds + 0.1
        if step.fault.startswith(("disk-full", "fail-sync")):
            assert isinstance(fault, faults.NodeFault)
            bad_disks.add(fault.node)
        lasting = [
            other for other in steps if other.at_s <= step.at_s
            and (other.for_s is None or other.end_s > step.at_s)
            and not other.fault.startswith(("restart", "move"))
        ]  # fmt: skip
        assert len(lasting) <= everything.MOST_AT_ONCE
    assert len(bad_disks) <= 1, "only a minority's disks may fail"


def test_seeds_differ() -> None:
    drawn = {everything.draw(random.Random(seed), 60) for seed in range(20)}
    assert len(drawn) == 20
    kinds = {step.fault.split()[0] for steps in drawn for step in steps}
    assert kinds == set(everything.WEIGHTS)


def test_the_page_shows_everything() -> None:
    page = (Path(__file__).parents[3] / "docs" / "CHAOS.md").read_text()
    names = [*SCENARIOS, *PLANTS, *faults.NODE_FAULTS, *(kind.name for kind in KINDS)]
    assert [name for name in names if name not in page and name != "await"] == []


def test_every_scenario_can_be_read() -> None:
    for scenario in SCENARIOS.values():
        nodes = range(1, scenario.nodes + 1)
        for step in scenario.schedule(random.Random(1), scenario.seconds or 0):
            faults.parse(roles.fill_with(step.fault, nodes), nodes, scenario.clients)
        assert scenario.story.endswith(".")


# Playing ----------------------------------------------------------------------------------------------------


@dataclass
class Hanging(NotedLinks):
    """Toxiproxy, which hangs when it shall remove something."""

    def remove(self, fault: LinkFault) -> None:
        raise CliError("Toxiproxy did not do it")


@dataclass
class Stage:
    """A cluster of live nodes, on which only links can be broken."""

    links: NotedLinks = field(default_factory=NotedLinks)
    nodes: Sequence[int] = NODES
    clients: int = CLIENTS

    @property
    def wiring(self) -> Stage:
        return self

    @property
    def local(self) -> Stage:
        return self

    def node(self, node: int) -> Stage:
        return self

    def process(self) -> Stage:
        return self

    def reap(self) -> list[tuple[str, int]]:
        return []

    def renew_links(self) -> None:
        self.links = NotedLinks()


def played(stage: Stage, seen: FixedView, text: str, directory: Path) -> tuple[Player, list[events.Event]]:
    log = EventLog(directory / EVENTS, lambda: 0)
    context = FaultContext.of(cast(Any, stage), random.Random(1))
    player = Player(LiveStage(context, log), seen, log, seen.coordinator, role_patience_s=0.05)
    player.play(schedule.parse(text), 0.0)
    log.close()
    return player, log.events


def test_what_is_played_is_on_record(tmp_path: Path) -> None:
    stage = Stage()
    _, happened = played(stage, FixedView(), "at 0 for 0.1: cut 2>leader(a-0)\nat 0.05: mute 3", tmp_path)
    assert [(event.kind, event.fault, event.detail) for event in happened] == [
        ("begin", "cut 2>1", "leader(a-0) is 1"),
        ("begin", "mute 3", None),
        ("end", "cut 2>1", None),
    ]
    assert sorted(stage.links.now.values()) == ["cut 3>1", "cut 3>2"]


def test_a_role_that_nobody_takes_is_skipped_and_reported(tmp_path: Path) -> None:
    _, happened = played(
        Stage(), FixedView(leads=None), "at 0 for 1: mute leader(a-0)\nat 0: mute 3", tmp_path
    )
    assert [(event.fault, event.detail) for event in happened] == [
        (events.SKIPPED, "mute leader(a-0): nobody is leader(a-0)"),
        ("mute 3", None),
    ]


def test_links_that_hang_are_renewed_and_what_was_wrong_stays_wrong(tmp_path: Path) -> None:
    stage = Stage(Hanging())
    _, happened = played(stage, FixedView(), "at 0: mute 3\nat 0 for 0.05: cut 1>2", tmp_path)
    assert events.LINKS_RENEWED in [event.fault for event in happened]
    assert sorted(stage.links.now.values()) == ["cut 3>1", "cut 3>2"]


# The record -------------------------------------------------------------------------------------------------


def test_faults_are_paired_by_their_text(tmp_path: Path) -> None:
    times = iter(range(10, 1000, 10))
    log = EventLog(tmp_path / EVENTS, lambda: next(times))
    log.begin("cut 2>1", "follower(a-0) is 2")  # 10
    log.begin("kill 3")  # 20
    log.end("cut 2>1")  # 30
    log.begin("cut 2>1")  # 40
    log.point(events.SKIPPED, "pause 3: node 3 is down")  # 50
    log.point(events.CALM)  # 60
    log.close()
    with (tmp_path / EVENTS).open("a") as file:
        file.write('{"time":70,"kin')
    HistoryWriter(tmp_path / HISTORY, Header({})).close()
    evidence = Evidence(tmp_path, None)
    assert [(span.start, span.end) for span in evidence.spans("cut")] == [(10, 30), (40, 60)]
    assert [(span.start, span.end) for span in evidence.spans()] == [(10, 30), (20, 60), (40, 60)]
    assert [event.detail for event in evidence.points(events.SKIPPED)] == ["pause 3: node 3 is down"]
    with pytest.raises(LookupError, match="no fault pause"):
        evidence.span("pause")
