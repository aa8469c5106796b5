"""The table: medians, ranges, and which way is better."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import report
from benchmarks.metrics import METRICS
from benchmarks.workloads import WORKLOADS

SAMPLES = {
    "kafka": {
        "produce-1k.all.rate": [50.0, 54.0, 52.0],
        "start": [20.0],
        "latency-20.200.ack.p50": [2.0],
        "latency-20.200.ack.p99": [30.0],
        "latency-20.200.ack.p99.9": [60.0],
    },
    "kraft": {
        "produce-1k.all.rate": [260.0, 280.0, 240.0],
        "start": [1.0],
        "latency-20.200.ack.p50": [0.5],
        "latency-20.200.ack.p99": [3.0],
        "latency-20.200.ack.p99.9": [120.0],
    },
}


def line(title_starts: str) -> report.Line:
    return next(line for line in report.lines(SAMPLES) if line.title.startswith(title_starts))


def test_throughput_is_better_when_higher() -> None:
    found = line("produce 1 KiB, acks=all")
    assert (found.theirs, found.ours) == ("52.0 (50.0-54.0)", "260 (240-280)")
    assert found.better == "5.00 x"


def test_time_is_better_when_lower() -> None:
    assert line("start").better == "20.0 x"


def test_quantiles_stand_side_by_side() -> None:
    found = line("ack p50 / p99 / p99.9, 200/s, 20")
    assert (found.theirs, found.ours) == ("2.00 / 30.0 / 60.0", "0.50 / 3.00 / 120")
    assert found.better == "4.00 x / 10.0 x / 0.50 x"


def test_a_system_that_was_left_out_shows_a_dash() -> None:
    (only,) = report.lines({"kraft": {"start": [1.0]}})
    assert (only.theirs, only.ours, only.better) == ("-", "1.00", "")


def test_lines_without_samples_are_left_out() -> None:
    assert len(report.lines(SAMPLES)) == 3


def test_compiled_has_columns_of_its_own_where_it_was_measured(tmp_path: Path) -> None:
    samples = {**SAMPLES, "compiled": {"start": [0.5]}}
    text = report.write(tmp_path, "run", samples, {}).read_text()
    assert "| start to first acks=all ack | s | 20.0 | 1.00 | 20.0 x | 0.50 | 40.0 x | ≤ 1.5 s |" in text
    throughput = next(each for each in text.splitlines() if each.startswith("| produce 1 KiB"))
    assert throughput.split(" | ")[5:7] == ["-", ""]
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1


def test_writes_every_sample_and_the_table(tmp_path: Path) -> None:
    page = report.write(tmp_path / "new", "run", SAMPLES, {"cores": "2"})
    assert json.loads(page.with_suffix(".json").read_text()) == {
        "machine": {"cores": "2"},
        "samples": SAMPLES,
    }
    text = page.read_text()
    assert "| start to first acks=all ack | s | 20.0 | 1.00 | 20.0 x | ≤ 1.5 s |" in text
    assert "- cores: 2" in text


def test_every_workload_has_its_lines() -> None:
    names = [name for metric in METRICS for name in metric.sample_names()]
    assert len(names) == len(set(names))
    for workload in WORKLOADS:
        assert any(name.startswith(workload) for name in names), workload
