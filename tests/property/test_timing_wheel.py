"""The timing wheel against a naive model: a list that is searched."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from data_plane.purgatory.timing_wheel import (
    EXPIRED_PER_TURN,
    TICK_SECONDS,
    Deadline,
    TimingWheel,
    WheelTimer,
)
from tests.support.jumping_loop import JumpingLoop
from tests.support.suite.examples import examples

DELAYS = st.one_of(
    st.floats(0, 0.1), st.floats(0, 5), st.floats(0, 300), st.floats(0, 1e6), st.sampled_from([0.064, 4.096])
)


class WheelMachine(RuleBasedStateMachine):
    """Adds, cancels and lets time pass; what expires must be what the model says."""

    entries = Bundle("entries")

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.wheel = TimingWheel(self.now)
        self.waiting: dict[Deadline, float] = {}

    @rule(target=entries, delay=DELAYS)
    def add(self, delay: float) -> Deadline:
        deadline = self.wheel.add(self.now + delay, lambda: None)
        self.waiting[deadline] = self.now + delay
        return deadline

    @rule(entry=entries)
    def cancel(self, entry: Deadline) -> None:
        entry.cancel()
        self.waiting.pop(entry, None)

    @rule(step=DELAYS)
    def pass_time(self, step: float) -> None:
        self._advance(self.now + step)

    @rule()
    def run_to_next_wakeup(self) -> None:
        wakeup = self.wheel.next_wakeup()
        if wakeup is not None:
            self._advance(max(wakeup, self.now))

    def _advance(self, now: float) -> None:
        self.now = now
        expired = self.wheel.advance(now)
        assert [d.tick for d in expired] == sorted(d.tick for d in expired)
        for deadline in expired:
            # Never early (but for the half tick of grace), and each once.
            assert self.waiting.pop(deadline) <= now + TICK_SECONDS / 2
        late = [when for when in self.waiting.values() if when < now - 1.5 * TICK_SECONDS]
        assert not late

    @invariant()
    def wakes_in_time(self) -> None:
        assert len(self.wheel) == len(self.waiting)
        if self.waiting:
            wakeup = self.wheel.next_wakeup()
            assert wakeup is not None
            assert wakeup <= min(self.waiting.values()) + 2 * TICK_SECONDS


TestWheel = pytest.mark.row("P1")(WheelMachine.TestCase)
TestWheel.settings = settings(max_examples=examples(60), stateful_step_count=40)


@pytest.mark.row("P1")
def test_one_loop_timer_serves_all_deadlines():
    loop = JumpingLoop()
    timer = WheelTimer(loop)
    ran: list[tuple[float, float]] = []
    delays = [0.0, 0.001, 0.5, 30.0, 0.0635, 4.2, 7.0, 30.0, 3600.0]
    for delay in delays:
        timer.call_later(delay, lambda delay=delay: ran.append((delay, loop.now)))
    loop.run()
    assert [delay for delay, _ in ran] == sorted(delays)
    assert all(0 <= at - (50.0 + delay) <= 2 * TICK_SECONDS for delay, at in ran)
    assert loop.most_armed == 1


def test_a_deadline_cancelled_by_one_that_expires_with_it_does_not_run():
    loop = JumpingLoop()
    timer = WheelTimer(loop)
    ran: list[str] = []
    deadlines: list[Deadline] = []
    timer.call_later(1.0, lambda: (ran.append("first"), deadlines[0].cancel()))
    deadlines.append(timer.call_later(1.0, lambda: ran.append("second")))
    loop.run()
    assert ran == ["first"]


@pytest.mark.row("P7")
def test_very_many_that_expire_together_are_called_some_at_a_time():
    """Clients say when: each of them is answered then."""
    loop = JumpingLoop()
    timer = WheelTimer(loop)
    per_call: list[int] = []
    ran: list[int] = []
    many = 3 * EXPIRED_PER_TURN + 1
    for number in range(many):
        timer.call_later(1.0, lambda number=number: ran.append(number))
    later = timer.call_later(1.0, lambda: ran.append(-1))
    while loop.armed:
        before, armed = len(ran), loop.armed.pop()
        loop.now = max(loop.now, armed.when)
        armed.callback()
        per_call.append(len(ran) - before)
        later.cancel()
    assert ran == list(range(many))
    assert max(per_call) == EXPIRED_PER_TURN


def test_cancelling_costs_the_same_however_many_wait():
    wheel = TimingWheel(0.0)
    many = [wheel.add(1 + i / 1000, lambda: None) for i in range(50_000)]
    for deadline in many[1:]:
        deadline.cancel()
    assert len(wheel) == 1
    assert wheel.advance(math.ceil(1.1)) == many[:1]
