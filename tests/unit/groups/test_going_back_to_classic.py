"""The last member of the consumer protocol leaves thousands of classic ones: what each takes then."""

from __future__ import annotations

from functools import partial

import pytest

from data_plane.coordinator.groups.classic.group import ClassicGroup
from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat
from data_plane.coordinator.groups.messages import MemberProtocol
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.bytecodes import cost
from tests.unit.groups.converting import BEAT, subscription
from tests.unit.groups.group_driver import GroupDriver, join

pytestmark = pytest.mark.row("G6", "P7")

MEMBERS = 60
LEAVES = ConsumerHeartbeat("g", BEAT.member_id, -1)


@pytest.fixture
def driver() -> GroupDriver:
    driver = GroupDriver()
    for number in range(MEMBERS):
        driver.ask("join", join(new=f"m{number}", protocols=(MemberProtocol("range", subscription(1)),)))
    driver.ask("consumer_heartbeat", BEAT)
    return driver


def members(driver: GroupDriver) -> list[str]:
    group = driver.manager.group("g")
    assert isinstance(group, ClassicGroup)
    return [each.member_id for each in group.metadata.roster]


def test_what_a_member_takes(driver: GroupDriver) -> None:
    """In bytecodes, in one turn of the loop: its tombstones were encoded twice, and it was buried twice."""
    assert cost(partial(driver.ask, "consumer_heartbeat", LEAVES)) <= 1800 * MEMBERS


def test_the_group_is_what_another_coordinator_reads(driver: GroupDriver) -> None:
    driver.ask("consumer_heartbeat", LEAVES)
    assert members(driver) == members(driver.reloaded()) == [f"m{number}" for number in range(MEMBERS)]


def test_what_cannot_be_written_leaves_the_group_as_it_is(driver: GroupDriver) -> None:
    driver.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    driver.ask("consumer_heartbeat", LEAVES)
    assert driver.manager.size_of("g") == MEMBERS + 1
    driver.refusal = None
    driver.ask("consumer_heartbeat", LEAVES)
    assert members(driver) == members(driver.reloaded())
