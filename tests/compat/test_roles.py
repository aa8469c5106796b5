"""Nodes that are not all alike: separate controllers and brokers, one node, five controllers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.free_ports import HOST
from kraft.peers.blocking_client import describe_quorum, live_brokers
from metadata_quorum.foundation.errors import BrokerError
from tests.support.clients.rdkafka import consumer, poll, read, send
from tests.support.nodes.forks import run_kraft
from tests.support.nodes.role_nodes import BOTH, BROKER, CONTROLLER, RoleNodes, role_nodes
from tests.support.waiting import wait_until

FreePorts = Callable[[int], list[int]]
QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def separate(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[RoleNodes]:
    """Controllers 1, 2, 3 and brokers 11, 12."""
    roles = dict.fromkeys((1, 2, 3), CONTROLLER) | dict.fromkeys((11, 12), BROKER)
    with role_nodes(tmp_path_factory.mktemp("separate"), free_ports(10), roles) as nodes:
        yield nodes


def admin_of(nodes: RoleNodes) -> AdminClient:
    return AdminClient({"bootstrap.servers": nodes.bootstrap, **QUIET})


def quorum_leader(nodes: RoleNodes, broker: int) -> int:
    """0 where nobody leads just now."""
    try:
        return int(describe_quorum(HOST, nodes.ports[broker]).topics[0].partitions[0].leader_id)
    except (OSError, BrokerError):
        return 0


@pytest.mark.row("Q1")
def test_brokers_follow_controllers_that_are_other_nodes(separate: RoleNodes) -> None:
    admin = admin_of(separate)
    admin.create_topics([NewTopic("apart", 4, 2)])["apart"].result()
    described = admin.describe_topics(TopicCollection(["apart"]))["apart"].result()
    assert all(sorted(r.id for r in each.replicas) == [11, 12] for each in described.partitions)
    messages = [{"key": str(n), "value": str(n), "partition": n % 4} for n in range(100)]
    send(separate.bootstrap, "apart", messages, acks="all", enable_idempotence=True)
    with consumer(separate.bootstrap, group_id="apart", auto_offset_reset="earliest") as reader:
        reader.subscribe(["apart"])
        assert {message.value() for message in poll(reader, 100)} == {str(n).encode() for n in range(100)}
        reader.commit(asynchronous=False)
        places = [TopicPartition("apart", number) for number in range(4)]
        assert [each.offset for each in reader.committed(places, timeout=60)] == [25] * 4


@pytest.mark.row("Q8")
def test_observers_are_distinguished_from_voters(separate: RoleNodes) -> None:
    def seen() -> bool:
        try:
            partition = describe_quorum(HOST, separate.ports[11]).topics[0].partitions[0]
        except BrokerError:
            return False
        voters = [each.replica_id for each in partition.current_voters]
        observers = [each.replica_id for each in partition.observers]
        return voters == [1, 2, 3] and observers == [11, 12]

    wait_until(seen, "three voters and two observers are described")


@pytest.mark.row("U2")
def test_a_controller_that_is_no_broker_is_configured(separate: RoleNodes) -> None:
    """So it reads its certificate again, as any other node."""
    where = ("--bootstrap-server", separate.bootstrap)
    change = "listener.name.controller.ssl.keystore.location=/etc/kraft/renewed.pem"
    done = run_kraft("config", "set", "broker", "1", change, *where)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Changed the configuration of broker 1.\n", "")
    assert "/etc/kraft/renewed.pem" in run_kraft("metadata", "dump", *where).stdout
    missing = run_kraft("config", "set", "broker", "4", change, *where)
    assert missing.returncode == 1
    assert "4: no such broker is up" in missing.stderr


@pytest.mark.row("Q1", "Q7")
def test_a_dead_controller_and_a_dead_broker(separate: RoleNodes) -> None:
    admin = admin_of(separate)
    admin.create_topics([NewTopic("bereaved", 2, 2)])["bereaved"].result()
    send(separate.bootstrap, "bereaved", [{"value": "before", "partition": n} for n in (0, 1)])
    old = wait_until(lambda: quorum_leader(separate, 11), "a controller is active")
    separate.kill(old)
    new = wait_until(
        lambda: (now := quorum_leader(separate, 11)) not in (0, old) and now, "another controller is active"
    )
    admin.create_topics([NewTopic("after-the-controller", 1, 2)])["after-the-controller"].result()
    separate.kill(12)
    wait_until(lambda: live_brokers(HOST, separate.ports[11]) == {11}, "the broker is fenced")
    send(separate.bootstrap, "bereaved", [{"value": "alone", "partition": n} for n in (0, 1)], acks="all")
    separate.start(12)
    separate.start(old)
    separate.wait_ready()

    def whole() -> bool:
        topic = admin.list_topics("bereaved", timeout=60).topics["bereaved"]
        return all(sorted(each.isrs) == [11, 12] for each in topic.partitions.values())

    wait_until(whole, "both replicas are in sync again")
    found = read(separate.bootstrap, "bereaved", 2, partition=1)
    assert [message.value() for message in found] == [b"before", b"alone"]
    assert wait_until(lambda: quorum_leader(separate, 12), "the controllers go on") in (1, 2, 3)
    assert new in separate.controllers


@pytest.mark.row("Q1", "U1")
def test_one_node_is_a_cluster(tmp_path: Path, free_ports: FreePorts) -> None:
    with role_nodes(tmp_path, free_ports(2), {5: BOTH}) as alone:
        send(
            alone.bootstrap,
            "solo",
            ({"value": str(n)} for n in range(10)),
            acks="all",
            enable_idempotence=True,
        )
        with consumer(alone.bootstrap, group_id="solo", auto_offset_reset="earliest") as reader:
            reader.subscribe(["solo"])
            assert len(poll(reader, 10)) == 10
            reader.commit(asynchronous=False)
        alone.kill(5)
        alone.start(5)
        alone.wait_ready()
        with consumer(alone.bootstrap, group_id="solo") as reader:
            assert reader.committed([TopicPartition("solo", 0)], timeout=60)[0].offset == 10
        assert len(read(alone.bootstrap, "solo", 10)) == 10
        assert alone.stop(5) == 0


@pytest.mark.row("Q1")
def test_five_controllers_go_on_without_two(tmp_path: Path, free_ports: FreePorts) -> None:
    roles = {1: BOTH, 2: BOTH, 3: BOTH, 4: CONTROLLER, 5: CONTROLLER}
    with role_nodes(tmp_path, free_ports(10), roles) as nodes:
        partition = describe_quorum(HOST, nodes.ports[1]).topics[0].partitions[0]
        assert [each.replica_id for each in partition.current_voters] == [1, 2, 3, 4, 5]
        # The active controller and one more, yet at least two brokers stay.
        leader = partition.leader_id
        other = 5 if leader != 5 else 4
        nodes.kill(leader)
        nodes.kill(other)
        broker = next(each for each in nodes.brokers if each in nodes.processes)
        wait_until(lambda: quorum_leader(nodes, broker) not in (0, leader), "another controller is active")
        nodes.wait_ready()
        admin = admin_of(nodes)
        admin.create_topics([NewTopic("three-of-five", 1, 2)])["three-of-five"].result()
        send(nodes.bootstrap, "three-of-five", [{"value": "v"}], acks="all")
