"""An active controller that is cut off from the other voters, and not from the brokers: until it notices
there are two, and a broker that has followed the next one may come back to it. And controllers that were
restored from a backup, which look like that: they are of an older epoch, and lack what was decided since."""

from __future__ import annotations

import pytest

from chaos.simulator.cluster import host_of
from chaos.simulator.profile import PROFILES
from chaos.simulator.run import Simulation

pytestmark = pytest.mark.usefixtures("silent")

STARTED_S = 3.0
STEP_S = 0.1
STEPS = 40
"""Elections take up to 2 s, and so does a leader without voters to give up."""


def active(simulation: Simulation) -> set[int]:
    roles = {node_id: running.node.controller_role for node_id, running in simulation.cluster.running.items()}
    return {node_id for node_id, role in roles.items() if role is not None and role.controller.is_active}


@pytest.mark.parametrize("seed", [1, 2])
def test_brokers_that_come_back_to_a_controller_that_was_replaced_live_on(seed: int) -> None:
    two_at_once = 0

    def cut_off(simulation: Simulation) -> None:
        nonlocal two_at_once
        simulation.pass_time(STARTED_S)
        network, shape = simulation.cluster.network, simulation.cluster.shape
        (first,) = active(simulation)
        for other in set(shape.controllers) - {first}:
            network.cut(host_of(first), host_of(other))
            network.cut(host_of(other), host_of(first))
        for _ in range(STEPS):
            if len(active(simulation)) == 2:
                two_at_once += 1
                for broker in shape.brokers:
                    for controller in shape.controllers:
                        network.reset(host_of(broker), host_of(controller))
            simulation.pass_time(STEP_S)
        network.heal_all()

    seconds = STARTED_S + STEPS * STEP_S
    outcome = Simulation(seed, PROFILES["separate"], seconds, faults=[], breaking=cut_off).run()
    assert two_at_once >= 3
    assert outcome.violations == []


class BrokersEnded(Exception):
    """What the test was for: nothing else of the simulation is looked at."""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_brokers_end_beside_controllers_that_were_restored_from_a_backup(seed: int) -> None:
    """Once those had decided more than they had lost, they were taken for a leader that makes no sense."""
    reasons: list[str] = []

    def restore(simulation: Simulation) -> None:
        cluster = simulation.cluster
        controllers = [cluster.machines[node_id] for node_id in cluster.shape.controllers]
        cluster.on_end.insert(0, lambda node_id, code, reason: reasons.append(reason))
        simulation.pass_time(STARTED_S)
        for machine in controllers:
            machine.kill("backup")
        backup = [machine.disk.durable_clone() for machine in controllers]
        for node_id in cluster.shape.controllers:
            cluster.start(node_id)
        simulation.pass_time(STARTED_S)
        for _ in range(2):  # elections
            (first,) = active(simulation)
            cluster.machines[first].kill("election")
            simulation.pass_time(STARTED_S)
            cluster.start(first)
            simulation.pass_time(STARTED_S)
        for machine, disk in zip(controllers, backup, strict=True):
            machine.kill("restore")
            machine.disk.restore(disk)
        for node_id in cluster.shape.controllers:
            cluster.start(node_id)
        simulation.pass_time(2.0)
        raise BrokersEnded

    with pytest.raises(BrokersEnded):
        Simulation(seed, PROFILES["separate"], 5.0, faults=[], breaking=restore).run()
    assert len(reasons) == len(PROFILES["separate"].shape.brokers)
    assert all("has lost metadata" in reason for reason in reasons)
