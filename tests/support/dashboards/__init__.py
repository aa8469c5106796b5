"""What real dashboards and alert rules ask Prometheus for: expressions.tsv, read.

Its lines are the expressions of Strimzi's, Confluent's and kafka-exporter's dashboards and of Strimzi's alert
rules (Apache License 2.0; the versions are in its first line), with where each comes from.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

EXPRESSIONS: Final = Path(__file__).with_name("expressions.tsv")

NOT_OURS: Final = {
    "jvm_": "the Java virtual machine's",
    "container_": "the container runtime's",
    "kubelet_": "Kubernetes'",
    "kafka_tier_tasks_": "Confluent Server's tiered storage",
    "kafka_log_log_tiersize": "Confluent Server's tiered storage",
    "kafka_server_replicamanager_straypartitions": "Confluent Server's",
    "kafka_server_transaction_coordinator_metrics_active_transaction": "Confluent Server's",
    "kafka_server_transaction_coordinator_metrics_partitions_total": "Confluent Server's",
    "kafka_server_transaction_coordinator_metrics_prepare_commit": "Confluent Server's",
    "kafka_server_transaction_coordinator_metrics_transaction": "Confluent Server's",
}
"""Metrics, by the beginning of their names, that no broker has by itself, or only a paid one."""

_NAME: Final = re.compile(r"\b(?:kafka|process|jvm|container|kubelet)_[a-z0-9_]+(?=[{\[) ><]|,|$)")
_MATCHERS: Final = re.compile(r"\{[^}]*\}")
_GROUPING: Final = re.compile(r"\b(?:by|without|on|group_left)\s*\([^)]*\)")


class Panel(NamedTuple):
    """One line of the file."""

    source: str
    title: str
    expression: str

    @property
    def is_alert(self) -> bool:
        return self.source == "alert"

    @property
    def metrics(self) -> set[str]:
        """The names that it asks for."""
        plain = _GROUPING.sub("", _MATCHERS.sub("{}", self.expression))
        return set(_NAME.findall(plain))

    @property
    def style(self) -> str:
        """The names that its dashboard uses (kraft/metrics/metric.py)."""
        if self.source.startswith("reporter/"):
            return "reporter"
        confluent = ("kafka-cluster-kraft", "kafka-quotas", "kafka-topics-kraft", "kafka-transaction")
        return "confluent" if self.source.startswith(confluent) else "strimzi"


def panels() -> list[Panel]:
    """All of them, in the order of the file."""
    lines = EXPRESSIONS.read_text().splitlines()[1:]
    return [Panel(*line.split("\t")) for line in lines]


def whose(metric: str) -> str | None:
    """Whom a metric that we need not have belongs to; None for one that we must have."""
    return next((owner for prefix, owner in NOT_OURS.items() if metric.startswith(prefix)), None)
