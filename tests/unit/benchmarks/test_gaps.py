"""The longest silence after a kill."""

from __future__ import annotations

import pytest

from benchmarks.gaps import longest_gap


def test_begins_with_the_last_ack_before_the_kill() -> None:
    assert longest_gap([1.0, 2.0, 2.9, 3.5, 3.6], since=3.0) == pytest.approx(0.6)


def test_gaps_before_the_kill_do_not_count() -> None:
    assert longest_gap([0.0, 9.0, 9.1, 9.3], since=9.05) == pytest.approx(0.2)


def test_no_ack_afterwards_is_no_gap_but_a_failure() -> None:
    with pytest.raises(ValueError, match="nothing was acknowledged"):
        longest_gap([1.0, 2.0], since=3.0)
