"""Real dashboards and alert rules against three nodes, evaluated by a real Prometheus.

Every expression of tests/support/dashboards gives data while the cluster works; the alerts fire by the faults
that they are for, and not before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from kraft.cli.main import cli
from kraft.local.local_cluster import LocalCluster
from tests.support.clients.load import Load
from tests.support.clients.rdkafka import QUIET, consumer, poll
from tests.support.dashboards import Panel, panels, whose
from tests.support.nodes.cluster import running_cluster
from tests.support.prometheus import Prometheus, ScrapeJob, prometheus
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.row("U5")]

HOG: Final = {"client.id": "hog", **QUIET}
"""A client that has quotas, and exceeds them."""

_VARIABLES: Final = {
    "strimzi_cluster_name": "my",
    "kafka_broker": "kafka-[0-9]",
    "kraft_node": "kafka-[0-9]",
    "env": "test",
    "cluster_name": "my",
    "__rate_interval": "1m",
}
"""Of the dashboards; any other is ".*", as where all is selected."""
_COMPARISON: Final = re.compile(r" (?:[<>]|[!=]=) [0-9]+$")


@dataclass(frozen=True)
class Watched:
    """A cluster under load, and who watches it."""

    cluster: LocalCluster
    watcher: Prometheus

    def gives(self, panel: Panel, *, without_comparison: bool = False) -> bool:
        expression = self.filled(panel)
        if without_comparison:
            expression = _COMPARISON.sub("", expression)
        return bool(self.watcher.query(expression))

    def fires(self, alert: str, **labels: str) -> bool:
        """In Strimzi's namespace, as which the rules know the nodes."""
        (panel,) = (panel for panel in panels() if panel.is_alert and panel.title == alert)
        labels = {**({"namespace": "strimzi"} if alert != "ScrapeProblem" else {}), **labels}
        return any(
            labels.items() <= series["metric"].items() for series in self.watcher.query(self.filled(panel))
        )

    def filled(self, panel: Panel) -> str:
        """The expression as a dashboard asks it, with its variables and Grafana's functions filled in."""
        http_port = self.cluster.nodes[1].http_port
        expression = panel.expression.replace('instance="$instance"', f'instance="127.0.0.1:{http_port}"')
        expression = re.sub(r"\$\{?(\w+)\}?", lambda found: self._value(found.group(1), panel), expression)
        if match := re.fullmatch(r"query_result\((.*)\)", expression):
            return match.group(1)
        if match := re.fullmatch(r"label_values\((\w+)\)", expression):
            return f'group by ({match.group(1)}) ({{{match.group(1)}!=""}})'
        if match := re.fullmatch(r"label_values\((.*), *(\w+)\)", expression):
            return f"group by ({match.group(2)}) ({match.group(1)})"
        return expression

    def _value(self, variable: str, panel: Panel) -> str:
        if variable == "kubernetes_namespace":
            return panel.style
        return _VARIABLES.get(variable, ".*")


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[Watched]:
    """Three nodes that write and read, with a client that is throttled, and Prometheus."""
    directory = tmp_path_factory.mktemp("watched")
    settings = {"replica.lag.time.max.ms": "5000"}
    with running_cluster(directory, free_ports(9), settings) as cluster:
        (port,) = free_ports(1)
        with prometheus(tmp_path_factory.mktemp("prometheus"), port, _jobs(cluster)) as watcher:
            yield Watched(cluster, watcher)


def _jobs(cluster: LocalCluster) -> list[ScrapeJob]:
    """As an operator and Kubernetes label what they scrape."""

    def labels(namespace: str) -> dict[int, dict[str, str]]:
        return {
            node.http_port: {
                "namespace": namespace,
                "strimzi_io_cluster": "my",
                "strimzi_io_name": "my-kafka",
                "kubernetes_namespace": namespace,
                "kubernetes_pod_name": f"my-kafka-{node.id}",
                "pod": f"my-kafka-{node.id}",
                "container": "kafka",
                **({"cluster_name": "my"} if namespace == "strimzi" else {}),
            }
            for node in cluster.nodes.values()
        }

    env = {node.http_port: {"env": "test"} for node in cluster.nodes.values()}
    return [
        ScrapeJob("strimzi", labels("strimzi"), "strimzi"),
        ScrapeJob("reporter", labels("reporter"), "reporter"),
        ScrapeJob("kafka-broker", env, "confluent"),
        ScrapeJob("kafka-controller", env, "confluent"),
    ]


def _use(cluster: LocalCluster) -> None:
    """A group reads and commits; a client exceeds its quotas."""
    with consumer(cluster.bootstrap, group_id="readers") as reader:
        reader.assign([TopicPartition("load", 0, 0)])
        messages = poll(reader, 50)
        reader.commit(message=messages[-1], asynchronous=False)
    hog = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, **HOG})
    for _ in range(20):
        hog.produce("hogged", bytes(5000))
        hog.poll(0)
    hog.flush(5)
    with consumer(cluster.bootstrap, group_id="hogs", client_id="hog") as reader:
        reader.assign([TopicPartition("hogged", 0, 0)])
        reader.consume(5, 1.0)


def test_every_expression_of_the_dashboards_gives_data(watched: Watched) -> None:
    cluster = watched.cluster
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    topics = [NewTopic("load", 3, 3), NewTopic("hogged", 1, 3)]
    for created in admin.create_topics(topics).values():
        created.result()
    limits = ("producer_byte_rate=500", "consumer_byte_rate=500", "request_percentage=0.01")
    done = CliRunner().invoke(
        cli, ["quota", "set", *limits, "--user", "", "--client-id", "hog", "-b", cluster.bootstrap]
    )
    assert done.exception is None, done.output
    ours = [panel for panel in panels() if all(whose(name) is None for name in panel.metrics)]
    assert len(ours) > 200
    silent = list(ours)

    def all_speak() -> bool:
        _use(cluster)
        silent[:] = [panel for panel in silent if not watched.gives(panel, without_comparison=True)]
        return not silent

    with Load(cluster.bootstrap, "load", 3):
        try:
            wait_until(all_speak, "every expression gives data")
        except AssertionError:
            raise AssertionError("\n".join(map(watched.filled, silent))) from None
        for expression in _of_our_dashboard():
            wait_until(lambda asked=expression: watched.watcher.query(asked), expression)  # type: ignore[misc]


def _of_our_dashboard() -> list[str]:
    dashboard = Path(__file__).parents[2] / "deploy" / "container" / "grafana" / "kraft.json"
    return [panel["targets"][0]["expr"] for panel in json.loads(dashboard.read_text())["panels"]]


def test_alerts_fire_by_the_faults_that_they_are_for(watched: Watched) -> None:
    cluster = watched.cluster
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    topics = [
        NewTopic("whole", 1, 3),
        NewTopic("strict", 1, 3, config={"min.insync.replicas": "3"}),
        NewTopic("alone", 6, 1),
        NewTopic("unread", 1, 3),
    ]
    for created in admin.create_topics(topics).values():
        created.result()
    by_a_dead_node = (
        "UnderReplicatedPartitions",
        "UnderReplicatedPartition",
        "UnderMinIsrPartitionCount",
        "OfflinePartitions",
        "ScrapeProblem",
    )
    assert [alert for alert in by_a_dead_node if watched.fires(alert)] == []
    cluster.kill(2)
    for alert in by_a_dead_node:
        wait_until(lambda alert=alert: watched.fires(alert), alert)  # type: ignore[misc]
    cluster.start_node(2)
    for alert in by_a_dead_node:
        wait_until(lambda alert=alert: not watched.fires(alert), f"no {alert}")  # type: ignore[misc]

    assert not watched.fires("TooLargeConsumerGroupLag", consumergroup="slow")
    with consumer(cluster.bootstrap, group_id="slow") as reader:
        reader.commit(offsets=[TopicPartition("unread", 0, 0)], asynchronous=False)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    for _ in range(1001):
        producer.produce("unread", b"")
    assert producer.flush(60) == 0
    wait_until(lambda: watched.fires("TooLargeConsumerGroupLag", consumergroup="slow"), "the lag is reported")
    wait_until(lambda: watched.fires("NoMessageForTooLong"), "a partition gets nothing")


def test_an_alert_tells_that_no_controller_is_active(watched: Watched) -> None:
    wait_until(lambda: not watched.fires("AbnormalControllerState"), "one controller is active")
    for node_id in (1, 2):
        watched.cluster.kill(node_id)
    wait_until(lambda: watched.fires("AbnormalControllerState"), "AbnormalControllerState")
