"""Patterns that there are not, that match nothing, or that are no expressions; and members that are
not who they say."""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.coordinator.groups.consumer.messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
)
from data_plane.coordinator.groups.service import GroupCoordinator
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
