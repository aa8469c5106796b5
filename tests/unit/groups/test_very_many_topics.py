"""A group that reads thousands of topics: what a member that joins takes for each of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from uuid import UUID

import pytest

from data_plane.coordinator.groups import service as coordinator
from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from tests.support.bytecodes import cost
from tests.unit.groups.group_driver import GroupDriver
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import run, service
from tests.unit.groups.topics import Topics

pytestmark = pytest.mark.row("G6", "P7")

TOPICS = 300
NAMES = tuple(f"t{number}" for number in range(TOPICS))


def joining(member_id: str) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        "g",
        member_id,
        0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=NAMES,
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
    """Each question in a turn of its own: there it is answered at once."""
    monkeypatch.setattr(coordinator, "LONG_LIST", TOPICS)
    topics, _ = group()
    topics.create("another", 1)  # what was known is not known any more
    in_turn = Counter[int]()

    async def test() -> None:
        turn = 0

        def next_turn() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(next_turn)

        def looked_up(image: MetadataImage, key: str | UUID) -> TopicImage | None:
            in_turn[turn] += 1
            return find(image, key)

        find, loop = MetadataImage.topic, asyncio.get_running_loop()
        async with service(MemoryLog(), epoch=None) as groups:
            groups.view = topics.view
            groups.become_leader(groups.partition_for("g"), 1)
            await groups.loaded()
            monkeypatch.setattr(MetadataImage, "topic", looked_up)
            next_turn()
            await groups.consumer_heartbeat(joining("m"))

    run(test)
    assert sorted(in_turn.values()) == [TOPICS, TOPICS]
