"""A seed that must not hold does not, and shrinks; taking a fault away changes no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.simulator.faults import SimFault
from chaos.simulator.profile import COMBINED, PROFILES
from chaos.simulator.run import Simulation
from chaos.simulator.shrink import Shrinker, minimal
from data_plane.replication.leader_state import LeaderState


def test_a_controller_that_was_stopped_is_no_witness() -> None:
    """It believes that it is active; once its successor dies nobody contradicts, and what it knows is old."""
    profile = replace(COMBINED, topics={"all": COMBINED.topics["all"]})
    stopped = SimFault.parse("at 1 for 14: pause controller")
    successor_dies = SimFault.parse("at 11.5 for 1: kill controller")
    outcome = Simulation(4, profile, 14.0, faults=[stopped, successor_dies], until=13.0).run()
    assert outcome.violations == []
    assert outcome.story.visited["raft leader"] > 1


def test_nothing_is_calm_before_every_node_serves() -> None:
    """It lost power just before the heal: for the rest of its session metadata has it in every ISR, the high
    watermark waits for it, and a final read would miss what acks=1 was told."""
    outcome = Simulation(3, COMBINED, 2.0, faults=[SimFault.parse("at 1.5 for 9: power 3")]).run()
    assert outcome.violations == []
    told = [f"{line.who} {line.what}" for line in outcome.story.lines]
    assert told.index("n3.2 is up") < told.index("world all is calm, the clients have stopped")


def leader_counts_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark does not wait for followers: what is acknowledged goes with the leader."""
    monkeypatch.setattr(LeaderState, "high_watermark", lambda self, before, end, now, own: own)


@pytest.mark.heavy
@pytest.mark.pure("a bug is planted in Python")
def test_a_leader_that_counts_itself_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    leader_counts_itself_alone(monkeypatch)
    profile = replace(COMBINED, shape=PROFILES["stranded"].shape)
    outcome = Simulation(5, profile, 8.0, faults=[SimFault.parse("at 1 for 6: isolate leader")]).run()
    broken = {violation.rule for violation in outcome.violations}
    assert broken & {"lost-write", "unseen", "vanished-read", "inconsistent-offsets", "ACKED_IN_LOG"}


@pytest.mark.long
@pytest.mark.pure("a bug is planted in Python")
def test_a_seed_shrinks_to_the_faults_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    leader_counts_itself_alone(monkeypatch)
    profile = PROFILES["stranded"]
    whole = Simulation(1, profile, 12.0).player.faults
    shrunk = Shrinker(1, profile, 12.0, print).shrink()
    assert shrunk is not None
    assert len(shrunk.run.faults) < len(whole) / 2


@pytest.mark.heavy
def test_a_minority_may_lose_power_and_no_more_than_that() -> None:
    """With five copies, two of which need not be synced; all five lose what clients were told."""
    profile = PROFILES["five"]
    minority = [SimFault.parse("at 2 for 1: power-some 1+4"), SimFault.parse("at 4.5 for 1: power-some 1+4")]
    outcome = Simulation(1, profile, 6.0, faults=minority).run()
    assert outcome.violations == []
    assert outcome.story.visited["fault power-some"] == 2
    everybody = [SimFault.parse("at 4 for 2: power-some 1+2+3+4+5")]
    lost = Simulation(1, profile, 8.0, faults=everybody).run()
    assert "vanished-read" in {violation.rule for violation in lost.violations}


def test_delta_debugging_leaves_what_it_takes() -> None:
    def fails(some: list[int]) -> bool:
        return {3, 17} <= set(some)

    assert minimal(list(range(20)), fails) == [3, 17]
    assert minimal([1], lambda some: True) == []


def test_a_fault_survives_its_text() -> None:
    simulation = Simulation(5, PROFILES["blackout"], 60.0)
    listed = simulation.player.faults
    assert len(listed) > 10
    assert [SimFault.parse(str(fault)) for fault in listed] == listed


def test_a_fault_that_is_taken_away_changes_no_other() -> None:
    whole: list[str] = []
    part: list[str] = []
    faults = Simulation(2, COMBINED, 6.0).player.faults
    Simulation(2, COMBINED, 6.0, trace=whole.append, until=4.0).run()
    Simulation(2, COMBINED, 6.0, trace=part.append, until=4.0, faults=faults[:1]).run()
    later = min(fault.at_s for fault in faults[1:])
    before = [line for line in whole if float(line.split()[0]) < later]
    assert before == part[: len(before)]
