"""How far a micro-batch reads, and in how many tasks."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from metadata_quorum.foundation.model import TopicPartition
from spark_connector.offsets import (
    OffsetRange,
)
from spark_connector.planning import BatchDelay, rate_limited, split

A, B, C = (TopicPartition("t", number) for number in range(3))
SIZES = st.lists(st.integers(0, 10_000), min_size=1, max_size=6)


def ranges_of(*sizes):
    return [OffsetRange(TopicPartition("t", number), 100, 100 + size) for number, size in enumerate(sizes)]


def sizes_of(ranges):
    return [(each.partition.partition, each.size) for each in ranges]


# ---- rate limits


def test_the_limit_is_shared_out_in_proportion():
    assert rate_limited(100, {A: 0, B: 0, C: 50}, {A: 300, B: 100, C: 50}) == {A: 75, B: 25, C: 50}


def test_a_small_partition_is_not_starved():
    assert rate_limited(10, {A: 0, B: 0}, {A: 1_000_000, B: 1}) == {A: 9, B: 1}


def test_no_further_than_there_is():
    assert rate_limited(1_000, {A: 5, B: 7}, {A: 6, B: 8}) == {A: 6, B: 8}


def test_what_went_back_is_left_to_the_check_for_data_loss():
    assert rate_limited(10, {A: 50, B: 0}, {A: 20, B: 5}) == {A: 20, B: 5}


@given(SIZES, st.integers(1, 50_000))
def test_a_limit_is_kept_and_each_step_moves(sizes, limit):
    start = {TopicPartition("t", number): 10 for number in range(len(sizes))}
    latest = {partition: 10 + size for partition, size in zip(start, sizes, strict=True)}
    end = rate_limited(limit, start, latest)
    assert all(start[each] <= end[each] <= latest[each] for each in start)
    # Rounding up what is less than one record can pass the limit by one record per partition.
    assert sum(end.values()) - sum(start.values()) <= limit + len(sizes)
    assert end != start or latest == start


# ---- minOffsetsPerTrigger


def test_a_micro_batch_is_held_back_until_there_is_enough():
    delay = BatchDelay(min_offsets=10, max_delay_ms=1_000)
    assert not delay.holds_back({A: 0}, {A: 1}, now_ms=0)
    assert delay.holds_back({A: 1}, {A: 10}, now_ms=500)
    assert not delay.holds_back({A: 1}, {A: 11}, now_ms=600)
    assert delay.holds_back({A: 11}, {A: 12}, now_ms=1_599)
    assert not delay.holds_back({A: 11}, {A: 12}, now_ms=1_600)


# ---- tasks


def test_a_task_for_each_partition_that_has_records():
    assert split(ranges_of(5, 0, 7)) == [OffsetRange(A, 100, 105), OffsetRange(C, 100, 107)]


def test_min_partitions_splits_the_large_ones_only():
    assert sizes_of(split(ranges_of(800, 5, 5), min_partitions=8)) == [
        *[(0, size) for size in (133, 133, 133, 133, 134, 134)],
        (1, 5),
        (2, 5),
    ]


def test_enough_partitions_are_left_alone():
    assert split(ranges_of(10, 20), min_partitions=2) == ranges_of(10, 20)


def test_max_records_per_partition():
    assert sizes_of(split(ranges_of(10, 3), max_records=4)) == [(0, 3), (0, 3), (0, 4), (1, 3)]


def test_both_limits():
    assert sizes_of(split(ranges_of(100, 100), min_partitions=8, max_records=50)) == [
        (number, 25) for number in (0, 0, 0, 0, 1, 1, 1, 1)
    ]


def test_more_tasks_than_records_are_as_many_as_there_are_records():
    """And no more are looked at: the driver would be busy for hours."""
    assert sizes_of(split(ranges_of(2, 1), min_partitions=10**12)) == [(0, 1), (0, 1), (1, 1)]


def test_nothing_to_read_is_no_task():
    assert split(ranges_of(0, -5), min_partitions=4, max_records=2) == []


@given(SIZES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 5_000))
def test_pieces_cover_their_ranges_and_nothing_else(sizes, min_partitions, max_records):
    whole = ranges_of(*sizes)
    pieces = split(whole, min_partitions, max_records)
    assert all(piece.size > 0 for piece in pieces)
    assert all(piece.size <= (max_records or piece.size) for piece in pieces)
    for each in whole:
        own = [piece for piece in pieces if piece.partition == each.partition]
        assert all(first.end == second.start for first, second in itertools.pairwise(own))
        assert sum(piece.size for piece in own) == each.size
        assert not own or own[0].start == each.start
