"""A controller whose disk was replaced says what it waits for: its quorum elects nobody meanwhile."""

from __future__ import annotations

import logging

import pytest

from chaos.simulator.cluster import Cluster, ClusterShape
from chaos.simulator.draws import Draws
from chaos.simulator.network import Network
from chaos.simulator.scheduler import Scheduler
from chaos.simulator.story import Story
from kraft.node.controller_role import MUTE_AGAIN_S, MUTE_FIRST_S

WITHIN_S = 20.0
WAITS = "this controller's directory is new: it has no vote until all others have vouched for it; "


@pytest.mark.row("Q9")
def test_a_controller_without_a_vote_says_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kraft.node.controller_role")
    scheduler, draws = Scheduler(), Draws(1)
    shape = ClusterShape(controllers=(1, 2, 3), brokers=(4,))
    cluster = Cluster(shape, scheduler, Network(scheduler, draws), draws, Story())

    def said_by(seconds: float) -> list[str]:
        caplog.clear()
        scheduler.run(scheduler.now + seconds)
        return [each.getMessage() for each in caplog.records if each.name == "kraft.node.controller_role"]

    for node_id in shape.nodes:
        cluster.start(node_id)
    scheduler.run(WITHIN_S, lambda: cluster.is_ready)
    for node_id in (2, 3):
        cluster.machines[node_id].kill("")
    cluster.machines[3].disk.wipe()
    cluster.format(3)
    cluster.start(3)
    assert said_by(MUTE_FIRST_S + 1) == [WAITS + "it does not reach 2"]
    assert cluster.leader is None
    assert said_by(MUTE_AGAIN_S) == [WAITS + "it does not reach 2"]
    cluster.start(2)
    assert said_by(MUTE_AGAIN_S) == ["controller 3 has a vote"]
    assert cluster.leader is not None
    cluster.close()
