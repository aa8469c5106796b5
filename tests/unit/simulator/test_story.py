"""The story of a run says what was decided, by which rule, and how the partitions were when a rule broke."""

from __future__ import annotations

from chaos.events import DECIDED
from chaos.simulator.faults import SimFault
from chaos.simulator.profile import PROFILES
from chaos.simulator.run import Simulation


def test_a_story_names_the_rule_behind_each_decision() -> None:
    deaf = SimFault.parse("at 0.5 for 6: isolate 2")
    simulation = Simulation(3, PROFILES["stranded"], 7.0, faults=[deaf], until=12.0)
    simulation.scheduler.at(6.0, simulation.violated, "a rule", "broken on purpose")
    outcome = simulation.run()
    decided = [line.what for line in outcome.story.lines if line.who == DECIDED]
    told = "\n".join(decided)
    assert "broker 2: broker fenced: its process ended, or it sent no heartbeat" in told
    assert "2 left, ISR [3, 4]: fenced or shutting down (leader epoch" in told
    assert "broker 2 is fenced or shutting down, 4 was in the ISR" in told
    assert "joined, ISR" in told
    assert len(set(decided)) == len(decided), "each node knows it, and one tells it"
    last = outcome.story.until(outcome.violations[0].at_s, 5)
    assert len(last) == 5
    assert "a rule: broken on purpose" in last[-1].what
    at = outcome.partitions.index(
        next(line for line in outcome.partitions if line.startswith("all-1: leader "))
    )
    assert "ISR [" in outcome.partitions[at]
    replicas = outcome.partitions[at + 1 : at + 4]
    assert any(each.startswith("  n4 leads in epoch 1: log 0 to ") for each in replicas)
    assert any(each.startswith("  n2 leads in epoch 0: log 0 to ") for each in replicas), "it hears nobody"
