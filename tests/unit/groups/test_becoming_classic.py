"""An empty group of the consumer protocol becomes a classic one with the first member that joins it, if that
can be stored."""

from __future__ import annotations

import pytest

from data_plane.coordinator.groups.classic.states import ClassicGroupConfig
from data_plane.coordinator.groups.consumer.group import ConsumerGroup
from data_plane.coordinator.groups.group_metadata_manager import GroupLimits
from data_plane.coordinator.groups.messages import JoinReply
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.unit.groups.clients import GROUP, ConsumerClient
from tests.unit.groups.group_driver import GroupDriver, join
from tests.unit.groups.topics import Topics


@pytest.mark.row("G6")
@pytest.mark.parametrize("delay_s", [0.0, 3.0])
def test_what_could_not_be_stored_has_not_begun(delay_s: float) -> None:
    """The member that was refused comes again under another id; it waited for its former self."""
    topics = Topics()
    topics.create("a", 1)
    limits = GroupLimits(rules=ClassicGroupConfig(initial_rebalance_delay=delay_s))
    driver = GroupDriver(limits, topics.view)
    client = ConsumerClient("modern", ("a",))
    client.beat(driver)
    client.leave(driver)
    driver.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    ticket = driver.ask("join", join(new="first"))
    refused = driver.answers[ticket]
    assert refused is driver.refusal or (isinstance(refused, BrokerError) and refused.code is driver.refusal)
    assert isinstance(driver.manager.group(GROUP), ConsumerGroup)
    assert isinstance(driver.reloaded().manager.group(GROUP), ConsumerGroup)
    driver.refusal = None
    ticket = driver.ask("join", join(new="second"))
    driver.advance(delay_s)
    reply = driver.answers[ticket]
    assert isinstance(reply, JoinReply)
    assert (reply.error, reply.generation, len(reply.members)) == (ErrorCode.NONE, 1, 1)
    assert not isinstance(driver.reloaded().manager.group(GROUP), ConsumerGroup)
