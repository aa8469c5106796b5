"""What must come about while faults last, and who is excused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from chaos.simulator.faults import SimFault
from chaos.simulator.oracles.contact import Contact, ContactLedger
from chaos.simulator.profile import COMBINED, PROFILES, Profile
from chaos.simulator.run import Simulation
from data_plane.replication.leader_state import FollowerReplica
from data_plane.replication.partition import Partition
from metadata_quorum.controller.broker_sessions import BrokerSessions
from metadata_quorum.decisions import brokers
from metadata_quorum.decisions.elections import broker_leaves
from metadata_quorum.foundation.model import NO_LEADER, PartitionRegistration

STRANDED = replace(PROFILES["stranded"], topics={"all": COMBINED.topics["all"]})
"""One controller, three brokers with short sessions."""
PATIENT = replace(
    COMBINED,
    topics={"all": COMBINED.topics["all"]},
    shape=replace(
        COMBINED.shape,
        settings={
            **COMBINED.shape.settings,
            "controller.quorum.fetch.timeout.ms": "600000",
            "controller.quorum.election.timeout.ms": "600000",
        },
    ),
)
"""Nobody stands for election, and nobody resigns."""


def rules(profile: Profile, faults: Sequence[str], until: float) -> set[str]:
    """Which of liveness are broken."""
    planted = [SimFault.parse(fault) for fault in faults]
    outcome = Simulation(1, profile, until, faults=planted, until=until).run()
    return {each.rule for each in outcome.violations if each.rule.startswith("liveness")}


APART = ["at 1 for 20: partial 2>3", "at 1 for 20: partial 3>4", "at 1 for 20: partial 2>4"]
"""No broker hears another; the controller hears all."""


def test_who_cannot_follow_leaves_the_isr() -> None:
    assert rules(STRANDED, APART, 9.5) == set()


@pytest.mark.pure("a bug is planted in Python")
def test_who_cannot_follow_and_stays_in_the_isr_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FollowerReplica, "caught_up", lambda *_: True)
    assert rules(STRANDED, APART, 9.5) == {"liveness: isr", "liveness: high watermark"}


@pytest.mark.pure("a bug is planted in Python")
def test_who_is_silent_and_is_not_fenced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerSessions, "next_deadline", lambda *_: None)
    assert rules(STRANDED, ["at 1 for 20: isolate 2"], 16.0) == {"liveness: brokers"}


@pytest.mark.long
@pytest.mark.pure("a bug is planted in Python")
def test_a_partition_that_is_given_no_leader_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_a_leader(*args: Any, **options: Any) -> list[Any]:
        return [replace(record, leader=NO_LEADER) for record in broker_leaves(*args, **options)]

    monkeypatch.setattr(brokers, "broker_leaves", without_a_leader)
    faults = [f"at 1 for 20: isolate {broker}" for broker in (2, 3)]
    assert "liveness: leaders" in rules(STRANDED, faults, 19.0)


@pytest.mark.pure("a bug is planted in Python")
def test_who_is_named_leader_and_does_not_lead_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    become_leader = Partition.become_leader

    def become_first_leader(self: Partition, registration: PartitionRegistration, now: float) -> bool:
        return not registration.leader_epoch and become_leader(self, registration, now)

    monkeypatch.setattr(Partition, "become_leader", become_first_leader)
    assert "liveness: leaders" in rules(STRANDED, ["at 1 for 20: isolate leader"], 19.0)


def test_a_majority_that_talks_has_a_controller_and_a_minority_none() -> None:
    isolated = ["at 1 for 20: isolate controller"]
    assert rules(PATIENT, isolated, 12.0) == {"liveness: controller", "liveness: minority"}
    assert rules(replace(PATIENT, shape=COMBINED.shape), isolated, 12.0) == set()


def test_the_ledger_knows_who_talks() -> None:
    faults = [
        "at 1 for 2: pause 2",
        "at 4 for 2: slow 1>3 300ms",
        "at 7 for 2: partial 1>4",
        "at 10 for 1: kill 3",
    ]
    simulation = Simulation(1, STRANDED, 12.0, faults=[SimFault.parse(each) for each in faults], until=12.0)
    ledger = ContactLedger(simulation.cluster)
    found: dict[int, list[Contact]] = {}
    since: dict[int, float] = {}

    def look(second: int) -> None:
        ledger.look()
        found[second] = [ledger.pair(1, broker).contact for broker in (2, 3, 4)]
        since[second] = ledger.pair(1, 3).since_s

    for second in range(1, 13):
        simulation.scheduler.at(second - 0.5, look, second)
    assert simulation.run().ok
    talks, silent, unclear = Contact.TALKS, Contact.SILENT, Contact.UNCLEAR
    assert found[1] == found[4] == found[7] == found[12] == [talks, talks, talks]
    assert found[2] == found[3] == [silent, talks, talks]
    assert found[5] == found[6] == [talks, unclear, talks]
    assert found[8] == found[9] == [talks, talks, silent]
    assert found[11] == [talks, silent, talks]
    assert since[4] == pytest.approx(0.5, abs=0.01)
    assert since[12] == pytest.approx(11.5, abs=0.01)


def test_who_is_heard_for_a_moment_is_silent_since_then() -> None:
    """What was held back arrives in a tenth of a second, between two looks."""
    faults = ["at 1 for 6: isolate 2", "at 7.1 for 4: isolate 2"]
    simulation = Simulation(1, STRANDED, 12.0, faults=[SimFault.parse(each) for each in faults], until=9.0)
    ledger = ContactLedger(simulation.cluster)
    for at_s in (6.9, 7.2, 8.0):
        simulation.scheduler.at(at_s, ledger.look)
    simulation.run()
    assert ledger.pair(1, 2).contact is Contact.SILENT
    assert ledger.pair(1, 2).since_s == pytest.approx(7.2, abs=0.01)
