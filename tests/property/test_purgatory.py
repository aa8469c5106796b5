"""Waits for an offset against a naive model: a list that is filtered."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from data_plane.purgatory.purgatory import DelayedOperation, OffsetWait, ThresholdPurgatory
from data_plane.purgatory.timing_wheel import WheelTimer
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.jumping_loop import JumpingLoop
from tests.support.suite.examples import examples


def never(what: str, error: Exception) -> None:
    raise AssertionError(what) from error


class WaitsMachine(RuleBasedStateMachine):
    waits = Bundle("waits")

    def __init__(self) -> None:
        super().__init__()
        self.under_test = ThresholdPurgatory(never)
        self.model: list[tuple[int, int]] = []  # (offset, name), in the order of adding
        self.completed: list[tuple[int, ErrorCode]] = []
        self.names = 0

    @rule(target=waits, offset=st.integers(0, 30))
    def add(self, offset: int) -> tuple[OffsetWait, int]:
        self.names += 1
        name = self.names
        wait = self.under_test.add(offset, lambda outcome: self.completed.append((name, outcome)))
        self.model.append((offset, name))
        return wait, name

    @rule(entry=waits)
    def cancel(self, entry: tuple[OffsetWait, int]) -> None:
        entry[0].cancel()
        self.model = [(o, n) for o, n in self.model if n != entry[1]]

    @rule(offset=st.integers(0, 30))
    def reach(self, offset: int) -> None:
        self.completed.clear()
        expected = [n for o, n in sorted(self.model, key=lambda entry: entry[0]) if o <= offset]
        assert self.under_test.reached(offset) == len(expected)
        assert self.completed == [(n, ErrorCode.NONE) for n in expected]
        self.model = [(o, n) for o, n in self.model if o > offset]

    @rule()
    def fail(self) -> None:
        self.completed.clear()
        self.under_test.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert {n for n, _ in self.completed} == {n for _, n in self.model}
        self.model.clear()

    @invariant()
    def same_number(self) -> None:
        assert len(self.under_test) == len(self.model)


TestWaits = pytest.mark.row("P1")(WaitsMachine.TestCase)
TestWaits.settings = settings(max_examples=examples(60), stateful_step_count=40)


def test_a_callback_may_cancel_another_of_the_same_prefix_and_add_a_new_one():
    waits = ThresholdPurgatory(never)
    completed: list[str] = []
    later: list[OffsetWait] = []

    def first(outcome: ErrorCode) -> None:
        completed.append("first")
        later[0].cancel()
        waits.add(3, lambda _: completed.append("new"))

    waits.add(1, first)
    later.append(waits.add(2, lambda _: completed.append("second")))
    waits.reached(5)
    assert completed == ["first"]
    waits.reached(5)
    assert completed == ["first", "new"]


@pytest.mark.row("P1")
def test_a_joint_wait_is_done_when_its_last_partition_is():
    loop = JumpingLoop()
    done: list[list[ErrorCode]] = []
    a, b = ThresholdPurgatory(never), ThresholdPurgatory(never)
    wait = DelayedOperation(lambda outcomes: done.append(list(outcomes)))
    wait.add(a, 5)
    wait.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    wait.add(b, 7)
    wait.start(WheelTimer(loop), 1.0)
    b.reached(9)
    assert not done
    a.reached(5)
    assert done == [[ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE]]
    loop.run()
    assert len(done) == 1


@pytest.mark.row("P1")
def test_a_joint_wait_that_times_out_says_which_partition_was_late():
    loop = JumpingLoop()
    done: list[list[ErrorCode]] = []
    a, b = ThresholdPurgatory(never), ThresholdPurgatory(never)
    wait = DelayedOperation(lambda outcomes: done.append(list(outcomes)))
    wait.add(a, 5)
    wait.add(b, 7)
    wait.start(WheelTimer(loop), 1.0)
    a.reached(5)
    loop.run()
    assert done == [[ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]]
    assert not len(b)
    b.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert len(done) == 1
