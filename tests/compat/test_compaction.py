"""A compacted topic as stock clients see it: the newest value of every key stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.local_cluster import LocalCluster
from tests.support.nodes.cluster import running_cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.row("L4")

TOPIC = "table"
KEYS = 500
ROUNDS = 12


@pytest.fixture(scope="module")
def compacting(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    settings = {"log.cleaner.backoff.ms": "100"}
    with running_cluster(tmp_path_factory.mktemp("compacting"), free_ports(9), settings) as running:
        yield running


def logs_of(cluster: LocalCluster) -> list[Path]:
    return [cluster.home(node) / "data" / f"{TOPIC}-0" for node in cluster.nodes]


def bytes_in(directory: Path) -> int:
    """Of its segments. The node runs: a segment that is renamed or deleted while we look counts nothing."""
    size = 0
    for path in directory.glob("*.log"):
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def read_table(bootstrap: str) -> tuple[dict[bytes, bytes | None], int]:
    """The newest value of each key, and how many records were read for it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    table: dict[bytes, bytes | None] = {}
    count = 0
    offset = -1
    while (message := consumer.poll(30)) is not None and not message.error():
        assert message.offset() > offset
        offset = message.offset()
        table[message.key()] = message.value()
        count += 1
    assert message is not None
    consumer.close()
    return table, count


def write_rounds(bootstrap: str, rounds: range) -> dict[bytes, bytes | None]:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    expected: dict[bytes, bytes | None] = {}
    for number in rounds:
        for key in range(KEYS):
            name, value = b"key-%d" % key, (b"%d-%d " % (number, key)) * 100
            producer.produce(TOPIC, value, name)
            expected[name] = value
    for key in range(0, KEYS, 10):
        producer.produce(TOPIC, None, b"key-%d" % key)
        expected[b"key-%d" % key] = None
    assert producer.flush(60) == 0
    return expected


def test_the_table_survives_compaction_and_a_crash(compacting: LocalCluster):
    admin = AdminClient({"bootstrap.servers": compacting.bootstrap, "log_level": 0})
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1024 * 1024),
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "100",
    }
    created = admin.create_topics([NewTopic(TOPIC, 1, 3, config=config)])[TOPIC]
    created.result()
    written = write_rounds(compacting.bootstrap, range(ROUNDS))
    # What cannot shrink below: the newest value of each key, and the segment that is still written to.
    bound = 1_500_000
    for directory in logs_of(compacting):
        wait_until(lambda d=directory: bytes_in(d) < bound, "every replica is compacted")
    table, count = read_table(compacting.bootstrap)
    assert table == written
    assert count < KEYS * ROUNDS

    compacting.kill(1)
    written |= write_rounds(compacting.bootstrap, range(ROUNDS, ROUNDS + 3))
    compacting.start_node(1)
    wait_until(lambda: bytes_in(logs_of(compacting)[0]) < bound, "node 1 has caught up and compacted")
    table, _ = read_table(compacting.bootstrap)
    assert table == written
    assert "Compacted table-0" in (compacting.home(1) / "node.log").read_text()
