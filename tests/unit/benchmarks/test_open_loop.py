"""The open-loop schedule: what is due does not depend on what has been answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.open_loop import OpenLoop


def test_takes_each_message_once_when_due() -> None:
    loop = OpenLoop(start=100.0, rate=10, count=5)
    assert list(loop.take_due(99.9)) == []
    assert loop.wait_s(99.9) == pytest.approx(0.1)
    assert list(loop.take_due(100.0)) == [0]
    assert list(loop.take_due(100.25)) == [1, 2]
    assert list(loop.take_due(100.25)) == []


def test_a_late_client_sends_all_it_owes_and_keeps_their_due_moments() -> None:
    loop = OpenLoop(start=0.0, rate=1000, count=4)
    late = loop.take_due(9.0)
    assert list(late) == [0, 1, 2, 3]
    assert [loop.due_at(index) for index in late] == [0.0, 0.001, 0.002, 0.003]
    assert loop.finished
    assert loop.wait_s(9.0) == 0.0


@pytest.mark.parametrize(("rate", "count"), [(0, 1), (-1, 1), (1, -1)])
def test_refuses_what_is_no_schedule(rate: float, count: int) -> None:
    with pytest.raises(ValueError, match="no schedule"):
        OpenLoop(start=0.0, rate=rate, count=count)


@given(st.floats(0.1, 1e5), st.integers(0, 200), st.lists(st.floats(0, 1), max_size=20))
def test_every_index_is_taken_once_and_never_early(rate: float, count: int, steps: list[float]) -> None:
    loop = OpenLoop(start=0.0, rate=rate, count=count)
    now, taken = 0.0, []
    for step in [*steps, count / rate + 1]:
        now += step
        due = loop.take_due(now)
        assert all(loop.due_at(index) <= now for index in due)
        taken += due
    assert taken == list(range(count))
