"""Real nodes that die, under load: what was acknowledged stays, and everybody comes back."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.config.node_config import Config
from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from kraft.peers.blocking_client import describe_quorum
from kraft.storage.formatter import format_storage
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.errors import BrokerError
from tests.support.clients.load import Load
from tests.support.clients.rdkafka import QUIET, send
from tests.support.nodes.cluster import running_cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.heavy

PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    """One that nobody else has filled: it loses a disk."""
    with running_cluster(tmp_path_factory.mktemp("dying"), free_ports(9)) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})


def new_topic(admin: AdminClient, name: str, **config: str) -> str:
    settings = {"min.insync.replicas": "2", **{key.replace("_", "."): v for key, v in config.items()}}
    admin.create_topics([NewTopic(name, PARTITIONS, 3, config=settings)])[name].result(60)
    wait_until(lambda: sizes_of_isrs(admin, name) == {3}, f"{name} is there")
    return name


def sizes_of_isrs(admin: AdminClient, topic: str) -> set[int]:
    try:
        partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
    except KafkaException:
        return set()
    return {len(partition.isrs) if partition.leader >= 0 else 0 for partition in partitions}


def leads(admin: AdminClient, topic: str, node: int) -> bool:
    """Whether it leads any partition, as far as whoever is asked knows."""
    try:
        found = admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
    except KafkaException:
        return True
    return node in {partition.leader for partition in found}


def active_controller(cluster: LocalCluster) -> int:
    """As a node that runs sees it. While one is elected there is none."""

    def found() -> int:
        node = next(node for node in cluster.nodes.values() if node.process() is not None)
        with contextlib.suppress(OSError, BrokerError):
            return max(0, int(describe_quorum(HOST, node.client_port).topics[0].partitions[0].leader_id))
        return 0

    return wait_until(found, "a controller is active")


@pytest.mark.long
@pytest.mark.parametrize("idempotent", [True, False])
def test_many_kills_lose_nothing(cluster: LocalCluster, admin: AdminClient, idempotent: bool) -> None:
    """Two of three nodes may be down at a time, and one dies while another comes back."""
    topic = new_topic(admin, f"many-kills-{idempotent}")
    rng = random.Random(11)
    with Load(cluster.bootstrap, topic, PARTITIONS, idempotent=idempotent) as load:
        for _ in range(20):
            load.wait_for_acks(rng.randrange(1, 200))
            victims = rng.sample(sorted(cluster.nodes), rng.choice((1, 1, 2)))
            for victim in victims:
                cluster.kill(victim)
            for victim in victims:
                cluster.start_node(victim, wait=False)
        cluster.wait_ready()
        wait_until(lambda: sizes_of_isrs(admin, topic) == {3}, "every ISR is full")
        load.wait_for_acks()
    assert not load.failed
    load.check(cluster.bootstrap)


@pytest.mark.row("R8", "Q7", "P3")
def test_nodes_killed_at_random_moments_lose_nothing(cluster: LocalCluster, admin: AdminClient) -> None:
    topic = new_topic(admin, "killed")
    rng = random.Random(7)
    victims = [1, 2, 3, active_controller(cluster)]
    rng.shuffle(victims)
    with Load(cluster.bootstrap, topic, PARTITIONS) as load:
        for victim in victims:
            load.wait_for_acks(rng.randrange(1, 400))
            cluster.kill(victim)
            load.wait_for_acks()
            wait_until(lambda dead=victim: not leads(admin, topic, dead), "others lead")  # type: ignore[misc]
            cluster.start_node(victim)
            wait_until(lambda: sizes_of_isrs(admin, topic) == {3}, "the killed node is in every ISR again")
        load.wait_for_acks()
    assert not load.failed
    load.check(cluster.bootstrap)


@pytest.mark.row("R10", "Q9", "R8")
def test_all_nodes_killed_at_once_come_back_with_everything(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    topic = new_topic(admin, "all-killed")
    with Load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.wait_for_acks(200)
        for node_id in cluster.nodes:
            cluster.kill(node_id)
        for node_id in cluster.nodes:
            cluster.start_node(node_id, wait=False)
        cluster.wait_ready()
        load.wait_for_acks()
        wait_until(lambda: sizes_of_isrs(admin, topic) == {3}, "every ISR is full again")
    assert not load.failed
    load.check(cluster.bootstrap)


@pytest.mark.row("Q6", "R8")
def test_a_rolling_restart_fails_no_write(cluster: LocalCluster, admin: AdminClient) -> None:
    topic = new_topic(admin, "rolled")
    with Load(cluster.bootstrap, topic, PARTITIONS) as load:
        for node_id in cluster.nodes:
            cluster.stop(node_id)
            load.wait_for_acks()
            cluster.start_node(node_id)
            wait_until(lambda: sizes_of_isrs(admin, topic) == {3}, "the node is in every ISR again")
        load.wait_for_acks()
    assert not load.failed
    load.check(cluster.bootstrap)


@pytest.mark.row("Q9", "R6")
def test_a_node_that_lost_its_disk_is_filled_again(cluster: LocalCluster, admin: AdminClient) -> None:
    topic = new_topic(admin, "wiped")
    victim = active_controller(cluster)
    with Load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.wait_for_acks(500)
        cluster.kill(victim)
        home = cluster.home(victim)
        shutil.rmtree(home / "data")
        config = Config.load(str(home / "server.properties"))
        format_storage(OsDisk(), config, cluster.cluster_id, random.SystemRandom())
        cluster.start_node(victim)
        wait_until(lambda: sizes_of_isrs(admin, topic) == {3}, "the empty node is in every ISR again")
        # It holds all: the records are there when the others have stood back.
        for other in cluster.nodes:
            if other != victim:
                cluster.kill(other)
                load.wait_for_acks()
                cluster.start_node(other)
                wait_until(lambda: sizes_of_isrs(admin, topic) == {3}, "all are in every ISR again")
    assert not load.failed
    load.check(cluster.bootstrap)


@pytest.mark.row("Q7", "R9")
def test_a_paused_leader_is_replaced_and_finds_its_place_when_it_wakes(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    """It is the active controller too, and wakes with produce requests that nobody may acknowledge."""
    impatient = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with running_cluster(tmp_path, free_ports(9), impatient) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        topic = new_topic(admin, "paused")
        victim = active_controller(cluster)
        others = [node.client_port for node in cluster.nodes.values() if node.id != victim]
        bootstrap = ",".join(f"{HOST}:{port}" for port in others)
        led = {p.id for p in admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
               if p.leader == victim}  # fmt: skip
        with Load(cluster.bootstrap, topic, PARTITIONS) as load:
            load.wait_for_acks()
            cluster.pause(victim)
            awake = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
            wait_until(lambda: not leads(awake, topic, victim), "the paused leader is replaced")
            for number in led:
                send(bootstrap, topic, [{"value": b"-1", "partition": number}], acks="all")
            cluster.resume(victim)
            wait_until(lambda: sizes_of_isrs(admin, topic) == {3}, "it is in every ISR again")
            load.wait_for_acks()
        assert not load.failed
        load.check(cluster.bootstrap, others={b"-1"})


@pytest.mark.row("R4", "Q1", "R3")
def test_with_too_few_replicas_no_write_is_acknowledged(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    """Five controllers go on without two; a partition with one replica left refuses acks=all."""
    with running_cluster(tmp_path, free_ports(15)) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        topic = new_topic(admin, "few")
        partition = wait_until(
            lambda: admin.list_topics(topic, timeout=60).topics[topic].partitions.get(0),
            "whoever is asked knows it",
        )
        assert partition is not None
        send(cluster.bootstrap, topic, [{"value": b"before", "partition": 0}], acks="all")
        for victim in partition.replicas[1:]:
            cluster.kill(victim)

        def isr() -> list[int]:
            """Empty where whoever is asked has just died, or does not know yet."""
            with contextlib.suppress(KafkaException, KeyError):
                return list(admin.list_topics(topic, timeout=60).topics[topic].partitions[0].isrs)
            return []

        wait_until(lambda: len(isr()) == 1, "the dead have left the ISR")
        with pytest.raises(KafkaException) as refused:
            send(
                cluster.bootstrap, topic, [{"value": b"lost", "partition": 0}],
                acks="all", message_timeout_ms=1500, retries=0,
            )  # fmt: skip
        assert refused.value.args[0].code() in (
            KafkaError.NOT_ENOUGH_REPLICAS,
            KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,  # the ISR was told before its leader knew
            KafkaError._MSG_TIMED_OUT,
        )
        send(cluster.bootstrap, topic, [{"value": b"leader only", "partition": 0}], acks="1")
        cluster.start_node(partition.replicas[1])
        wait_until(lambda: len(isr()) == 2, "one is back")
        send(cluster.bootstrap, topic, [{"value": b"after", "partition": 0}], acks="all")
