"""librdkafka in groups of the consumer protocol (KIP-848), alone and beside members of the classic one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConsumerGroupDescription,
    NewPartitions,
    ResourceType,
)

from kraft.local.local_cluster import LocalCluster
from tests.compat.conftest import MakeTopic
from tests.support.clients.rdkafka import QUIET, consumer, even, poll, send, shares
from tests.support.waiting import wait_until

Member = Callable[..., Consumer]
PROMPT_MS = 200


@pytest.fixture
def member(bootstrap: str) -> Iterator[Member]:
    """Make a subscribed member of a group, from the earliest offset on; all leave at the end."""
    with ExitStack() as members:
        yield lambda *who, **config: join(members, bootstrap, *who, **config)


def join(
    members: ExitStack, bootstrap: str, group: str, topic: str, protocol: str = "consumer", **config: object
) -> Consumer:
    settings = {"group_protocol": protocol, "auto_offset_reset": "earliest", **config}
    if protocol == "classic":
        settings |= {"session_timeout_ms": 10_000, "heartbeat_interval_ms": PROMPT_MS}
    reader = members.enter_context(consumer(bootstrap, group_id=group, **settings))
    reader.subscribe([topic])
    return reader


def set_group(admin: AdminClient, group: str, key: str, value: object) -> None:
    change = ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result()


@pytest.fixture
def prompt_group(request: pytest.FixtureRequest, admin: AdminClient) -> str:
    """A group whose members hear of rebalances soon."""
    group = f"kip848-{request.node.name}"
    set_group(admin, group, "consumer.heartbeat.interval.ms", PROMPT_MS)
    return group


@pytest.mark.row("G6")
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_and_take_over(
    member: Member, make_topic: MakeTopic, admin: AdminClient, prompt_group: str, assignor: str
) -> None:
    topic = make_topic(3)
    first = member(prompt_group, topic, group_remote_assignor=assignor)
    wait_until(lambda: shares([first]) == [[0, 1, 2]], "one member has all")
    second = member(prompt_group, topic, group_remote_assignor=assignor)
    wait_until(lambda: even([first, second], 3), "two members share")
    described = admin.describe_consumer_groups([prompt_group])[prompt_group].result()
    assert (described.type, described.partition_assignor) == (ConsumerGroupType.CONSUMER, assignor)
    assert len(described.members) == 2
    second.close()
    wait_until(lambda: shares([first]) == [[0, 1, 2]], "one member has all again")


@pytest.mark.row("G6", "G4")
def test_commit_and_resume(bootstrap: str, admin: AdminClient, member: Member, make_topic: MakeTopic) -> None:
    topic, group = make_topic(), "kip848-resumed"
    send(bootstrap, topic, ({"value": str(n)} for n in range(10)))
    first = member(group, topic)
    messages = poll(first, 4)
    first.commit(messages[-1], asynchronous=False)
    assert first.committed([TopicPartition(topic, 0)], timeout=60)[0].offset == 4
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result()
    first.close()
    second = member(group, topic)
    assert [message.value() for message in poll(second, 6)] == [str(n).encode() for n in range(4, 10)]
    second.close()
    listed = {each.group_id: each for each in admin.list_consumer_groups().result().valid}
    assert listed[group].type is ConsumerGroupType.CONSUMER
    admin.delete_consumer_groups([group])[group].result()
    assert group not in {each.group_id for each in admin.list_consumer_groups().result().valid}


@pytest.mark.row("G6")
def test_a_static_member_comes_back_to_its_partitions(
    member: Member, make_topic: MakeTopic, prompt_group: str
) -> None:
    topic = make_topic(4)
    first = member(prompt_group, topic, group_instance_id="a")
    second = member(prompt_group, topic, group_instance_id="b")
    wait_until(lambda: even([first, second], 4), "two members share")
    (mine, others) = shares([first, second])
    first.close()  # leaves for now: its place is kept
    again = member(prompt_group, topic, group_instance_id="a")
    wait_until(lambda: shares([again, second]) == [mine, others], "it has what it had")


@pytest.mark.row("G6")
def test_topics_that_match_and_grow_are_taken_in(
    bootstrap: str, admin: AdminClient, member: Member, make_topic: MakeTopic, prompt_group: str
) -> None:
    topic = make_topic(1)
    reader = member(prompt_group, f"^{topic}.*")
    wait_until(lambda: shares([reader]) == [[0]], "the topic that matches")
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    wait_until(lambda: shares([reader]) == [[0, 1, 2]], "it grows")
    described = admin.describe_consumer_groups([prompt_group])[prompt_group].result()
    assert len(described.members[0].assignment.topic_partitions) == 3


@pytest.mark.row("G6")
def test_a_group_changes_to_the_new_protocol_and_back_while_it_reads(
    bootstrap: str, admin: AdminClient, member: Member, make_topic: MakeTopic, prompt_group: str
) -> None:
    topic = make_topic(4)
    options = {"partition_assignment_strategy": "range"}
    old = [member(prompt_group, topic, "classic", **options) for _ in range(2)]
    wait_until(lambda: even(old, 4), "the classic members share")

    def kind() -> ConsumerGroupType:
        listed = {each.group_id: each for each in admin.list_consumer_groups().result().valid}
        return listed[prompt_group].type

    assert kind() is ConsumerGroupType.CLASSIC
    new = member(prompt_group, topic)
    wait_until(lambda: even([*old, new], 4) and len(shares([new])[0]) > 0, "three members share")
    assert kind() is ConsumerGroupType.CONSUMER
    old.pop().close()
    wait_until(lambda: even([*old, new], 4), "a classic member has left")
    new.close()
    wait_until(lambda: shares(old) == [[0, 1, 2, 3]], "the last classic member has all")
    assert kind() is ConsumerGroupType.CLASSIC
    send(bootstrap, topic, ({"value": "v", "partition": n} for n in range(4)))
    messages = poll(old[0], 4)
    old[0].commit(asynchronous=False)
    assert sorted(m.partition() for m in messages) == [0, 1, 2, 3]


@pytest.mark.row("G6", "U4")
def test_a_groups_own_settings_are_bounded(admin: AdminClient) -> None:
    group = "kip848-bounded"
    resource = ConfigResource(ResourceType.GROUP, group)
    found = admin.describe_configs([resource])[resource].result()
    assert found["consumer.session.timeout.ms"].value == "45000"
    set_group(admin, group, "consumer.session.timeout.ms", 50_000)
    found = admin.describe_configs([resource])[resource].result()
    assert found["consumer.session.timeout.ms"].value == "50000"
    for value in (44_999, 60_001):
        with pytest.raises(KafkaException, match=r"group\.consumer\.m.*\.session\.timeout\.ms"):
            set_group(admin, group, "consumer.session.timeout.ms", value)


def described(bootstrap: str, group: str) -> ConsumerGroupDescription:
    """As an administrator sees it who has just come."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    return admin.describe_consumer_groups([group])[group].result()


@pytest.mark.row("G6")
def test_the_group_continues_when_its_coordinator_dies(cluster: LocalCluster) -> None:
    bootstrap, topic, group = cluster.bootstrap, "kip848-survives", "kip848-survivors"
    send(bootstrap, topic, ({"value": str(n), "partition": 0} for n in range(5)))
    with ExitStack() as members:
        reader = join(members, bootstrap, group, topic)
        messages = poll(reader, 3)
        reader.commit(messages[-1], asynchronous=False)
        before = described(bootstrap, group)
        cluster.kill(before.coordinator.id)
        poll(reader, 2)
        send(bootstrap, topic, ({"value": str(n), "partition": 0} for n in range(5, 10)))
        assert [message.value() for message in poll(reader, 5)] == [str(n).encode() for n in range(5, 10)]
        reader.commit(asynchronous=False)
        after = described(bootstrap, group)
        assert after.coordinator.id != before.coordinator.id
        assert after.members[0].member_id == before.members[0].member_id
