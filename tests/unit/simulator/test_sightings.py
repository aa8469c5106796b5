"""Faults that wait for a state of the cluster: a transaction is decided, and its coordinator dies."""

from __future__ import annotations

import pytest

from chaos.simulator.clients import transactor
from chaos.simulator.faults import SimFault
from chaos.simulator.profile import COMBINED, PROFILES
from chaos.simulator.run import Outcome, Simulation
from chaos.simulator.sightings import OF_DIRECTORIES, OF_TRANSACTIONS, SIGHTINGS
from data_plane.coordinator.transactions.transaction_state_manager import TransactionStateManager

pytestmark = pytest.mark.usefixtures("silent")

AT_ONCE = "at 1 for 2 when prepared 1ms: kill seen"


def coordinator_dies() -> Outcome:
    return Simulation(1, PROFILES["transactions"], 4.0, faults=[SimFault.parse(AT_ONCE)]).run()


def test_a_coordinator_dies_between_its_decision_and_the_markers() -> None:
    outcome = coordinator_dies()
    assert outcome.violations == []
    visited = outcome.story.visited
    assert visited["seen prepared"] == visited["fault kill"] == 1
    assert visited["coordinator move"]


@pytest.mark.pure("a bug is planted in Python")
def test_markers_that_nobody_writes_afterwards_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-16352: stuck in PrepareCommit, where no producer comes back to ask again. Whose offsets are
    in the transaction waits for them, if it comes before the bound for transactions is over."""
    monkeypatch.setattr(transactor, "LAST_WORDS", 1.0)
    monkeypatch.setattr(TransactionStateManager, "to_complete", lambda _: iter(()))
    broken = {violation.rule for violation in coordinator_dies().violations}
    assert broken & {"recovery: transactions", "recovery: clients"}


def test_faults_wait_for_what_a_profile_brings_about() -> None:
    assert COMBINED.states[OF_TRANSACTIONS] == 0
    for profile, unseen in (("transactions", OF_DIRECTORIES), ("disks", OF_TRANSACTIONS)):
        listed = Simulation(1, PROFILES[profile], 900.0).player.faults
        assert {fault.when for fault in listed} == {"", *SIGHTINGS} - {unseen}
        assert [SimFault.parse(str(fault)) for fault in listed] == listed
