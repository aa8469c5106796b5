"""Snapshots bound the metadata log: brokers, our command and Apache Kafka's shell begin with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.free_ports import HOST
from kraft.wire.api_keys import ApiKey
from tests.support.clients.rdkafka import read, send
from tests.support.clients.wire_client import Wire
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.nodes.forks import run_kraft
from tests.support.nodes.role_nodes import BROKER, CONTROLLER, RoleNodes, role_nodes
from tests.support.waiting import wait_until

SMALL = {"metadata.log.max.record.bytes.between.snapshots": "3000"}


@pytest.fixture(scope="module")
def nodes(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[RoleNodes]:
    """A controller that takes snapshots often, and two brokers of which one misses most of it."""
    roles = {1: CONTROLLER, 11: BROKER, 12: BROKER}
    with role_nodes(tmp_path_factory.mktemp("snapshots"), free_ports(6), roles, SMALL) as nodes:
        nodes.kill(12)
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
        wait_until(lambda: set(admin.list_topics(timeout=60).brokers) == {11}, "broker 12 is fenced")
        for number in range(100):
            name = f"snapshot-{number}"
            admin.create_topics([NewTopic(name, 1, 1, config={"retention.ms": str(number)})])[name].result()
        wait_until(lambda: checkpoints(nodes), "a snapshot is written")
        yield nodes


def checkpoints(nodes: RoleNodes) -> list[Path]:
    return sorted((nodes.directory / "node-1" / "data" / "__cluster_metadata-0").glob("*.checkpoint"))


@pytest.mark.row("Q3")
def test_a_broker_that_missed_it_all_begins_with_the_snapshot(nodes: RoleNodes) -> None:
    nodes.start(12)
    nodes.wait_ready()
    with Wire() as wire:
        topics = wire.ask(nodes.ports[12], ApiKey.METADATA, 12, topics=None).topics
    assert {topic.name for topic in topics} >= {f"snapshot-{number}" for number in range(100)}
    send(nodes.bootstrap, "snapshot-0", [{"value": "v"}])
    assert [message.value() for message in read(nodes.bootstrap, "snapshot-0", 1)] == [b"v"]


@pytest.mark.row("Q3")
def test_fetch_snapshot_in_pieces(nodes: RoleNodes) -> None:
    newest = checkpoints(nodes)[-1]
    content = newest.read_bytes()
    end_offset, epoch = map(int, newest.stem.split("-"))
    pieces = b""
    with Wire() as wire:
        while len(pieces) < len(content):
            partition = {
                "partition": 0, "snapshot_id": {"end_offset": end_offset, "epoch": epoch},
                "position": len(pieces), "current_leader_epoch": -1,
            }  # fmt: skip
            topics = [{"name": "__cluster_metadata", "partitions": [partition]}]
            answer = wire.ask(nodes.quorum_ports[1], ApiKey.FETCH_SNAPSHOT, 1, topics=topics, max_bytes=1_000)
            found = answer.topics[0].partitions[0]
            assert (found.error_code, found.size) == (0, len(content))
            assert 0 < len(found.unaligned_records) <= 1_000
            pieces += bytes(found.unaligned_records)
    assert pieces == content


@pytest.mark.row("Q3")
def test_metadata_dump_shows_snapshot_and_log(nodes: RoleNodes) -> None:
    done = run_kraft("metadata", "dump", "-b", f"{HOST}:{nodes.ports[11]}")
    assert (done.returncode, done.stderr) == (0, "")
    for number in range(100):
        assert f'TopicRecord {{"name": "snapshot-{number}"' in done.stdout


@pytest.mark.row("Q3")
def test_a_restarted_controller_continues_from_its_snapshot(nodes: RoleNodes) -> None:
    nodes.kill(1)
    nodes.start(1)
    nodes.wait_ready()
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    wait_until(lambda: len(admin.list_topics(timeout=60).topics) >= 100, "all topics are there")
    admin.create_topics([NewTopic("after-the-restart", 1, 1)])["after-the-restart"].result()


@pytest.mark.kafka
@pytest.mark.row("Q3")
def test_kafkas_shell_reads_the_snapshot(nodes: RoleNodes, kafka_jars: Path, tmp_path: Path) -> None:
    tools = KafkaTools(kafka_jars)
    served = checkpoints(nodes)[-1]
    newest = tmp_path / served.name  # a copy: in its own place it respects our lock
    newest.write_bytes(served.read_bytes())
    dumped = tools.plain("kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(newest))
    assert "isvalid: false" not in dumped
    shell = "org.apache.kafka.shell.MetadataShell"

    def topics() -> list[str]:
        return tools.plain(shell, "--snapshot", str(newest), "ls", "/image/topics/byName").split()

    # Without a terminal the shell's `ls` now and then ends before it has printed anything.
    listed = wait_until(topics, "Kafka's shell to list the topics")
    assert "snapshot-0" in listed
