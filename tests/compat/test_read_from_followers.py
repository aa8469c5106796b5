"""Consumers that say where they stand read from a replica there (KIP-392)."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kraft.config.replication_keys import RACK_AWARE
from kraft.local.local_cluster import LocalCluster
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.clients.rdkafka import QUIET, poll, send
from tests.support.clients.wire_client import Wire
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.nodes.cluster import NO_SWEEP, ended_at_once
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.row("R11")

RACKS = {1: "near", 2: "far", 3: "further"}
LONG_WAIT_MS = 20_000
"""A follower's fetch waits for so long: had it to come again to hear of a high watermark, it would show."""


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    """Three nodes, each in a rack of its own."""
    settings = NO_SWEEP | {
        "replica.selector.class": RACK_AWARE, "replica.fetch.wait.max.ms": str(LONG_WAIT_MS),
    }  # fmt: skip
    made = LocalCluster.create(
        tmp_path_factory.mktemp("racks"), nodes=3, ports=free_ports(9), settings=settings
    )
    for node_id, rack in RACKS.items():
        made.configure(node_id, {"broker.rack": rack})
    with ended_at_once(made) as running:
        running.start()
        yield running


@pytest.fixture(scope="module")
def topic(cluster: LocalCluster) -> str:
    """Led by node 1, with a replica on node 2, none on node 3; ten records."""
    name = "racked"
    with Wire() as wire:
        port = cluster.node(1).client_port
        assignments = [{"partition_index": 0, "broker_ids": [1, 2]}]
        new = {"name": name, "num_partitions": -1, "replication_factor": -1, "configs": []}
        (made,) = wire.ask(
            port, ApiKey.CREATE_TOPICS, 7, topics=[{**new, "assignments": assignments}], timeout_ms=30_000
        ).topics
        assert made.error_code == 0
        for node in cluster.nodes.values():
            wait_until(lambda at=node.client_port: is_led(wire, at, name), "every node knows the leader")
    send(cluster.bootstrap, name, ({"value": f"v{n}"} for n in range(10)), acks=-1)
    return name


def is_led(wire: Wire, port: int, name: str) -> bool:
    (found,) = wire.ask(
        port, ApiKey.METADATA, 12, topics=[{"name": name}], allow_auto_topic_creation=False
    ).topics
    return not found.error_code and found.partitions[0].leader_id == 1


def fetch(
    wire: Wire, port: int, topic: str, offset: int, rack: str, version: int = 12, max_wait_ms: int = 0
) -> Message:
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1_000_000}
    fields: dict[str, Any] = {"rack_id": rack} if version >= 11 else {}
    answer = wire.ask(
        port, ApiKey.FETCH, version,
        **{"replica_id": -1, "max_wait_ms": max_wait_ms, "min_bytes": 1, "max_bytes": 1_000_000,
           "session_id": 0, "session_epoch": -1, "topics": [{"topic": topic, "partitions": [wanted]}]},
        **fields,
    )  # fmt: skip
    found: Message = answer.responses[0].partitions[0]
    return found


def test_the_leader_names_the_replica_in_the_rack(wire: Wire, cluster: LocalCluster, topic: str) -> None:
    leader = cluster.node(1).client_port
    wait_until(
        lambda: fetch(wire, leader, topic, 0, "far").preferred_read_replica == 2,
        "the leader knows that its follower has the offset",
    )
    sent_away = fetch(wire, leader, topic, 0, "far")
    assert (sent_away.error_code, sent_away.records or b"", sent_away.high_watermark) == (0, b"", 10)
    for rack in ("near", "further", "nowhere", ""):
        stays = fetch(wire, leader, topic, 0, rack)
        assert stays.preferred_read_replica == -1
        assert len(stays.records) > 0
    # A consumer that is ahead of the follower stays too: it would be sent back.
    assert fetch(wire, leader, topic, 11, "far").error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_serves_what_is_committed(wire: Wire, cluster: LocalCluster, topic: str) -> None:
    follower = cluster.node(2).client_port
    wait_until(lambda: fetch(wire, follower, topic, 0, "far").high_watermark == 10, "it has all")
    found = fetch(wire, follower, topic, 0, "far")
    assert (found.error_code, found.preferred_read_replica) == (0, -1)
    assert len(found.records) > 0
    at_the_end = fetch(wire, follower, topic, 10, "far")
    assert (at_the_end.error_code, at_the_end.records or b"") == (0, b"")
    assert fetch(wire, follower, topic, 11, "far").error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    old = fetch(wire, follower, topic, 0, "", version=10)
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(wire, cluster.node(3).client_port, topic, 0, "further").error_code == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


def test_a_parked_consumer_of_a_follower_is_answered_at_once(
    wire: Wire, cluster: LocalCluster, topic: str
) -> None:
    """The leader tells its follower of the new high watermark without being asked again."""
    follower = cluster.node(2).client_port
    end = fetch(wire, follower, topic, 0, "far").high_watermark
    begun = time.monotonic()
    send(cluster.bootstrap, topic, [{"value": "one more"}], acks=-1)
    found = fetch(wire, follower, topic, end, "far", max_wait_ms=2 * LONG_WAIT_MS)
    assert len(found.records) > 0
    assert time.monotonic() - begun < 0.9 * LONG_WAIT_MS / 1000


def test_librdkafka_follows(cluster: LocalCluster, topic: str) -> None:
    """It moves to the replica in its rack, and reads the rest there."""
    seen: list[tuple[int, int]] = []

    def on_statistics(text: str) -> None:
        partition = json.loads(text)["topics"].get(topic, {}).get("partitions", {}).get("0")
        if partition is not None:
            seen.append((partition["broker"], partition["leader"]))

    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap, "group.id": "racked", "enable.auto.commit": False,
            "client.rack": "far", "statistics.interval.ms": 100, "stats_cb": on_statistics, **QUIET,
        }
    )  # fmt: skip
    with contextlib.closing(reader):
        reader.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in poll(reader, 10)] == [b"v%d" % n for n in range(10)]
        deadline = time.monotonic() + PATIENCE_S
        while (2, 1) not in seen:
            assert time.monotonic() < deadline, seen[-3:]
            reader.poll(0.1)
        send(cluster.bootstrap, topic, [{"value": "later"}], acks=-1)
        values = {message.value() for message in poll(reader, 1)}
        while b"later" not in values:
            values |= {message.value() for message in poll(reader, 1)}
    assert seen[-1] == (2, 1)


@pytest.mark.kafka
def test_the_java_client_follows(kafka_jars: Path, cluster: LocalCluster, topic: str) -> None:
    read = KafkaTools(kafka_jars, cluster.bootstrap)(
        "consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", "10",
        "--consumer-property", "client.rack=far",
    )  # fmt: skip
    assert read.splitlines() == [f"v{n}" for n in range(10)]
