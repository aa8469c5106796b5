"""When no member ends any more, each group comes to rest, and each partition has one owner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chaos.simulator.clients.member import SimMember
from chaos.simulator.profile import PROFILES
from chaos.simulator.run import Outcome, Simulation
from data_plane.coordinator.groups.classic import group
from metadata_quorum.foundation.errors import ErrorCode

pytestmark = pytest.mark.heavy

ONE_TOPIC = replace(PROFILES["groups"], topics={"all": PROFILES["groups"].topics["all"]})


def played() -> Outcome:
    return Simulation(2, ONE_TOPIC, 3.0, faults=[]).run()


def test_groups_come_to_rest() -> None:
    assert played().violations == []


@pytest.mark.pure("a bug is planted in Python")
def test_a_group_that_is_rebalanced_all_the_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two rebalances its members read and commit: nothing else is wrong."""
    check = group.check_heartbeat

    def never_quiet(*args: Any) -> Any:
        found = check(*args)
        return found if isinstance(found, ErrorCode) else ErrorCode.REBALANCE_IN_PROGRESS

    monkeypatch.setattr(group, "check_heartbeat", never_quiet)
    assert {violation.rule for violation in played().violations} == {"recovery: rebalances"}


def test_two_owners_of_a_partition_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though neither commits any more."""
    monkeypatch.setattr(SimMember, "owned", property(lambda self: self.keys))
    assert {violation.rule for violation in played().violations} == {"recovery: rebalances"}
