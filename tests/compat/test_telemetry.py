"""librdkafka pushes its own metrics (KIP-714), and /metrics and the JSON API show them."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.model import ResourceType
from tests.support.clients.wire_client import Wire
from tests.support.nodes.cluster import running_cluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.row("U5")]

PRODUCER = "org.apache.kafka.producer."


def test_a_clients_own_metrics_are_shown(
    tmp_path: Path, free_ports: Callable[[int], list[int]], wire: Wire
) -> None:
    with running_cluster(tmp_path, free_ports(3), {"kraft.client.telemetry.enable": "true"}) as cluster:
        node = cluster.nodes[1]

        def get(path: str) -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}{path}", timeout=60) as answer:
                return str(answer.read().decode())

        values = {"metrics": PRODUCER, "interval.ms": "200"}
        configs = [{"name": name, "config_operation": 0, "value": value} for name, value in values.items()]
        resource = {
            "resource_type": int(ResourceType.CLIENT_METRICS),
            "resource_name": "all",
            "configs": configs,
        }
        (done,) = wire.ask(
            node.client_port, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
        ).responses
        assert done.error_code == 0
        config = {"bootstrap.servers": cluster.bootstrap, "client.id": "teller", "log_level": 0}
        producer = Producer(config)

        def pushed() -> list[dict[str, Any]]:
            producer.produce("pushed", b"x")
            producer.poll(0.05)
            clients: list[dict[str, Any]] = json.loads(get("/api/v1/clients"))["clients"]
            return [each for each in clients if each["client_id"] == "teller" and each["pushes"] > 2]

        (client,) = wait_until(pushed, "the client has pushed three times")
        assert "rdkafka" in client["software"]
        names = {each["name"] for each in client["metrics"]}
        assert names
        assert all(name.startswith(PRODUCER) for name in names)
        shown = {
            sample.labels["metric"]
            for family in text_string_to_metric_families(get("/metrics"))
            for sample in family.samples
            if sample.name == "kraft_client_metric" and sample.labels["client_id"] == "teller"
        }
        assert names <= shown
        producer.flush(10)
