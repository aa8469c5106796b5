"""Share groups, which only Apache Kafka has: a broker of ours stays out while they are on, and is not hurt by
what is left of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mixed.brokers import MixedCluster, Reading
from tests.mixed.quorum_change import change_quorum
from tests.support.clients.rdkafka import send
from tests.support.kafka.kafka_node import KafkaNode
from tests.support.kafka.kafka_tools import KafkaTools, ToolOutput
from tests.support.nodes.role_nodes import BOTH, BROKER, KRAFT, role_nodes
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.row("M2", "M4")]

KAFKAS, OURS = 1, 2
SETTINGS = {
    "default.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
STATE = "__share_group_state"
REFUSED = "the cluster has finalized a feature, or a level, that we do not have"


@pytest.mark.newest_kafka
def test_what_is_left_of_them_hurts_nobody(
    kafka_jars: Path, kafka_node: KafkaNode, tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    sharing = replace(kafka_node, formatted_with=("--feature", "share.version=1"))
    roles, software = {KAFKAS: BOTH, OURS: BROKER}, {KAFKAS: sharing}
    with role_nodes(tmp_path, free_ports(4), roles, SETTINGS, software=software, later=[OURS]) as nodes:
        cluster, tools = MixedCluster(nodes), KafkaTools(kafka_jars, nodes.bootstrap)
        cluster.make_topic("in", [[KAFKAS]])
        send(cluster.bootstrap, "in", ({"value": each} for each in "abc"), acks="all")
        earliest = ("--add-config", "share.auto.offset.reset=earliest")
        tools("kafka.admin.ConfigCommand", "--alter", "--group", "sharing", *earliest)
        assert "a" in share(tools, nodes.bootstrap, "--max-messages", "1").out.splitlines()

        nodes.start(OURS)
        log = nodes.log(OURS)
        wait_until(lambda: log.exists() and REFUSED in log.read_text(), "it is not let in")
        tools("FeatureCommand", "downgrade", "--feature", "share.version=0")
        nodes.wait_ready()

        with Reading(cluster, "group", "classic") as group:
            group.read(3)
            cluster.reassign((OURS,))
            assert set(cluster.leaders(STATE) + cluster.leaders("__consumer_offsets")) == {OURS}
            send(cluster.bootstrap, "in", ({"value": each} for each in "def"), acks="all")
            group.read(6)
            change_quorum(nodes, "import", KRAFT)
            nodes.wait_ready()
            send(cluster.bootstrap, "in", ({"value": each} for each in "ghi"), acks="all")
            assert share(tools, nodes.bootstrap).out == ""
            group.read(9)


def share(tools: KafkaTools, bootstrap: str, *more: str) -> ToolOutput:
    """A member of a share group, for some seconds."""
    where = ("--bootstrap-server", bootstrap, "--topic", "in", "--group", "sharing")
    return tools.run("consumer.ConsoleShareConsumer", *where, "--timeout-ms", "20000", *more)
