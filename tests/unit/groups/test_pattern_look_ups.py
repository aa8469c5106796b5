"""Patterns of many members, looked up side by side: turns of the loop stay short, and topics that come and go
keep nobody from an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from data_plane.coordinator.groups.consumer.topic_patterns import NAMES_PER_STEP
from data_plane.coordinator.groups.group_metadata_manager import GroupMetadataManager
from data_plane.coordinator.groups.service import GroupCoordinator
from metadata_quorum.foundation.client_pattern import ClientPattern
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import run, service
from tests.unit.groups.topics import Topics

pytestmark = pytest.mark.row("G6", "P7")

TOPICS = 100
MEMBERS = 64


def joining(groups: GroupCoordinator, member: str, regex: str) -> asyncio.Future[ConsumerHeartbeatReply]:
    wanted = ConsumerHeartbeat(
        "g", member, 0, rebalance_timeout_ms=60_000, subscribed_topic_regex=regex, owned={}
    )
    return asyncio.ensure_future(groups.consumer_heartbeat(wanted))


def test_the_patterns_of_many_members_share_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name may take a third of a millisecond."""
    matched = most = 0
    matches = ClientPattern.matches

    def counted(pattern: ClientPattern, text: str) -> bool:
        nonlocal matched, most
        matched += 1
        most = max(most, matched)
        return matches(pattern, text)

    monkeypatch.setattr(ClientPattern, "matches", counted)

    async def test() -> None:
        nonlocal matched
        async with service(MemoryLog()) as groups:
            topics = Topics()
            for number in range(TOPICS):
                topics.create(f"t{number}", 1)
            groups.view.image = topics.view.image
            asked = [joining(groups, f"m{number}", f"t{number}.*") for number in range(MEMBERS)]
            while not all(each.done() for each in asked):
                matched = 0
                await asyncio.sleep(0)
            for each in asked:
                assert (await each).member_epoch > 0

    run(test)
    assert NAMES_PER_STEP <= most <= 2 * NAMES_PER_STEP


def test_topics_that_come_all_the_time_keep_no_pattern_from_being_resolved() -> None:
    async def test() -> None:
        async with service(MemoryLog()) as groups:
            topics = Topics()
            for number in range(TOPICS):
                topics.create(f"t{number}", 1)
            groups.view = topics.view
            joins = joining(groups, "m", "t.*")
            for number in range(TOPICS, 2 * TOPICS):
                for _ in range(3):
                    await asyncio.sleep(0)
                if joins.done():
                    break
                topics.create(f"t{number}", 1)
            assert (await joins).member_epoch > 0
            assert number < 2 * TOPICS - 1, "resolved before the topics ceased to come"

    run(test)


def test_members_that_join_at_once_do_so_one_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may have all partitions of its group assigned anew: some milliseconds, where there are many."""
    decided = most = 0
    heartbeat = GroupMetadataManager.consumer_heartbeat

    def counted(*asked: Any) -> Any:
        nonlocal decided, most
        decided += 1
        most = max(most, decided)
        return heartbeat(*asked)

    monkeypatch.setattr(GroupMetadataManager, "consumer_heartbeat", counted)

    async def test() -> None:
        nonlocal decided
        async with service(MemoryLog()) as groups:
            asked = [
                asyncio.ensure_future(
                    groups.consumer_heartbeat(
                        ConsumerHeartbeat(
                            "g", f"m{number}", 0, rebalance_timeout_ms=1, subscribed_topic_names=(), owned={}
                        )
                    )
                )
                for number in range(MEMBERS)
            ]
            while not all(each.done() for each in asked):
                decided = 0
                await asyncio.sleep(0)
            for each in asked:
                assert (await each).member_epoch > 0

    run(test)
    assert most == 1
