"""The alert on a failed log directory fires by a disk that fails, and by a real Prometheus."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.live.disk_switch import DiskSwitch
from kraft.config.node_config import Config
from kraft.config.properties import parse_properties
from kraft.local.local_cluster import LocalCluster
from kraft.storage.formatter import format_storage
from metadata_quorum.foundation.disk import OsDisk
from tests.support.clients.rdkafka import QUIET
from tests.support.dashboards import panels
from tests.support.nodes.cluster import ended_at_once
from tests.support.prometheus import ScrapeJob, prometheus
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.row("U5")]

PARTITIONS = 4
SECOND = "second"


@pytest.fixture
def node(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Iterator[LocalCluster]:
    """One, with two log directories and a disk that can fail."""
    cluster = LocalCluster.create(tmp_path, nodes=1, ports=free_ports(3), program=("chaos.live.process",))
    home = cluster.home(1)
    cluster.configure(1, {"log.dirs": f"{home / 'data'},{home / SECOND}"})
    config = Config.from_properties(parse_properties((home / "server.properties").read_text()))
    format_storage(OsDisk(), config, cluster.cluster_id, random.SystemRandom(), ignore_formatted=True)
    with ended_at_once(cluster):
        cluster.start()
        yield cluster


def test_the_alert_on_a_failed_log_directory(
    node: LocalCluster, free_ports: Callable[[int], list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap, **QUIET})
    admin.create_topics([NewTopic("two-dirs", PARTITIONS, 1)])["two-dirs"].result()
    assert list((node.home(1) / SECOND).glob("two-dirs-*")), "some of it is in the second directory"
    (alert,) = (panel for panel in panels() if panel.is_alert and panel.title == "OfflineLogDirectoryCount")
    (port,) = free_ports(1)
    job = ScrapeJob("strimzi", {node.nodes[1].http_port: {"pod": "my-kafka-1"}}, "strimzi")
    producer = Producer({"bootstrap.servers": node.bootstrap, "message.timeout.ms": 1000, **QUIET})

    with prometheus(tmp_path_factory.mktemp("prometheus"), port, [job]) as watcher:
        count = alert.expression.split(" > ")[0]
        wait_until(lambda: watcher.query(count), "the directories are counted")
        assert watcher.query(alert.expression) == [], "and both are online"

        DiskSwitch(node.home(1)).error(SECOND, reads=False)

        def fires() -> bool:
            for partition in range(PARTITIONS):
                producer.produce("two-dirs", b"v", partition=partition)
            producer.flush(2)
            return bool(watcher.query(alert.expression))

        wait_until(fires, "the alert fires")
        (series,) = watcher.query(alert.expression)
        assert series["metric"]["pod"] == "my-kafka-1"
        assert series["value"][1] == "1"
        assert node.nodes[1].process() is not None, "the node goes on with the other one"
