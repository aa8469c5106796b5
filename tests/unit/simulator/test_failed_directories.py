"""A broker loses the log directory of a coordinator's partition, and serves on with its others."""

from __future__ import annotations

import pytest

from chaos.simulator.faults import SimFault
from chaos.simulator.profile import PROFILES
from chaos.simulator.run import Outcome, Simulation
from data_plane.coordinator.runtime import CoordinatorState
from data_plane.coordinator.topics import OFFSETS_TOPIC
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.errors import ErrorCode

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("silent")]

SEEDS = range(3, 13)
"""The first is taken in which a broker stores a group in such a directory."""
STORED_S = 10
LOST_S = 4.0
"""How long the directory is gone."""


def coordinators_directory(simulation: Simulation) -> tuple[int, int] | None:
    """A broker that coordinates a group, and the number of the directory in which that is stored; not the
    first one, with the metadata log."""
    for node_id, running in simulation.cluster.running.items():
        role = running.node.broker_role
        for shard in role.group_coordinator.shards if role is not None else ():
            log = role.replica_manager.get(OFFSETS_TOPIC, shard.partition).log
            directories = simulation.cluster.shape.log_dirs_of(node_id)
            number = 1 + directories.index(log.directory.rpartition("/")[0])
            if number > 1 and log.log_end_offset and shard.state is CoordinatorState.ACTIVE:
                return node_id, number
    return None


def lose_it(simulation: Simulation) -> None:
    for _ in range(STORED_S):
        simulation.pass_time(1.0)
        if (found := coordinators_directory(simulation)) is not None:
            player = simulation.player
            player.faults = [SimFault.parse(f"at 0 for {LOST_S}: dir-lost {found[0]} {found[1]} back")]
            player.play()
            simulation.pass_time(LOST_S)
            player.heal()
            return


def directory_fails() -> Outcome:
    for seed in SEEDS:
        simulation = Simulation(seed, PROFILES["disks"], STORED_S + LOST_S, faults=[], breaking=lose_it)
        outcome = simulation.run()
        if simulation.player.faults:
            return outcome
    raise AssertionError("no broker stores a group where it may be lost")


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
