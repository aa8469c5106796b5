"""Patterns that there are not, that match nothing, or that are no expressions; and members that are
not who they say."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from data_plane.coordinator.groups.consumer.cluster_view import ClusterView
from data_plane.coordinator.groups.consumer.draft import Draft
from data_plane.coordinator.groups.consumer.membership import write_metadata
from data_plane.coordinator.groups.consumer.messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
)
from data_plane.coordinator.groups.consumer.rebalance import RebalanceContext
from data_plane.coordinator.groups.consumer.rules import ConsumerGroupConfig
from data_plane.coordinator.groups.consumer.state import ConsumerGroupState
from data_plane.coordinator.groups.consumer_records import MemberMetadata
from data_plane.coordinator.groups.service import GroupCoordinator
from data_plane.coordinator.state_machine import Instant
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import run, service

pytestmark = pytest.mark.row("G6")


async def beat(groups: GroupCoordinator, epoch: int, **fields: Any) -> ConsumerHeartbeatReply:
    return await groups.consumer_heartbeat(ConsumerHeartbeat("g", "m", epoch, **fields))


async def join(groups: GroupCoordinator, **fields: Any) -> ConsumerHeartbeatReply:
    return await beat(
        groups, 0, rebalance_timeout_ms=1, subscribed_topic_names=("orders",), owned={}, **fields
    )


def test_who_says_that_it_has_no_pattern_changes_nothing() -> None:
    async def test() -> None:
        async with service(MemoryLog()) as groups:
            epoch = (await join(groups)).member_epoch
            assert (await beat(groups, epoch, subscribed_topic_regex="")).member_epoch == epoch
            described = await groups.describe_consumer_group("g")
            assert isinstance(described, DescribedConsumerGroup)
            assert described.members[0].member.metadata.subscribed_topic_regex == ""

    run(test)


def test_a_pattern_that_matches_nothing_is_no_reason_to_assign_again() -> None:
    """It is resolved with the next heartbeat."""

    async def test() -> None:
        async with service(MemoryLog()) as groups:
            epoch = (await join(groups, subscribed_topic_regex="nothing.*")).member_epoch
            assert (await beat(groups, epoch)).member_epoch == epoch
            resolved = await beat(groups, epoch, subscribed_topic_regex="o.*")
            assert resolved.member_epoch == epoch + 1

    run(test)


def test_a_member_that_says_it_is_another_instance_is_who_it_was() -> None:
    async def test() -> None:
        async with service(MemoryLog()) as groups:
            epoch = (await join(groups, instance_id="i")).member_epoch
            fields: dict[str, Any] = {"rebalance_timeout_ms": 1, "subscribed_topic_names": (), "owned": {}}
            assert (await beat(groups, 0, instance_id="j", **fields)).member_epoch == epoch + 1

    run(test)


def test_what_a_member_was_called_is_free_again() -> None:
    """It was kept for as long as the node ran: whoever is called so was told that the name is another's."""

    async def test() -> None:
        async with service(MemoryLog()) as groups:
            await join(groups, instance_id="i")
            await join(groups, instance_id="j")
            request = ConsumerHeartbeat(
                "g",
                "another",
                0,
                instance_id="i",
                rebalance_timeout_ms=1,
                subscribed_topic_names=("orders",),
                owned={},
            )
            assert (await groups.consumer_heartbeat(request)).member_id == "another"
            assert (await beat(groups, -2, instance_id="j")).member_epoch == -2

    run(test)


def test_a_member_that_was_written_without_a_word_on_patterns_has_none() -> None:
    draft = Draft("g", ConsumerGroupState())
    draft.write_member("m", MemberMetadata(subscribed_topic_regex=None))
    before = draft.state.members["m"]
    after = dataclasses.replace(before.metadata, subscribed_topic_regex="")
    context = RebalanceContext(ConsumerGroupConfig(), ClusterView(), Instant(0.0, 0), topics_changed=False)
    assert not write_metadata(draft, before, after, context)


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (0, ErrorCode.INVALID_REGULAR_EXPRESSION),
        (1, ErrorCode.INVALID_REGULAR_EXPRESSION),
        (2, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_a_pattern_is_judged_after_the_member(epoch: int, error: ErrorCode) -> None:
    async def test() -> None:
        async with service(MemoryLog()) as groups:
            with pytest.raises(BrokerError) as unknown:
                await beat(groups, 1, subscribed_topic_regex="(")
            assert unknown.value.code is ErrorCode.GROUP_ID_NOT_FOUND
            assert (await join(groups)).member_epoch == 1
            with pytest.raises(BrokerError) as refused:
                await beat(groups, epoch, subscribed_topic_regex="(", owned={})
            assert refused.value.code is error
            assert (await beat(groups, -1, subscribed_topic_regex="(")).member_epoch == -1

    run(test)
