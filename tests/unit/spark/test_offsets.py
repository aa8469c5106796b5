"""Offsets: their JSON, what bounds mean in a cluster, and what lies between two of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_quorum.foundation.model import TopicPartition
from spark_connector.errors import DataLossError, SourceError
from spark_connector.offsets import (
    NO_OFFSET,
    AtOffsets,
    AtTime,
    AtTimes,
    Edge,
    OffsetRange,
    StreamOffset,
    depends_on_now,
    from_spark,
    parse_offsets,
    ranges_between,
    resolve_end,
    resolve_start,
    stream_offset_from_spark,
    to_spark,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 30)), st.integers(-2, 2**63 - 1)
)


@dataclass
class Logs:
    """A cluster, by the bounds of its logs and the times of records."""

    bounds: dict[TopicPartition, tuple[int, int]]
    times: dict[TopicPartition, int] = field(default_factory=dict)

    def earliest(self, partitions):
        return {each: self.bounds[each][0] for each in partitions if each in self.bounds}

    def latest(self, partitions):
        return {each: self.bounds[each][1] for each in partitions if each in self.bounds}

    def at_times(self, times_ms):
        return {each: self.times.get(each, NO_OFFSET) for each in times_ms}


LOGS = Logs({A0: (3, 10), A1: (0, 20)}, {A0: 7})


@given(OFFSETS)
def test_json_round_trips_and_equal_offsets_are_equal_text(offsets):
    assert parse_offsets(json.dumps(to_spark(offsets))) == offsets
    assert from_spark(json.loads(json.dumps(to_spark(offsets)))) == offsets
    backwards = dict(reversed(offsets.items()))
    assert json.dumps(to_spark(backwards)) == json.dumps(to_spark(offsets))


def test_json_is_that_of_sparks_kafka_source():
    text = json.dumps(to_spark({A1: -1, B0: 7, A0: 23}), separators=(",", ":"))
    assert text == '{"a":{"0":23,"1":-1},"b":{"0":7}}'


def test_partitions_are_ordered_by_number():
    offsets = {TopicPartition("t", number): 0 for number in (10, 9, 2)}
    assert list(to_spark(offsets)["t"]) == ["2", "9", "10"]


@pytest.mark.parametrize("text", ["", "[]", '{"a":1}', '{"a":{"x":1}}', '{"a":{"0":true}}', '{"a":{"-1":1}}'])
def test_no_offsets(text):
    with pytest.raises(ValueError):
        parse_offsets(text)


@pytest.mark.parametrize(
    ("bound", "offsets"),
    [
        (Edge.EARLIEST, {A0: 3, A1: 0}),
        (Edge.LATEST, {A0: 10, A1: 20}),
        (AtOffsets({A0: 5, A1: -1}), {A0: 5, A1: 20}),
        (AtOffsets({A0: -2, A1: 6}), {A0: 3, A1: 6}),
    ],
)
def test_what_a_bound_means(bound, offsets):
    assert resolve_start(bound, {A0, A1}, LOGS, latest_if_unmatched=False) == offsets
    assert resolve_end(bound, {A0, A1}, LOGS) == offsets


def test_a_partition_that_is_deleted_meanwhile_has_no_offset():
    """-1 and -2 are no offsets."""
    for bound in (AtOffsets({A0: 7, A1: -1, B0: -1}), AtOffsets({A0: 7, A1: -1, B0: -2}), AtTime(5)):
        assert resolve_end(bound, {A0, A1, B0}, LOGS) == {A0: 7, A1: 20}


@pytest.mark.parametrize("bound", [AtTime(5), AtTimes({A0: 5, A1: 5})])
def test_no_record_is_young_enough(bound):
    with pytest.raises(SourceError, match="a-1 is as young as 5"):
        resolve_start(bound, {A0, A1}, LOGS, latest_if_unmatched=False)
    assert resolve_start(bound, {A0, A1}, LOGS, latest_if_unmatched=True) == {A0: 7, A1: 20}
    assert resolve_end(bound, {A0, A1}, LOGS) == {A0: 7, A1: 20}


@pytest.mark.parametrize("bound", [AtOffsets({A0: 5}), AtTimes({A0: 5, A1: 5, B0: 5})])
def test_bounds_must_name_every_partition(bound):
    with pytest.raises(SourceError, match="DOES_NOT_MATCH_ASSIGNED"):
        resolve_start(bound, {A0, A1}, LOGS, latest_if_unmatched=False)


def test_which_starts_move_on_as_time_passes():
    assert depends_on_now(Edge.LATEST, latest_if_unmatched=False)
    assert depends_on_now(AtOffsets({A0: 4, A1: -1}), latest_if_unmatched=False)
    assert depends_on_now(AtTime(5), latest_if_unmatched=True)
    assert not depends_on_now(AtTime(5), latest_if_unmatched=False)
    assert not depends_on_now(Edge.EARLIEST, latest_if_unmatched=True)
    assert not depends_on_now(AtOffsets({A0: 4, A1: -2}), latest_if_unmatched=True)


# ---- ranges


def between(start, end, logs=LOGS):
    """Ranges, and which losses were reported."""
    losses = []
    ranges = ranges_between(
        start, end, logs, lambda error: losses.append(error.condition.removeprefix("KAFKA_DATA_LOSS."))
    )
    return ranges, losses


def test_between_two_offsets():
    assert between({A0: 4, A1: 5}, {A0: 9, A1: 5}) == ([OffsetRange(A0, 4, 9), OffsetRange(A1, 5, 5)], [])


def test_a_new_partition_is_read_from_its_first_record():
    assert between({A0: 4}, {A0: 9, A1: 20}) == ([OffsetRange(A0, 4, 9), OffsetRange(A1, 0, 20)], [])


def test_a_new_partition_that_has_lost_records():
    ranges, losses = between({A1: 4}, {A0: 9, A1: 4})
    assert OffsetRange(A0, 3, 9) in ranges
    assert losses == ["ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"]


def test_a_new_partition_that_is_gone_again():
    assert between({A1: 4}, {A1: 6, B0: 9}) == (
        [OffsetRange(A1, 4, 6)],
        ["INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS"],
    )


def test_a_deleted_partition():
    assert between({A0: 4, A1: 5}, {A1: 7}) == ([OffsetRange(A1, 5, 7)], ["PARTITIONS_DELETED"])


def test_a_partition_that_went_back():
    assert between({A0: 9}, {A0: 4}) == ([OffsetRange(A0, 9, 4)], ["PARTITION_OFFSET_CHANGED"])


def test_the_error_says_how_to_go_on_without_the_records():
    error = DataLossError("PARTITIONS_DELETED", "a-0 no longer exist.")
    assert str(error).startswith("[KAFKA_DATA_LOSS.PARTITIONS_DELETED] a-0")
    assert "'failOnDataLoss' to 'false'" in str(error)


def test_ids_beside_offsets_mean_nothing_to_who_does_not_know_them():
    """Spark's own source sees a topic without partitions."""
    offset = StreamOffset({A0: 23, B0: 7}, {"a": UUID(int=5), "b": UUID(int=2**128 - 1)})
    text = json.dumps(to_spark(*offset))
    assert stream_offset_from_spark(json.loads(text)) == offset
    assert from_spark(json.loads(text)) == offset.offsets
    assert stream_offset_from_spark({"a": {"0": 23}}) == StreamOffset({A0: 23}, {})
    assert json.loads(text) | {"a": {}, "b": {}} == {
        "a": {}, "b": {}, "a@AAAAAAAAAAAAAAAAAAAABQ": {}, "b@_____________________w": {},
    }  # fmt: skip
