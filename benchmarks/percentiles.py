"""Percentiles of measured latencies, by nearest rank: always a value that was really measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

# The quantiles that every latency row reports, by the name they carry in a result.
QUANTILES = {"p50": 0.50, "p99": 0.99, "p99.9": 0.999}


def percentile(ordered: Sequence[float], quantile: float) -> float:
    """The least value of `ordered` (ascending, not empty) that `quantile` of all values do not exceed."""
    if not ordered:
        raise ValueError("a percentile of nothing")
    if not 0.0 < quantile <= 1.0:
        raise ValueError(f"quantile {quantile} is outside (0, 1]")
    # Rounded first: 0.999 * 1000 is 999.0000000000001 in floating point, whose ceiling is one too many.
    rank = math.ceil(round(quantile * len(ordered), 9))
    return ordered[max(rank, 1) - 1]


def summary(values: Sequence[float]) -> dict[str, float]:
    """`QUANTILES` and the maximum of `values`, which need not be in order."""
    ordered = sorted(values)
    quantiles = {name: percentile(ordered, quantile) for name, quantile in QUANTILES.items()}
    return {**quantiles, "max": ordered[-1]}
