"""What faults are drawn: nothing that never happens, and what may happen to every client."""

from __future__ import annotations

from random import Random

import pytest

from chaos.sim.disk import SimDisk
from chaos.simulator.faults import DISK_OPERATIONS, faults_of
from chaos.simulator.profile import COMBINED, PROFILES
from chaos.simulator.run import Simulation

pytestmark = pytest.mark.heavy


def test_disks_fail_at_operations_that_nodes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    done: set[str] = set()
    strike = SimDisk.strike

    def noted(self: SimDisk, operation: str, path: str) -> None:
        done.add(operation)
        strike(self, operation, path)

    monkeypatch.setattr(SimDisk, "strike", noted)
    assert Simulation(2, PROFILES["changing"], 8.0).run().violations == []
    assert set(DISK_OPERATIONS) - {"truncate"} <= done, "a truncation takes a leader that was deposed"


@pytest.mark.parametrize("name", ["combined", "transactions", "groups", "changing"])
def test_every_client_may_lose_its_links(name: str) -> None:
    profile = PROFILES[name]
    simulation = Simulation(1, profile, 1.0, until=20.0, faults=[])
    simulation.run()
    hosts = {client.loop.host for client in simulation.clients}
    assert set(profile.exposed) == hosts
    struck: set[str] = set()
    for seed in range(40):
        drawn = faults_of(Random(seed), COMBINED.severity, profile.shape.nodes, profile.exposed, 60.0)
        struck.update(end for fault in drawn for end in fault.target.split(">"))
    assert set(profile.exposed) <= struck
