"""Filters that the source takes over, against what they mean row by row."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from metadata_quorum.foundation.model import TopicPartition
from spark_connector.filters import push_filters
from spark_connector.offsets import (
    NO_OFFSET,
    OffsetRange,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MEANINGS = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
TIMES_MS = [5, 3, 8, 8, 1, 9, 12, 2]
"""Of the records of every partition, by offset."""


class Times:
    """A cluster whose partitions all have those records."""

    def earliest(self, partitions): ...
    def latest(self, partitions): ...

    def at_times(self, times_ms):
        return {
            each: next((offset for offset, found in enumerate(TIMES_MS) if found >= wanted), NO_OFFSET)
            for each, wanted in times_ms.items()
        }


def comparison(kind, column, value):
    values = {
        "partition": value % 3,
        "offset": value % 10 - 1,
        "timestamp": EPOCH + timedelta(microseconds=500 * value),
        "topic": "tu"[value % 2],
    }
    return kind((column,), values[column])


FILTERS = st.builds(
    comparison,
    st.sampled_from(sorted(MEANINGS, key=str)),
    st.sampled_from(["partition", "offset", "timestamp", "topic"]),
    st.integers(0, 30),
)


@given(st.lists(FILTERS, max_size=4))
def test_no_row_that_matches_is_left_out_and_only_times_are_checked_again(filters):
    taken, left = push_filters(filters)
    assigned = {TopicPartition(topic, number) for topic in "tu" for number in range(3)}
    whole = [OffsetRange(each, 0, len(TIMES_MS)) for each in taken.partitions(assigned)]
    ranges = taken.ranges(whole, Times())
    read = {(each.partition, offset) for each in ranges for offset in range(each.start, each.end)}

    def matches(each: TopicPartition, offset: int, among) -> bool:
        row = {
            "topic": each.topic,
            "partition": each.partition,
            "offset": offset,
            "timestamp": EPOCH + timedelta(milliseconds=TIMES_MS[offset]),
        }
        return all(MEANINGS[type(one)](row[one.attribute[0]], one.value) for one in among)

    every = [(each, offset) for each in assigned for offset in range(len(TIMES_MS))]
    wanted = {row for row in every if matches(*row, filters)}
    assert wanted <= read
    assert {row for row in read if matches(*row, left)} == wanted
    assert all(one.attribute == ("timestamp",) for one in left)


@pytest.mark.parametrize(
    "foreign",
    [
        Not(EqualTo(("offset",), 5)),
        StringStartsWith(("topic",), "t"),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        In(("offset",), (2, 5)),
    ],
)
def test_what_spark_must_still_apply(foreign):
    _, left = push_filters([foreign])
    assert left == [foreign]


def test_in_cuts_and_chooses():
    taken, left = push_filters([In(("offset",), (2, 5)), In(("partition",), (1,)), IsNotNull(("offset",))])
    (only,) = taken.partitions({TopicPartition("t", 0), TopicPartition("t", 1)})
    assert taken.ranges([OffsetRange(only, 0, 9)], Times()) == [OffsetRange(only, 2, 6)]
    assert len(left) == 1


def test_a_time_before_1970_is_no_name_of_an_offset():
    """To a broker -1 is the latest offset: all records would be passed over."""
    before = EPOCH - timedelta(milliseconds=1)
    found, _ = push_filters([GreaterThanOrEqual(("timestamp",), before)])
    asked = []

    class Asked(Times):
        def at_times(self, times_ms):
            asked.extend(times_ms.values())
            return super().at_times(times_ms)

    whole = OffsetRange(TopicPartition("t", 0), 0, len(TIMES_MS))
    assert found.ranges([whole], Asked()) == [whole]
    assert all(time >= 0 for time in asked)
