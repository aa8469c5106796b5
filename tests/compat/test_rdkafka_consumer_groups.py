"""librdkafka in groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.conftest import MakeTopic
from tests.rdkafka import consumer, poll, send
from tests.waiting import wait_until

Member = Callable[..., Consumer]


@pytest.fixture
def member(bootstrap: str) -> Member:
    """Make a subscribed member of a group, from the earliest offset on; all leave at the end."""
    with ExitStack() as members:

        def make(group: str, topic: str, protocol: str = "consumer", **config: object) -> Consumer:
            settings = {"group_protocol": protocol, "auto_offset_reset": "earliest", **config}
            if protocol == "classic":
                settings |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 200}
            reader = members.enter_context(consumer(bootstrap, group_id=group, **settings))
            reader.subscribe([topic])
            return reader

        yield make


def shares(members: list[Consumer]) -> list[list[int]]:
    """What each member has now; polled once, so that rebalances go on."""
    for each in members:
        each.poll(0.05)
    return [sorted(place.partition for place in each.assignment()) for each in members]


def even(members: list[Consumer], partitions: int) -> bool:
    found = shares(members)
    sizes = sorted(len(share) for share in found)
    return (
        sorted(number for share in found for number in share) == list(range(partitions))
        and sizes[-1] - sizes[0] <= 1
    )


@pytest.mark.row("G6")
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_and_take_over(
    member: Member, make_topic: MakeTopic, admin: AdminClient, assignor: str
) -> None:
    topic = make_topic(3)
    group = f"kip848-{assignor}"
    first = member(group, topic, group_remote_assignor=assignor)
    wait_until(lambda: shares([first]) == [[0, 1, 2]], "one member has all")
    second = member(group, topic, group_remote_assignor=assignor)
    wait_until(lambda: even([first, second], 3), "two members share")
    described = admin.describe_consumer_groups([group])[group].result()
    assert (described.type, described.partition_assignor) == (ConsumerGroupType.CONSUMER, assignor)
    assert len(described.members) == 2
    second.close()
    wait_until(lambda: shares([first]) == [[0, 1, 2]], "one member has all again")


@pytest.mark.row("G6", "G4")
def test_commit_and_resume(bootstrap: str, member: Member, make_topic: MakeTopic) -> None:
    topic = make_topic()
    send(bootstrap, topic, ({"value": str(n)} for n in range(10)))
    first = member("kip848-resumed", topic)
    messages = poll(first, 4)
    first.commit(messages[-1], asynchronous=False)
    assert first.committed([TopicPartition(topic, 0)], timeout=30)[0].offset == 4
    first.close()
    second = member("kip848-resumed", topic)
    assert [message.value() for message in poll(second, 6)] == [str(n).encode() for n in range(4, 10)]
