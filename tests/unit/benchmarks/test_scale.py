"""The scale benchmark runs, at its smallest, and its tables say what it found."""

from __future__ import annotations

import logging

import pytest

from benchmarks.scale.busy import Ack, acks_between
from benchmarks.scale.image import image_costs
from benchmarks.scale.simulated import three_nodes
from benchmarks.scale.table import IMAGE, SIMULATED, Row, table


def test_three_simulated_nodes_with_a_few_partitions(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    found = three_nodes(30, 3)
    text = table(SIMULATED, "partitions", {30: found.figures})
    for row in SIMULATED:
        assert row.title in text
        assert found.figures[row.figure] >= 0
    assert 0 < found.figures["failover.elected"] <= found.figures["failover"] < 10
    assert found.longest["create"]


def test_metadata_by_itself() -> None:
    costs = image_costs(50, 3, 4)
    assert {row.figure for row in IMAGE} <= costs.keys()
    assert costs["bytes"] > 50 * 3
    assert costs["fence.records"] == 1 + 37  # itself, and the partitions of which it has a replica


def test_a_table_shows_how_a_figure_grows() -> None:
    text = table(
        (Row("a", "this", "ms", 1e3), Row("b", "that", "")), "brokers", {1: {"a": 0.5}, 10: {"a": 2.0}}
    )
    assert "| this | ms | 500 | 2,000 | 4.0 x |" in text
    assert "that" not in text


def test_acks_count_from_when_they_were_due() -> None:
    acks = [Ack(1.0, 1.5, 0), Ack(1.1, 1.6, 1), Ack(1.2, 3.0, 2), Ack(9.0, 9.1, 0)]
    found = acks_between(acks, [1.3, 8.0], 1.0, 4.0)
    assert found.p99_s == pytest.approx(1.8)
    assert found.longest_gap_s == pytest.approx(2.5)  # of the first partition: nothing after 1.5
    assert found.failed == 1
    assert acks_between([], [], 1.0, 4.0).p99_s == 3.0
