"""A group that reads thousands of topics: what a member that joins takes for each of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from data_plane.coordinator.groups import service as coordinator
from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat
from data_plane.coordinator.groups.group_metadata_manager import GroupMetadataManager, GroupResult
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from tests.support.bytecodes import cost
from tests.unit.groups.group_driver import GroupDriver
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import run, service
from tests.unit.groups.topics import Topics

pytestmark = pytest.mark.row("G6", "P7")

TOPICS = 300
NAMES = tuple(f"t{number}" for number in range(TOPICS))


def joining(member_id: str, names: tuple[str, ...] = NAMES) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        "g",
        member_id,
        0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=names,
        owned={},
        may_see=lambda _: True,
    )


def group() -> tuple[Topics, GroupDriver]:
    """With one member, of topics of one partition each."""
    topics = Topics()
    for name in NAMES:
        topics.create(name, 1)
    driver = GroupDriver(view=topics.view)
    driver.ask("consumer_heartbeat", joining("m1"))
    return topics, driver


def test_a_member_that_reads_what_the_others_read() -> None:
    """In bytecodes, for each topic: all were looked up again, and written and read back with each record."""
    _, driver = group()
    join = partial(driver.ask, "consumer_heartbeat", joining("m2"))
    assert cost(join) <= 400 * TOPICS


def test_topics_are_looked_up_again_when_they_have_changed() -> None:
    topics, _ = group()
    names = frozenset(NAMES)
    before = topics.view.there(names)
    assert topics.view.there(frozenset(NAMES)) is before
    topics.grow("t0", 2)
    topics.delete("t1")
    after = topics.view.there(names)
    assert after.metadata_hash != before.metadata_hash
    assert sum(after.sizes.values()) == TOPICS
    assert len(after.ids) == TOPICS - 1


def test_a_long_list_is_looked_up_before_anything_is_decided_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a turn before: the decision finds it answered."""
    monkeypatch.setattr(coordinator, "LONG_LIST", TOPICS)
    topics, _ = group()
    topics.create("another", 1)  # what was known is not known any more
    in_turn, decided_in = Counter[int](), list[int]()

    async def test() -> None:
        turn = 0

        def next_turn() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(next_turn)

        def looked_up(image: MetadataImage, key: str | UUID) -> TopicImage | None:
            in_turn[turn] += 1
            return find(image, key)

        def decided(*args: Any) -> GroupResult:
            decided_in.append(turn)
            return decide(*args)

        find, loop = MetadataImage.topic, asyncio.get_running_loop()
        decide = GroupMetadataManager.consumer_heartbeat
        async with service(MemoryLog(), epoch=None) as groups:
            groups.view = topics.view
            groups.become_leader(groups.partition_for("g"), 1)
            await groups.loaded()
            monkeypatch.setattr(MetadataImage, "topic", looked_up)
            monkeypatch.setattr(GroupMetadataManager, "consumer_heartbeat", decided)
            next_turn()
            await groups.consumer_heartbeat(joining("m"))

    run(test)
    assert sum(in_turn.values()) == TOPICS
    assert max(in_turn) < min(decided_in)


def cost_of_another_topic(names: int) -> int:
    """Of a member that says again and again that it reads something else, in a group in which another one
    names so many topics that do not exist; in bytecodes."""
    _, driver = group()
    driver.ask("consumer_heartbeat", joining("long", tuple(f"none{n}" for n in range(names))))
    for number in range(3):
        driver.ask("consumer_heartbeat", joining("m1", (f"t{number}",)))
    return cost(partial(driver.ask, "consumer_heartbeat", joining("m1", ("t7",))))


def test_names_of_no_topics_are_not_looked_for_again() -> None:
    """All were, and put in order, at every change of anybody's subscription: half a second."""
    assert cost_of_another_topic(4000) < 1.1 * cost_of_another_topic(10)
