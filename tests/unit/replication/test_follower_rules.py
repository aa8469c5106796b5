"""The pure steps of a follower."""

from __future__ import annotations

from uuid import UUID

import pytest

from fetch.follower import (
    FetchOutcome,
    RestartAt,
    TruncateTo,
    fetch_outcome,
    resolve_out_of_range,
    retry_delay,
    truncation_offset,
)
from fetch.messages import FetchedPartition, LogBounds
from metadata_quorum.foundation.errors import ErrorCode


@pytest.mark.row("R5")
@pytest.mark.parametrize(
    ("diverging", "local", "end", "expected"),
    [
        ((3, 50), (3, 60), 60, 50),  # the leader's epoch 3 is shorter
        ((3, 50), (3, 40), 60, 40),  # ours is: what follows is of later epochs
        ((3, 50), (2, 30), 60, 30),  # we have nothing of epoch 3
        ((3, 50), (-1, -1), 60, 50),  # we know no epochs
        ((3, 70), (3, 65), 60, 60),
    ],
)
def test_truncation_offset(diverging: tuple[int, int], local: tuple[int, int], end: int, expected: int):
    assert truncation_offset(diverging, local, end) == expected


@pytest.mark.row("R6")
def test_what_to_do_out_of_range():
    assert resolve_out_of_range(10, LogBounds(0, 8)) == TruncateTo(8)
    assert resolve_out_of_range(10, LogBounds(12, 20)) == RestartAt(12)
    assert resolve_out_of_range(10, LogBounds(3, 20)) is None


def test_the_outcome_of_each_answer():
    def answer(error: ErrorCode, diverging: tuple[int, int] | None = None) -> FetchedPartition:
        return FetchedPartition(UUID(int=1), "t", 0, error, diverging_epoch=diverging)

    assert fetch_outcome(answer(ErrorCode.NONE)) is FetchOutcome.APPEND
    assert fetch_outcome(answer(ErrorCode.NONE, (1, 2))) is FetchOutcome.DIVERGED
    assert fetch_outcome(answer(ErrorCode.OFFSET_OUT_OF_RANGE)) is FetchOutcome.OUT_OF_RANGE
    for error in (
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ):
        assert fetch_outcome(answer(error)) is FetchOutcome.WAIT


def test_delays_double_up_to_a_limit():
    assert [retry_delay(n, 0.01, 1.0, 0.0) for n in (0, 1, 2, 3, 10, 1000)] == [
        0.01,
        0.02,
        0.04,
        0.08,
        1.0,
        1.0,
    ]
    assert retry_delay(0, 0.01, 1.0, 1.0) == pytest.approx(0.008)
