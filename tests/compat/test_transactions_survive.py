"""Transactions while coordinator, leader and client die: nothing lost, nothing twice, nothing left open."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.broker.failover_metadata import AFTER_FENCE_S
from kraft.local.local_cluster import LocalCluster
from kraft.wire.api_keys import ApiKey
from tests.support.clients.rdkafka import QUIET, send
from tests.support.clients.transactions import committed, transactional, write
from tests.support.clients.wire_client import Wire
from tests.support.nodes.cluster import running_cluster
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.heavy

GROUP, TRANSACTION = 0, 1
INPUTS = 400


@pytest.fixture(scope="module")
def topics(shared_cluster: LocalCluster) -> Callable[..., None]:
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap, **QUIET})

    def make(*names: str) -> None:
        for made in admin.create_topics([NewTopic(name, 2, 3) for name in names]).values():
            made.result()

    return make


def alive(cluster: LocalCluster) -> int:
    return next(node.client_port for node in cluster.nodes.values() if node.process() is not None)


def coordinator(wire: Wire, cluster: LocalCluster, name: str, key_type: int = TRANSACTION) -> int:
    def ask() -> int:
        answer = wire.ask(alive(cluster), ApiKey.FIND_COORDINATOR, 2, key=name, key_type=key_type)
        return 0 if answer.error_code else answer.node_id

    return wait_until(ask, "the coordinator is known")


def leader(wire: Wire, cluster: LocalCluster, topic: str) -> int:
    def ask() -> int:
        (found,) = wire.ask(alive(cluster), ApiKey.METADATA, 12, topics=[{"name": topic}]).topics
        return max(found.partitions[0].leader_id, 0)

    return wait_until(ask, "the leader is known")


def state(wire: Wire, cluster: LocalCluster, name: str) -> str:
    port = cluster.node(coordinator(wire, cluster, name)).client_port
    (found,) = wire.ask(port, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name]).transaction_states
    return str(found.transaction_state)


@contextmanager
def dead(cluster: LocalCluster, node: int) -> Iterator[None]:
    cluster.kill(node)
    try:
        yield
    finally:
        cluster.start_node(node)


@contextmanager
def copier(cluster: LocalCluster, name: str) -> Iterator[None]:
    """The application, killed at the end."""
    command = [
        sys.executable,
        "-m",
        "tests.support.clients.copier",
        cluster.bootstrap,
        f"{name}-in",
        f"{name}-out",
        name,
    ]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            yield
            assert process.poll() is None, "it has given up"
        finally:
            process.kill()


@pytest.mark.row("P4", "G4")
def test_every_input_is_in_exactly_one_output(
    cluster: LocalCluster, topics: Callable[..., None], wire: Wire
) -> None:
    source, sink = "copy-in", "copy-out"
    topics(source, sink)
    inputs = [str(number) for number in range(INPUTS)]

    def copied(at_least: int) -> bool:
        return len(committed(cluster.bootstrap, sink, 2)) >= at_least

    def feed(part: int) -> None:
        send(cluster.bootstrap, source, ({"value": each} for each in inputs[part * 100 : part * 100 + 100]))

    with copier(cluster, "copy"):
        feed(0)
        wait_until(lambda: copied(10), "it copies")
        with dead(cluster, coordinator(wire, cluster, "copy")):
            feed(1)
            wait_until(lambda: copied(110), "it copies with another coordinator")
        with dead(cluster, leader(wire, cluster, sink)):
            feed(2)
            wait_until(lambda: copied(210), "it copies with another leader")
    with copier(cluster, "copy"):
        feed(3)
        wait_until(lambda: copied(INPUTS), "its successor copies the rest")
    found = Counter(committed(cluster.bootstrap, sink, 2))
    assert found == Counter(inputs)


@pytest.mark.row("P4", "G4")
def test_a_producer_finds_another_group_coordinator_though_its_metadata_is_fresh(
    tmp_path: Path, free_ports: Callable[[int], list[int]], wire: Wire
) -> None:
    topic = name = "moved"
    # A slow machine must be done while the dead broker is still listed, which is this long.
    settings = {"broker.session.timeout.ms": "120000"}
    with running_cluster(tmp_path, free_ports(9), settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        admin.create_topics([NewTopic(topic, 1, 3)])[topic].result()
        producer = transactional(cluster.bootstrap, name)
        reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": name, **QUIET})

        def copy(offset: int) -> None:
            producer.begin_transaction()
            position = [TopicPartition(topic, 0, offset)]
            producer.send_offsets_to_transaction(position, reader.consumer_group_metadata(), PATIENCE_S)
            producer.commit_transaction(PATIENCE_S)

        def refreshed() -> bool:
            try:
                return bool(producer.list_topics(timeout=2))
            except KafkaException:  # the request went to the dead one
                return False

        copy(1)
        cluster.kill(coordinator(wire, cluster, name, GROUP))
        wait_until(refreshed, "metadata of another broker")
        beyond = time.monotonic() + 4 * AFTER_FENCE_S
        wait_until(lambda: refreshed() and time.monotonic() > beyond, "metadata from after its fence")
        copy(2)
        (place,) = reader.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
        assert place.offset == 2
        reader.close()


@pytest.mark.row("P4")
def test_a_coordinator_that_dies_between_decision_and_markers(cluster: LocalCluster, wire: Wire) -> None:
    topic, name = "decided", "decides"
    other = next(node_id for node_id in cluster.nodes if node_id != coordinator(wire, cluster, name))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[[other]])])[topic].result()
    producer = transactional(cluster.bootstrap, name)
    producer.begin_transaction()
    write(producer, topic, ["a"])
    with dead(cluster, other):  # the only replica: no marker can be written
        wait_until(lambda: coordinator(wire, cluster, name) != other, "a coordinator")
        producer.commit_transaction(PATIENCE_S)
        assert state(wire, cluster, name) == "PrepareCommit"
        with dead(cluster, coordinator(wire, cluster, name)):
            pass
    wait_until(lambda: committed(cluster.bootstrap, topic) == ["a"], "the marker")
    wait_until(lambda: state(wire, cluster, name) == "CompleteCommit", "the end")


@pytest.mark.row("P4")
def test_a_client_that_dies_leaves_nothing_open(
    cluster: LocalCluster, topics: Callable[..., None], wire: Wire
) -> None:
    topic = "abandoned"
    topics(topic)
    producer = transactional(cluster.bootstrap, topic, transaction_timeout_ms=1_000)
    producer.begin_transaction()
    write(producer, topic, ["never"])
    send(cluster.bootstrap, topic, [{"value": "behind it", "partition": 0}])
    seen = committed(cluster.bootstrap, topic, 2)
    assert seen == [] or state(wire, cluster, topic) != "Ongoing"  # a slow machine comes when it is over
    wait_until(lambda: committed(cluster.bootstrap, topic, 2) == ["behind it"], "the timeout")
    wait_until(lambda: state(wire, cluster, topic) == "CompleteAbort", "the end")
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)
