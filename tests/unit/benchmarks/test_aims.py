"""The table of aims: bounds, ratios, and what was not measured."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.aims import AIMS, SPARK_AIMS, Aim, both_tables, main, rows
from benchmarks.metrics import METRICS
from benchmarks.spark.lines import METRICS as SPARK_METRICS

SAMPLES = {
    "kraft": {"produce-1k.all.rate": [150.0, 160.0, 300.0], "cold.p99": [30.0], "alone.p99": [10.0]},
    "compiled": {"produce-1k.all.rate": [330.0]},
    "kafka": {"produce-1k.all.rate": [80.0]},
}


def test_every_aim_is_of_something_that_is_measured() -> None:
    names = {name for metric in METRICS for name in metric.sample_names()}
    assert {aim.metric for aim in AIMS} <= names
    assert {aim.metric for aim in SPARK_AIMS} <= {metric.name for metric in SPARK_METRICS}


def test_medians_are_compared_with_the_other_system_or_among_themselves() -> None:
    aims = (AIMS[0], Aim("cold", "cold.p99", 2, of="alone.p99"), Aim("p99", "cold.p99", 20, unit="ms"))
    assert [row[1:] for row in rows(aims, SAMPLES, "kafka", ("kraft", "compiled"))] == [
        ("≥ 4 x", "2.00 **missed**", "4.12 met"),
        ("≤ 2 x", "3.00 **missed**", "-"),
        ("≤ 20 ms", "30.0 **missed**", "-"),
    ]


def test_parts_are_written_as_such() -> None:
    assert Aim("CPU", "cpu", 1 / 7, of="floor").wanted() == "≤ 1/7 x"


def test_the_page_gets_both_tables(tmp_path: Path) -> None:
    spark = {"jar": {"catch-up": [1.0]}, "kraft": {"catch-up": [1.5]}}
    page, of_brokers, of_spark = (tmp_path / name for name in ("page.md", "a.json", "b.json"))
    page.write_text("before\n<!-- aims -->\nyesterday\n<!-- /aims -->\nbehind\n")
    of_brokers.write_text(json.dumps({"samples": SAMPLES}))
    of_spark.write_text(json.dumps({"samples": spark, "systems": ["Spark's own", "kraft, Spark 4.1"]}))
    main(of_brokers, of_spark, page)
    text = page.read_text()
    assert both_tables(SAMPLES, spark, {"jar": "Spark's own", "kraft": "kraft, Spark 4.1"}) in text
    assert "| availableNow: rows/s, of its | ≥ 1.4 x | 1.50 met |" in text
    assert text.startswith("before\n<!-- aims -->")
    assert text.endswith("<!-- /aims -->\nbehind\n")
    assert "yesterday" not in text
