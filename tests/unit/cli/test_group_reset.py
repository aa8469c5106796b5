"""Where a reset would move a group to, option by option."""

from __future__ import annotations

import pytest

from kraft.cli import group_reset as reset
from kraft.cli.errors import CliError
from metadata_quorum.foundation.model import TopicPartition

HERE = TopicPartition("orders", 0)


def place(committed: int | None = 40, at_time: int | None = None) -> reset.PartitionOffsets:
    return reset.PartitionOffsets(HERE, 10, 100, committed, at_time)


@pytest.mark.parametrize(
    ("rule", "known", "expected"),
    [
        (reset.ToEarliest(), place(), 10),
        (reset.ToLatest(), place(), 100),
        (reset.ToCurrent(), place(), 40),
        (reset.ToCurrent(), place(committed=3), 10),
        (reset.ToCurrent(), place(committed=None), 100),
        (reset.ToOffset(55), place(), 55),
        (reset.ToOffset(5), place(), 10),
        (reset.ToOffset(500), place(), 100),
        (reset.ShiftBy(-7), place(), 33),
        (reset.ShiftBy(-70), place(), 10),
        (reset.ShiftBy(70), place(), 100),
        (reset.ToTime(0), place(at_time=77), 77),
        (reset.ToTime(0), place(at_time=None), 100),
        (reset.FromFile({HERE: 12}), place(), 12),
        (reset.FromFile({HERE: 1}), place(), 10),
    ],
)
def test_every_rule_stays_within_the_log(
    rule: reset.Rule, known: reset.PartitionOffsets, expected: int
) -> None:
    assert reset.new_offset(rule, known) == expected


def test_nothing_to_shift() -> None:
    with pytest.raises(CliError, match="orders-0: nothing is committed"):
        reset.new_offset(reset.ShiftBy(1), place(committed=None))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01.500", 1_500),
        ("1970-01-01T00:00:01.500Z", 1_500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-02", 86_400_000),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, expected: int) -> None:
    assert reset.parse_time(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("P1D", 86_400_000), ("PT1H30M", 5_400_000), ("P1DT0.5S", 86_400_500), ("PT0S", 0)],
)
def test_durations(text: str, expected: int) -> None:
    assert reset.parse_duration(text) == expected


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999", "0001-01-01T00:00:00+14:00"])
def test_no_time_is_before_1970(text: str) -> None:
    """-1 would be the end of the log."""
    assert reset.parse_time(text) == 0
    assert reset.time_ago("PT1S", 1500) == 500
    assert [reset.time_ago(f"P{'9' * digits}D", 999) for digits in (1, 20, 400)] == [0, 0, 0]


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1H", "P-1D"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(CliError, match="P1DT2H3M4S"):
        reset.parse_duration(text)


def test_selections_and_files() -> None:
    assert reset.parse_selection(["a", "b:0,2"]) == {"a": [], "b": [0, 2]}
    with pytest.raises(CliError, match="b:x: partitions are named as b:0,2"):
        reset.parse_selection(["b:x"])
    lines = ["orders,0,12", "", "mine,orders,1,13", "other,orders,2,14"]
    assert reset.read_csv(lines, "mine", "f.csv") == {HERE: 12, TopicPartition("orders", 1): 13}


@pytest.mark.parametrize(
    "line",
    ["orders,zero,12", "orders,0", "orders,0,-1", "a,b,orders,0,1", f"orders,0,{'1' * 5000}", "x" * 200_000],
)
def test_what_is_no_line_of_offsets(line: str) -> None:
    with pytest.raises(CliError, match=r"f\.csv, line 2: a line is topic,partition,offset"):
        reset.read_csv(["orders,0,12", line], "mine", "f.csv")
