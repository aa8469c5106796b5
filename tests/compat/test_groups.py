"""Consumer groups of librdkafka against real processes: assignments, commits, a coordinator's death."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.local_cluster import LocalCluster
from tests.support.waiting import PATIENCE_S, wait_until

Partition = tuple[str, int]


def create_topic(bootstrap: str, name: str, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 3)])[name].result(PATIENCE_S)


def produce(bootstrap: str, topic: str, each: int, partitions: int = 3) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for n in range(each):
        for partition in range(partitions):
            producer.produce(topic, f"{partition}-{n}".encode(), partition=partition)
    assert producer.flush(PATIENCE_S) == 0


@contextmanager
def consumer(bootstrap: str, group: str, *topics: str, **settings: Any) -> Iterator[Consumer]:
    """`static`: an instance id; other settings as keywords with underscores for dots."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 45_000,
        "heartbeat.interval.ms": 300,
        "topic.metadata.refresh.interval.ms": 500,
    }
    config.update({name.replace("_", "."): value for name, value in settings.items()})
    member = Consumer(config)
    member.subscribe(list(topics))
    try:
        yield member
    finally:
        member.close()


def owned(members: list[Consumer]) -> list[list[Partition]]:
    """What each has been assigned, after giving every one of them a turn."""
    for member in members:
        member.poll(0.02)
    return [sorted((p.topic, p.partition) for p in member.assignment()) for member in members]


def settled(members: list[Consumer], partitions: list[Partition], sizes: list[int]) -> list[list[Partition]]:
    """Wait until every partition has one owner, and the shares have these sizes (in any order)."""

    def shares() -> list[list[Partition]]:
        found = owned(members)
        everything = sorted(p for share in found for p in share)
        fits = everything == sorted(partitions) and sorted(map(len, found)) == sorted(sizes)
        return found if fits else []

    return wait_until(shares, f"{len(members)} consumers with shares of {sizes}")


def all_of(topic: str, partitions: int = 3) -> list[Partition]:
    return [(topic, partition) for partition in range(partitions)]


def read(member: Consumer, count: int) -> list[tuple[int, int]]:
    """Partition and offset of the next `count` records."""
    found: list[tuple[int, int]] = []

    def enough() -> bool:
        message = member.poll(0.1)
        if message is not None and message.error() is None:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            found.append((partition, offset))
        return len(found) == count

    wait_until(enough, f"{count} records")
    return found


def committed(member: Consumer, topic: str, partitions: int = 3) -> list[int]:
    asked = [TopicPartition(topic, number) for number in range(partitions)]
    return [p.offset for p in member.committed(asked, timeout=PATIENCE_S)]


@pytest.mark.row("G1", "G2")
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_three_partitions_and_two_three_four_consumers(bootstrap: str, strategy: str) -> None:
    topic = f"shared-{strategy}"
    create_topic(bootstrap, topic)
    with ExitStack() as stack:
        members: list[Consumer] = []
        for sizes in ([3], [2, 1], [1, 1, 1], [1, 1, 1, 0]):
            member = consumer(bootstrap, f"g-{strategy}", topic, partition_assignment_strategy=strategy)
            members.append(stack.enter_context(member))
            settled(members, all_of(topic), sizes)
        for sizes in ([1, 1, 1], [2, 1]):
            members.pop().close()
            settled(members, all_of(topic), sizes)


@pytest.mark.row("G2")
def test_new_partitions_and_a_new_topic_by_pattern_rebalance(bootstrap: str) -> None:
    create_topic(bootstrap, "grows-a", 1)
    with (
        consumer(bootstrap, "g-grows", "^grows-.*") as one,
        consumer(bootstrap, "g-grows", "^grows-.*") as two,
    ):
        settled([one, two], [("grows-a", 0)], [1, 0])
        create_topic(bootstrap, "grows-b", 2)
        settled([one, two], [("grows-a", 0), ("grows-b", 0), ("grows-b", 1)], [1, 2])


@pytest.mark.row("G2")
def test_a_static_member_that_restarts_gets_its_own_back(bootstrap: str) -> None:
    create_topic(bootstrap, "static")
    with consumer(bootstrap, "g-static", "static", group_instance_id="one") as one:
        two = consumer(bootstrap, "g-static", "static", group_instance_id="two")
        with two as member:
            before = settled([one, member], all_of("static"), [2, 1])
        # a static member does not leave as it closes; its partitions wait for it
        with consumer(bootstrap, "g-static", "static", group_instance_id="two") as member:
            assert settled([one, member], all_of("static"), [2, 1]) == before


@pytest.mark.row("G4")
def test_offsets_by_record_by_partition_by_batch_automatically_and_outside(bootstrap: str) -> None:
    topic = "committed"
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, each=10)
    with consumer(bootstrap, "g-manual", topic) as member:
        read(member, 30)
        member.commit(offsets=[TopicPartition(topic, 1, 4)], asynchronous=False)  # one record's
        assert committed(member, topic)[1] == 4
        member.commit(offsets=[TopicPartition(topic, 2, 7)], asynchronous=False)  # one partition's
        assert committed(member, topic)[1:] == [4, 7]
        member.commit(asynchronous=False)  # all that was read
        assert committed(member, topic) == [10, 10, 10]
    with consumer(bootstrap, "g-auto", topic, enable_auto_commit=True, auto_commit_interval_ms=50) as member:
        read(member, 30)
        wait_until(lambda: committed(member, topic) == [10, 10, 10], "the automatic commit")
    with consumer(bootstrap, "g-outside", topic) as member:
        settled([member], all_of(topic), [3])
        member.assign([TopicPartition(topic, 0, 6)])  # the user's own book says 6
        assert read(member, 4) == [(0, 6), (0, 7), (0, 8), (0, 9)]


@pytest.mark.row("G2")
def test_a_commit_of_an_older_generation_is_refused(bootstrap: str) -> None:
    topic = "fenced"
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, each=1)
    with consumer(bootstrap, "g-fenced", topic, session_timeout_ms=6_000, max_poll_interval_ms=6_000) as slow:
        read(slow, 3)
        with consumer(bootstrap, "g-fenced", topic) as other:
            # `slow` does not poll: it is put out of the group, and its partitions go to `other`
            settled([other], all_of(topic), [3])
            with pytest.raises(KafkaException):
                slow.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
            assert committed(other, topic) == [-1001] * 3


@pytest.mark.row("G3")
def test_offsets_and_group_survive_the_death_of_their_coordinator(
    cluster: LocalCluster, bootstrap: str
) -> None:
    topic = "survives"
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, each=20)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with consumer(bootstrap, "g-survives", topic, session_timeout_ms=60_000) as member:
        read(member, 60)
        member.commit(asynchronous=False)
        dead = admin.describe_consumer_groups(["g-survives"])["g-survives"].result(60).coordinator.id
        assert dead is not None
        cluster.kill(dead)
        try:
            wait_until(lambda: _try_commit(member, topic), "a commit with the new coordinator")
            assert committed(member, topic) == [20, 20, 19]
            # A client of its own: librdkafka's admin remembers coordinators, the dead one too.
            admin = AdminClient({"bootstrap.servers": bootstrap})
            group = admin.describe_consumer_groups(["g-survives"])["g-survives"].result(PATIENCE_S)
            assert group.coordinator.id != dead
            assert len(group.members) == 1
        finally:
            cluster.start_node(dead)
    with consumer(bootstrap, "g-survives", topic) as member:
        assert read(member, 1) == [(2, 19)]


def _try_commit(member: Consumer, topic: str) -> bool:
    try:
        member.commit(offsets=[TopicPartition(topic, 2, 19)], asynchronous=False)
    except KafkaException:
        return False
    return True
