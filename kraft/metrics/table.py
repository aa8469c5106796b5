"""All metrics of a node: the one table. docs/METRICS.md and `GET /metrics` are made from it."""

from __future__ import annotations

from typing import Final

from kraft.metrics import broker_rows, controller_rows, group_rows, node_rows, request_rows
from kraft.metrics.metric import Metric

METRICS: Final[tuple[Metric, ...]] = (
    *node_rows.ROWS,
    *request_rows.ROWS,
    *broker_rows.ROWS,
    *group_rows.ROWS,
    *controller_rows.ROWS,
)
