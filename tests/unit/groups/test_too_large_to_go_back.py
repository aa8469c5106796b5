"""A group of the consumer protocol whose members of the classic one cannot be stored as a classic group: they
are too many for one record, or one of them says nothing that others could read."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat
from data_plane.coordinator.groups.messages import GroupType, LeaveGroup, MemberIdentity, MemberProtocol
from data_plane.coordinator.groups.service import GroupCoordinator
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.virtual_loop import run_virtually
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import JOIN, service
from tests.unit.groups.topics import Topics

USER_DATA = bytes(1000)
SUBSCRIPTION = struct.pack(">hih", 1, 1, 1) + b"a" + struct.pack(">i", len(USER_DATA)) + USER_DATA + bytes(4)
CLASSIC = replace(
    JOIN,
    protocols=(MemberProtocol("range", SUBSCRIPTION),),
    session_timeout_ms=120_000,
    requires_known_id=False,
)
MODERN = ConsumerHeartbeat("g", "m", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=("a",), owned={})
SESSION_S = 45.0
ROOM_FOR_TWO = 4_000


def shape(groups: GroupCoordinator) -> tuple[GroupType, int]:
    [group] = groups.summaries()
    return group.listed.type, len(group.members)


Going = Callable[[GroupCoordinator], Awaitable[None]]


async def leave(groups: GroupCoordinator) -> None:
    await groups.consumer_heartbeat(ConsumerHeartbeat("g", "m", -1))


async def fall_silent(groups: GroupCoordinator) -> None:
    await asyncio.sleep(SESSION_S + 1)


@pytest.mark.row("G6")
@pytest.mark.parametrize("go", [leave, fall_silent])
def test_the_last_member_of_the_consumer_protocol_goes_and_the_others_stay_as_they_are(go: Going) -> None:
    """It could not leave, its session did not end, and what it had was read by nobody."""

    async def test() -> None:
        log, topics = MemoryLog(), Topics()
        topics.create("a", 4)
        async with service(log) as groups:
            groups.view.image = topics.view.image
            await groups.consumer_heartbeat(MODERN)
            classic = [(await groups.join(CLASSIC)).member_id for _ in range(3)]
            assert shape(groups) == (GroupType.CONSUMER, 4)
            log.max_bytes = ROOM_FOR_TWO
            await go(groups)
            assert shape(groups) == (GroupType.CONSUMER, 3)
            left = await groups.leave(LeaveGroup("g", (MemberIdentity(classic[0]),)))
            assert [code for _, code in left.members] == [ErrorCode.NONE]
            assert shape(groups) == (GroupType.CLASSIC, 2)

    run_virtually(test())


@pytest.mark.row("G6")
@pytest.mark.parametrize("go", [leave, fall_silent])
def test_it_goes_where_the_others_have_a_protocol_in_common_that_one_says_nothing_for(go: Going) -> None:
    """Every attempt to go failed at those bytes, and its partitions were read by nobody."""

    async def test() -> None:
        log, topics = MemoryLog(), Topics()
        topics.create("a", 4)
        async with service(log) as groups:
            groups.view.image = topics.view.image
            await groups.consumer_heartbeat(MODERN)
            for protocols in (("range", SUBSCRIPTION), ("odd", b"")), (("odd", SUBSCRIPTION),):
                await groups.join(replace(CLASSIC, protocols=tuple(MemberProtocol(*p) for p in protocols)))
            assert shape(groups) == (GroupType.CONSUMER, 3)
            await go(groups)
            assert shape(groups) == (GroupType.CONSUMER, 2)

    run_virtually(test())
