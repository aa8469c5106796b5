"""Nearest-rank percentiles."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.percentiles import percentile, summary


@pytest.mark.parametrize(
    ("quantile", "expected"), [(0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000), (0.0001, 1)]
)
def test_of_one_to_a_thousand(quantile: float, expected: int) -> None:
    assert percentile(range(1, 1001), quantile) == expected


def test_of_one_value_is_that_value() -> None:
    assert summary([7.0]) == {"p50": 7.0, "p99": 7.0, "p99.9": 7.0, "max": 7.0}


@pytest.mark.parametrize("quantile", [0.0, -0.1, 1.1])
def test_refuses_what_is_no_quantile(quantile: float) -> None:
    with pytest.raises(ValueError, match="outside"):
        percentile([1.0], quantile)


def test_refuses_no_values() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)


@given(st.lists(st.integers(), min_size=1, max_size=200), st.integers(1, 1000))
def test_is_the_least_value_that_covers_its_share(values: list[int], thousandths: int) -> None:
    ordered = sorted(values)
    found = percentile(ordered, thousandths / 1000)
    needed = math.ceil(thousandths * len(values) / 1000)
    assert sum(value <= found for value in values) >= needed
    assert sum(value < found for value in values) < needed
