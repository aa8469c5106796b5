"""A broker loses the log directory of a coordinator's partition, and serves on with its others."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from chaos.simulator.faults import SimFault
from chaos.simulator.profile import PROFILES
from chaos.simulator.run import Outcome, Simulation
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.errors import ErrorCode

SEED = 3
"""In which broker 2 coordinates groups, in its third directory."""


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def directory_fails() -> Outcome:
    fault = SimFault.parse("at 2 for 2: dir-lost 2 3 back")
    return Simulation(SEED, PROFILES["disks"], 4.0, faults=[fault]).run()


def test_its_coordinator_goes_with_it() -> None:
    outcome = directory_fails()
    assert outcome.violations == []
    assert outcome.story.visited["coordinator move"]


@pytest.mark.pure("a bug is planted in Python")
def test_a_coordinator_that_serves_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Partition.stop

    def tells_nobody(partition: Partition, error: ErrorCode) -> None:
        if partition.is_leader:
            partition.on_stopped = None
        stop(partition, error)

    monkeypatch.setattr(Partition, "stop", tells_nobody)
    assert {violation.rule for violation in directory_fails().violations} == {"coordinator"}
