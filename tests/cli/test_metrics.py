"""`GET /metrics` of real nodes: every name that real dashboards ask for, and the figures behind some."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kraft.local.local_cluster import LocalCluster
from kraft.metrics.metric import Style
from kraft.metrics.table import METRICS
from tests.support.clients.rdkafka import consumer, read, send
from tests.support.dashboards import panels, whose
from tests.support.waiting import wait_until

pytestmark = pytest.mark.row("U5")


def scrape(cluster: LocalCluster, node_id: int, style: str = "strimzi") -> Iterator[Any]:
    """The samples of one node, read strictly."""
    url = f"http://127.0.0.1:{cluster.nodes[node_id].http_port}/metrics?names={style}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        for family in text_string_to_metric_families(answer.read().decode()):
            yield from family.samples


def total(samples: Iterable[Any], name: str, **labels: str) -> float:
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())


@pytest.fixture(scope="module")
def used(shared_cluster: LocalCluster) -> LocalCluster:
    """A topic `metered` with six records in it, of which the group `reader` has read four."""
    bootstrap = shared_cluster.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("metered", 1, 3)])["metered"].result()
    send(bootstrap, "metered", [{"value": b"12345", "partition": 0} for _ in range(6)], acks="all")
    assert len(read(bootstrap, "metered", 6)) == 6
    with consumer(bootstrap, group_id="reader") as reading:
        reading.commit(offsets=[TopicPartition("metered", 0, 4)], asynchronous=False)
    return shared_cluster


def test_every_name_that_a_dashboard_asks_for_is_served(used: LocalCluster) -> None:
    asked = {(panel.style, name) for panel in panels() for name in panel.metrics if whose(name) is None}
    assert len(asked) > 120
    served = {
        (style, sample.name) for style in Style for node_id in used.nodes
        for sample in scrape(used, node_id, style)
    }  # fmt: skip
    in_table = {(style, metric.name_in(style)) for metric in METRICS for style in Style}
    of_quotas = {
        name for name in asked - served if name[1].endswith(("_byte_rate", "_throttle_time", "_time"))
    }
    assert asked - served == of_quotas, "without quotas nothing is measured for them"
    assert of_quotas <= in_table


def test_the_figures_are_those_of_the_cluster(used: LocalCluster) -> None:
    def scraped() -> dict[int, list[Any]]:
        return {node_id: list(scrape(used, node_id)) for node_id in used.nodes}

    def lag(nodes: Mapping[int, list[Any]]) -> float:
        every = (sample for each in nodes.values() for sample in each)
        return total(every, "kafka_consumergroup_lag", consumergroup="reader")

    # The coordinator leaves it out where the partition's leader takes long to answer.
    nodes = wait_until(lambda: found if lag(found := scraped()) else None, "the group's lag is known")
    samples = [sample for each in nodes.values() for sample in each]
    topic = {"topic": "metered"}
    assert total(samples, "kafka_server_brokertopicmetrics_messagesin_total", **topic) == 6
    assert total(samples, "kafka_server_brokertopicmetrics_bytesin_total", **topic) > 30
    assert total(samples, "kafka_server_brokertopicmetrics_bytesout_total", **topic) > 30
    assert total(samples, "kafka_server_brokertopicmetrics_replicationbytesin_total", **topic) > 60
    assert total(samples, "kafka_topic_partition_current_offset", **topic) == 6
    assert total(samples, "kafka_topic_partition_in_sync_replica", **topic) == 3
    assert lag(nodes) == 2
    assert total(samples, "kafka_consumergroup_current_offset", consumergroup="reader") == 4
    assert total(samples, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    for each in nodes.values():
        assert total(each, "kafka_log_log_logendoffset", **topic) == 6
        assert total(each, "kafka_controller_kafkacontroller_activebrokercount") == 3
        assert total(each, "kafka_server_kafkaserver_brokerstate") == 3


def test_a_request_is_timed_by_its_phases(used: LocalCluster) -> None:
    samples = [sample for node_id in used.nodes for sample in scrape(used, node_id)]
    phases = {s.name for s in samples if s.labels.get("request") == "Produce" and "quantile" in s.labels}
    prefix = "kafka_network_requestmetrics_"
    assert phases == {
        f"{prefix}{phase}timems"
        for phase in ("requestqueue", "local", "remote", "throttle", "responsequeue", "responsesend", "total")
    }
    waited = {"request": "Produce", "quantile": "0.50"}
    assert (
        0
        < total(samples, f"{prefix}remotetimems", **waited)
        <= total(samples, f"{prefix}totaltimems", **waited)
    )
    followers = total(samples, f"{prefix}requests_total", request="FetchFollower")
    consumers = total(samples, f"{prefix}requests_total", request="FetchConsumer")
    assert followers
    assert consumers
    assert followers + consumers <= total(samples, f"{prefix}requests_total", request="Fetch")


def test_names_that_nobody_uses_are_refused(shared_cluster: LocalCluster) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        list(scrape(shared_cluster, 1, "graphite"))
    assert refused.value.code == 400
    refused.value.close()
