"""librdkafka in consumer groups: join, share, rebalance, commit, resume; the coordinator dies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kraft.local.local_cluster import LocalCluster
from kraft.wire.api_keys import ApiKey
from tests.compat.conftest import MakeTopic
from tests.support.clients.rdkafka import consumer, even, poll, send, shares
from tests.support.clients.wire_client import Wire
from tests.support.waiting import PATIENCE_S, wait_until


@pytest.fixture
def member(bootstrap: str) -> Callable[..., Consumer]:
    """Make a subscribed member of a group, from the earliest offset on; all leave at the end."""
    with ExitStack() as members:

        def make(group: str, topic: str, **config: object) -> Consumer:
            settings = {
                "auto_offset_reset": "earliest",
                "session_timeout_ms": 45_000,
                "heartbeat_interval_ms": 200,  # how soon a member hears of a rebalance
                **config,
            }
            reader = members.enter_context(consumer(bootstrap, group_id=group, **settings))
            reader.subscribe([topic])
            return reader

        yield make


@pytest.mark.row("G1")
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_and_take_over(
    member: Callable[..., Consumer], make_topic: MakeTopic, strategy: str
) -> None:
    topic = make_topic(3)
    group = f"share-{strategy}"
    first = member(group, topic, partition_assignment_strategy=strategy)
    wait_until(lambda: shares([first]) == [[0, 1, 2]], "one member has all")
    second = member(group, topic, partition_assignment_strategy=strategy)
    wait_until(lambda: even([first, second], 3), "two members share")
    third = member(group, topic, partition_assignment_strategy=strategy)
    wait_until(lambda: even([first, second, third], 3), "three members share")
    third.close()
    second.close()
    wait_until(lambda: shares([first]) == [[0, 1, 2]], "one member has all again")


@pytest.mark.row("G1", "G4")
def test_commit_and_resume(bootstrap: str, member: Callable[..., Consumer], make_topic: MakeTopic) -> None:
    topic = make_topic()
    send(bootstrap, topic, ({"value": str(n)} for n in range(10)))
    first = member("resumed", topic)
    messages = poll(first, 4)
    first.commit(messages[-1], asynchronous=False)
    assert first.committed([TopicPartition(topic, 0)], timeout=60)[0].offset == 4
    first.close()
    second = member("resumed", topic)
    assert [message.value() for message in poll(second, 6)] == [str(n).encode() for n in range(4, 10)]
    second.commit(offsets=[TopicPartition(topic, 0, 7, metadata="half way")], asynchronous=False)
    (found,) = second.committed([TopicPartition(topic, 0)], timeout=60)
    assert (found.offset, found.metadata) == (7, "half way")


@pytest.mark.row("G4")
def test_automatic_commit(bootstrap: str, member: Callable[..., Consumer], make_topic: MakeTopic) -> None:
    topic = make_topic()
    send(bootstrap, topic, ({"value": str(n)} for n in range(5)))
    first = member("automatic", topic, enable_auto_commit=True)
    poll(first, 5)
    first.close()  # commits
    send(bootstrap, topic, [{"value": "new"}])
    second = member("automatic", topic)
    assert [message.value() for message in poll(second, 1)] == [b"new"]


@pytest.mark.row("G2")
def test_a_static_member_comes_back_to_its_partitions(
    member: Callable[..., Consumer], make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    options = {"partition_assignment_strategy": "range", "session_timeout_ms": 60_000}
    first = member("static", topic, group_instance_id="a", **options)
    second = member("static", topic, group_instance_id="b", **options)
    wait_until(lambda: even([first, second], 2), "two members share")
    (kept, lent) = shares([first, second])
    second.close()  # a static member does not leave the group by that
    again = member("static", topic, group_instance_id="b", **options)
    wait_until(lambda: shares([first, again]) == [kept, lent], "the same instance has the same share")


@pytest.mark.row("G2")
def test_new_partitions_rebalance(
    admin: AdminClient, member: Callable[..., Consumer], make_topic: MakeTopic
) -> None:
    from confluent_kafka.admin import NewPartitions

    topic = make_topic(1)
    only = member("growing", topic, topic_metadata_refresh_interval_ms=300)
    wait_until(lambda: shares([only]) == [[0]], "the only partition is assigned")
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    wait_until(lambda: shares([only]) == [[0, 1, 2]], "the new partitions are assigned")


@pytest.mark.row("G3")
def test_groups_as_the_admin_sees_them(
    bootstrap: str, admin: AdminClient, member: Callable[..., Consumer], make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    send(bootstrap, topic, [{"value": "x", "partition": 0}])
    reader = member("looked-at", topic, client_id="looker")
    wait_until(lambda: shares([reader]) == [[0, 1]], "assigned")
    reader.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)

    described = admin.describe_consumer_groups(["looked-at"])["looked-at"].result()
    assert described.state.name == "STABLE"
    (only,) = described.members
    assert only.client_id == "looker"
    assert len(only.assignment.topic_partitions) == 2
    assert "looked-at" in {each.group_id for each in admin.list_consumer_groups().result().valid}

    asked = [ConsumerGroupTopicPartitions("looked-at")]
    offsets = admin.list_consumer_group_offsets(asked)["looked-at"].result().topic_partitions
    assert [(each.partition, each.offset) for each in offsets] == [(0, 1)]

    reader.close()
    moved = [ConsumerGroupTopicPartitions("looked-at", [TopicPartition(topic, 1, 5)])]
    wait_until(lambda: state(admin, "looked-at") == "EMPTY", "the group is empty")
    admin.alter_consumer_group_offsets(moved)["looked-at"].result()
    offsets = admin.list_consumer_group_offsets(asked)["looked-at"].result().topic_partitions
    assert sorted((each.partition, each.offset) for each in offsets) == [(0, 1), (1, 5)]
    admin.delete_consumer_groups(["looked-at"])["looked-at"].result()
    wait_until(lambda: state(admin, "looked-at") == "DEAD", "the group is gone")


def state(admin: AdminClient, group: str) -> str:
    return str(admin.describe_consumer_groups([group])[group].result().state.name)


@pytest.mark.row("G3", "Q7")
def test_offsets_survive_the_death_of_their_coordinator(
    shared_cluster: LocalCluster,
    bootstrap: str,
    member: Callable[..., Consumer],
    make_topic: MakeTopic,
    wire: Wire,
) -> None:
    topic = make_topic(1)
    send(bootstrap, topic, ({"value": str(n)} for n in range(10)))
    reader = member("bereft", topic)
    poll(reader, 5)
    reader.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    coordinator = find_coordinator(wire, shared_cluster, "bereft")
    shared_cluster.kill(coordinator)
    try:
        place = [TopicPartition(topic, 0)]
        assert reader.committed(place, timeout=PATIENCE_S)[0].offset == 5
        wait_until(
            lambda: find_coordinator(wire, shared_cluster, "bereft") != coordinator, "every node knows of it"
        )
        wait_until(lambda: commits(reader, topic, 6), "a commit with the new coordinator")
    finally:
        shared_cluster.start_node(coordinator)
    assert reader.committed(place, timeout=PATIENCE_S)[0].offset == 6


def commits(reader: Consumer, topic: str, offset: int) -> bool:
    try:
        reader.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    except KafkaException:
        return False
    return True


def find_coordinator(wire: Wire, cluster: LocalCluster, group: str) -> int:
    """As any running node knows it."""
    port = next(node.client_port for node in cluster.nodes.values() if node.process() is not None)

    def ask() -> int:
        answer = wire.ask(port, ApiKey.FIND_COORDINATOR, 2, key=group, key_type=0)
        return 0 if answer.error_code else answer.node_id

    return wait_until(ask, "the coordinator is known")
