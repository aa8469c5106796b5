"""A classic group becomes one of the consumer protocol in one turn of the loop: so much is read for it."""

from __future__ import annotations

import struct

import pytest

from data_plane.coordinator.groups.classic.consumer_protocol import (
    MAX_TOPICS,
    PARTITIONS_AS_TOPIC,
    Allowance,
    read_assignment,
    read_subscription,
    write_assignment,
)
from data_plane.coordinator.groups.classic.states import ClassicGroupConfig
from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat
from data_plane.coordinator.groups.group_metadata_manager import GroupLimits
from data_plane.coordinator.groups.messages import MemberProtocol
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.primitives import string
from tests.unit.groups.clients import ClassicClient, ConsumerClient
from tests.unit.groups.group_driver import GroupDriver, join
from tests.unit.groups.topics import Topics

pytestmark = pytest.mark.row("G6")


def subscription(topics: int) -> bytes:
    names = b"".join(string(f"{number:x}") for number in range(topics))
    return struct.pack(">hi", 0, topics) + names + struct.pack(">i", -1)


@pytest.mark.parametrize("is_too_much", [False, True])
def test_members_that_say_too_much_together_keep_a_classic_group(is_too_much: bool) -> None:
    driver, members = GroupDriver(), 50
    says = subscription(MAX_TOPICS // members + is_too_much)
    for number in range(members):
        driver.ask("join", join(protocols=(MemberProtocol("range", says),), new=f"m{number}"))
    beat = ConsumerHeartbeat(
        "g", "new", 0, None, rebalance_timeout_ms=1000, subscribed_topic_names=("a",), owned={}
    )
    refusal = driver.answer("consumer_heartbeat", beat)
    assert isinstance(refusal, BrokerError) == is_too_much
    if isinstance(refusal, BrokerError):
        assert refusal.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert "more topics or partitions than are read" in refusal.message


def test_topics_and_partitions_are_counted_before_they_are_read() -> None:
    few = write_assignment({"a": frozenset(range(PARTITIONS_AS_TOPIC)), "b": frozenset()}, 0)
    allowance = Allowance(10)
    assert set(read_assignment(few, allowance)) == {"a", "b"}
    assert read_subscription(subscription(5), allowance).topics == ("0", "1", "2", "3", "4")
    with pytest.raises(ValueError, match="than are read"):
        read_subscription(subscription(1), allowance)
    with pytest.raises(ValueError, match="than are read"):
        read_assignment(few, Allowance(4))


def test_a_cooperative_member_learns_what_it_is_to_give_up() -> None:
    """It would join and sync for ever, with all that it has: an assignment is what it gives up by."""
    topics = Topics()
    topics.create("a", 4)
    rules = ClassicGroupConfig(initial_rebalance_delay=0.0)
    driver = GroupDriver(GroupLimits(rules=rules), topics.view)
    classic, modern = ClassicClient("c", ("a",), cooperative=True), ConsumerClient("m", ("a",))
    for _ in range(3):
        classic.beat(driver)
    assert len(classic.owned) == 4
    for _ in range(8):
        modern.beat(driver)
        classic.beat(driver)
    assert (len(classic.owned), len(modern.owned)) == (2, 2)
    assert classic.to_do == "heartbeat"
