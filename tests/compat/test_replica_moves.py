"""Replicas move between brokers and between a broker's log directories: by requests, and by the tools of
Apache Kafka."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.cli.resource_configs import change, overrides_of
from kraft.config.node_config import Config
from kraft.config.properties import parse_properties
from kraft.local.local_cluster import LocalCluster
from kraft.storage.formatter import format_storage
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.clients.load import Load
from tests.support.clients.rdkafka import read, send
from tests.support.clients.wire_client import Wire
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.nodes.cluster import NO_SWEEP, ended_at_once
from tests.support.waiting import wait_until

NODES = (1, 2, 3)
DIRS = ("data", "second")
MOVES_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture(scope="module")
def two_dirs(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    """Three nodes with two log directories each."""
    settings = {**NO_SWEEP, "log.segment.delete.delay.ms": "200"}
    cluster = LocalCluster.create(tmp_path_factory.mktemp("dirs"), ports=free_ports(9), settings=settings)
    for node in NODES:
        home = cluster.home(node)
        cluster.configure(node, {"log.dirs": ",".join(str(home / name) for name in DIRS)})
        properties = parse_properties((home / "server.properties").read_text())
        config, rng = Config.from_properties(properties), random.SystemRandom()
        format_storage(OsDisk(), config, cluster.cluster_id, rng, ignore_formatted=True)
    with ended_at_once(cluster):
        cluster.start()
        yield cluster


@pytest.fixture
def admin(two_dirs: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": two_dirs.bootstrap, "log_level": 0})


@pytest.fixture
def topic(admin: AdminClient, request: pytest.FixtureRequest) -> str:
    """One partition on brokers 1 and 2."""
    name = str(request.node.originalname).removeprefix("test_")[:60]
    admin.create_topics([NewTopic(name, 1, replica_assignment=[[1, 2]])])[name].result()
    return name


class Dirs:
    """Where a topic's partition 0 lies on a node."""

    def __init__(self, cluster: LocalCluster, wire: Wire, topic: str) -> None:
        self.cluster, self.wire, self.topic = cluster, wire, topic

    def move(self, node: int, name: str) -> ErrorCode:
        topics = [{"name": self.topic, "partitions": [0]}]
        dirs = [{"path": str(self.cluster.home(node) / name), "topics": topics}]
        port = self.cluster.node(node).client_port
        answer = self.wire.ask(port, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs)
        return ErrorCode(answer.results[0].partitions[0].error_code)

    def described(self, node: int) -> dict[str, bool]:
        """By directory whether it is a copy on its way."""
        answer = self.wire.ask(self.cluster.node(node).client_port, ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
        return {
            Path(directory.log_dir).name: partition.is_future_key
            for directory in answer.results
            for each in directory.topics
            for partition in each.partitions
            if each.name == self.topic
        }

    def at(self, node: int) -> str:
        return next(name for name, is_future in self.described(node).items() if not is_future)

    def files(self, node: int) -> list[str]:
        home = self.cluster.home(node)
        return sorted(str(p.relative_to(home)) for p in home.glob(f"*/{self.topic}-0*"))


def other(name: str) -> str:
    return DIRS[1 - DIRS.index(name)]


@pytest.fixture
def dirs(two_dirs: LocalCluster, topic: str) -> Iterator[Dirs]:
    with Wire() as wire:
        yield Dirs(two_dirs, wire, topic)


@pytest.mark.row("L8")
def test_leader_and_follower_change_their_disks_under_load(two_dirs: LocalCluster, dirs: Dirs) -> None:
    with Load(two_dirs.bootstrap, dirs.topic, 1) as load:
        for node in (1, 2):
            target = other(dirs.at(node))
            assert dirs.move(node, target) is ErrorCode.NONE
            wait_until(lambda n=node, to=target: dirs.described(n) == {to: False}, "it has moved")  # type: ignore[misc]
            load.wait_for_acks()
            wait_until(
                lambda n=node, to=target: dirs.files(n) == [f"{to}/{dirs.topic}-0"],  # type: ignore[misc]
                "the old directory is deleted",
            )
    assert not load.failed
    load.check(two_dirs.bootstrap)
    assert dirs.move(1, "no-such-dir") is ErrorCode.LOG_DIR_NOT_FOUND
    assert dirs.move(3, "data") is ErrorCode.REPLICA_NOT_AVAILABLE


@pytest.mark.row("L8", "R12")
def test_a_killed_node_keeps_moving(two_dirs: LocalCluster, dirs: Dirs) -> None:
    sent = [{"value": b"%d" % n + b"x" * 50_000} for n in range(60)]
    send(two_dirs.bootstrap, dirs.topic, sent)
    configure(two_dirs, {MOVES_RATE: "10000"})
    here = dirs.at(1)
    assert dirs.move(1, other(here)) is ErrorCode.NONE
    assert dirs.described(1) == {here: False, other(here): True}, "3 MB at 10 KB/s"
    two_dirs.kill(1)
    with pytest.raises(ConnectionError):
        dirs.described(1)  # its old connection ends
    two_dirs.start_node(1)
    wait_until(lambda: dirs.described(1) == {here: False, other(here): True}, "it begins again")
    configure(two_dirs, {})
    wait_until(lambda: dirs.described(1) == {other(here): False}, "the limit is lifted, it has moved")
    assert [m.value() for m in read(two_dirs.bootstrap, dirs.topic, 60)] == [each["value"] for each in sent]


def configure(cluster: LocalCluster, rate: dict[str, str]) -> None:
    """Set node 1's limit, or take it away; until it knows. (A client of old has lost its connection.)"""
    change(cluster.bootstrap, "broker", "1", rate, [] if rate else [MOVES_RATE])
    wait_until(
        lambda: (MOVES_RATE in overrides_of(cluster.bootstrap, "broker", "1")) == bool(rate), "the node knows"
    )


# --- by the tools of Apache Kafka


@pytest.fixture(scope="module")
def tools(kafka_jars: Path, two_dirs: LocalCluster) -> KafkaTools:
    return KafkaTools(kafka_jars, two_dirs.bootstrap)


REASSIGN = "reassign.ReassignPartitionsCommand"


@pytest.mark.kafka
@pytest.mark.row("Q11", "R12", "U2")
def test_generate_execute_verify_with_throttle(
    tools: KafkaTools, two_dirs: LocalCluster, topic: str, admin: AdminClient, tmp_path: Path
) -> None:
    send(two_dirs.bootstrap, topic, [{"value": b"%d" % n} for n in range(50)])
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    printed = tools(REASSIGN, "--generate", "--topics-to-move-json-file", str(wanted), "--broker-list", "2,3")
    current, proposed = (json.loads(line) for line in printed.splitlines() if line.startswith("{"))
    assert current["partitions"][0]["replicas"] == [1, 2]
    assert sorted(proposed["partitions"][0]["replicas"]) == [2, 3]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(proposed))
    file = ("--reassignment-json-file", str(plan))
    printed = tools(REASSIGN, "--execute", *file, "--throttle", "10000000")
    assert "The inter-broker throttle limit was set to 10000000 B/s" in printed
    assert f"Successfully started partition reassignment for {topic}-0" in printed
    done = f"Reassignment of partition {topic}-0 is completed."
    wait_until(lambda: done in tools(REASSIGN, "--verify", *file), "the tool says so")
    assert "No partition reassignments found." in tools(REASSIGN, "--list")
    wait_until(lambda: not overrides_of(two_dirs.bootstrap, "topic", topic), "its throttle is gone")
    assert [m.value() for m in read(two_dirs.bootstrap, topic, 50)] == [b"%d" % n for n in range(50)]


@pytest.mark.kafka
@pytest.mark.row("Q11", "R12", "U2")
def test_list_and_cancel(
    tools: KafkaTools, two_dirs: LocalCluster, topic: str, admin: AdminClient, tmp_path: Path
) -> None:
    send(two_dirs.bootstrap, topic, [{"value": b"x" * 100_000} for _ in range(30)])
    plan = tmp_path / "plan.json"
    moved = {"topic": topic, "partition": 0, "replicas": [3, 1], "log_dirs": ["any", "any"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    file = ("--reassignment-json-file", str(plan))
    tools(REASSIGN, "--execute", *file, "--throttle", "1000")
    listed = tools(REASSIGN, "--list")
    assert f"{topic}-0: replicas: 3,1,2. adding: 3. removing: 2." in listed
    assert f"Reassignment of partition {topic}-0 is still in progress." in tools(REASSIGN, "--verify", *file)
    printed = tools(REASSIGN, "--cancel", *file)
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in printed
    assert "No partition reassignments found." in tools(REASSIGN, "--list")
    wait_until(lambda: not overrides_of(two_dirs.bootstrap, "topic", topic), "its throttle is gone")


@pytest.mark.kafka
@pytest.mark.row("L8", "U2")
def test_log_dirs_are_chosen_and_described(
    tools: KafkaTools, two_dirs: LocalCluster, dirs: Dirs, tmp_path: Path
) -> None:
    """One replica changes its disk, another is born on the one that was chosen."""
    topic, target = dirs.topic, other(dirs.at(1))
    send(two_dirs.bootstrap, topic, [{"value": b"%d" % n} for n in range(50)])
    plan = tmp_path / "plan.json"
    places = [str(two_dirs.home(1) / target), str(two_dirs.home(3) / "second")]
    moved = {"topic": topic, "partition": 0, "replicas": [1, 3], "log_dirs": places}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    file = ("--reassignment-json-file", str(plan))
    tools(REASSIGN, "--execute", *file, "--replica-alter-log-dirs-throttle", "10000000")
    moves = [f"Reassignment of replica {topic}-0-{broker} completed successfully." for broker in (1, 3)]
    wait_until(lambda: all(move in tools(REASSIGN, "--verify", *file) for move in moves), "the tool says so")
    described = json.loads(tools("LogDirsCommand", "--describe", "--topic-list", topic).splitlines()[-1])
    found = {
        (broker["broker"], Path(each["logDir"]).name): [p["isFuture"] for p in each["partitions"]]
        for broker in described["brokers"]
        for each in broker["logDirs"]
        if each["partitions"]
    }
    assert found == {(1, target): [False], (3, "second"): [False]}
