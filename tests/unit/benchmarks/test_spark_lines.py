"""The table of the Spark benchmark: ratios to Spark's own source, and its way into the page."""

from __future__ import annotations

import pytest

from benchmarks.page import filled
from benchmarks.spark import lines
from benchmarks.spark.data import SHAPES
from benchmarks.spark.measures import FULL, QUICK
from benchmarks.spark.systems import System

SYSTEMS = (System("jar", "theirs", "kafka"), System("kraft", "ours", "kraft"))
SAMPLES = {
    "jar": {"batch-100.rate": [0.5, 0.6, 0.7], "copy.p50": [800.0]},
    "kraft": {"batch-100.rate": [1.2, 0.9, 0.6], "copy.p50": [200.0], "worker-rss": [150.0]},
}


def row(title: str) -> tuple[str, ...]:
    (found,) = [each for each in lines.rows(SAMPLES, SYSTEMS) if each[0] == title]
    return found


def test_a_ratio_is_of_medians() -> None:
    assert row("batch, 100 B")[2:] == ("0.60 (0.50-0.70)", "0.90 (0.60-1.20)", "1.50 x", "≥ 1.5 x")
    assert row("append to sink, p50")[2:5] == ("800", "200", "0.25 x")


def test_what_only_one_has() -> None:
    assert row("Python worker, peak RSS")[2:5] == ("-", "150", "-")
    ours = lines.rows({"kraft": SAMPLES["kraft"]}, SYSTEMS[1:])
    assert ours[0] == ("batch, 100 B", "M rows/s", "0.90 (0.60-1.20)", "-", "≥ 1.5 x")


def test_what_was_not_measured_has_no_line() -> None:
    assert len(lines.rows(SAMPLES, SYSTEMS)) == 3
    table = lines.markdown(SAMPLES, SYSTEMS, {"cores": "2"}).splitlines()
    assert {line.count("|") for line in table if line.startswith("|")} == {7}


def test_every_topic_has_its_rows_and_its_lines() -> None:
    names = {metric.name for metric in lines.METRICS}
    for shape in SHAPES:
        assert QUICK.rows[shape.name] < FULL.rows[shape.name]
        assert f"batch-{shape.name}.rate" in names


def test_a_section_of_the_page() -> None:
    page = "# Page\n\n<!-- spark -->\n\nold\n\n<!-- /spark -->\n\nrest\n"
    assert filled(page, "spark", "new\n") == page.replace("old", "new")
    with pytest.raises(ValueError, match="no section 'other'"):
        filled(page, "other", "new")
