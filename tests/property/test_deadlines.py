"""Deadlines of many parties against a naive model: a dict that is searched."""

from __future__ import annotations

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from data_plane.coordinator.groups.deadlines import Deadlines
from tests.support.suite.examples import examples

KEYS = st.sampled_from("abcdef")
MOMENTS = st.integers(0, 20).map(float)


class DeadlinesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.deadlines: Deadlines[str] = Deadlines()
        self.model: dict[str, float] = {}

    @rule(key=KEYS, moment=MOMENTS)
    def put_off_or_bring_forward(self, key: str, moment: float) -> None:
        self.deadlines.set(key, moment)
        self.model[key] = moment

    @rule(key=KEYS)
    def discard(self, key: str) -> None:
        self.deadlines.discard(key)
        self.model.pop(key, None)

    @rule(now=MOMENTS, dismissed=st.booleans())
    def time_passes(self, now: float, dismissed: bool) -> None:
        due = self.deadlines.due(now)
        assert sorted(due) == sorted(key for key, moment in self.model.items() if moment <= now)
        assert [self.model[key] for key in due] == sorted(self.model[key] for key in due)
        for key in due if dismissed else ():
            self.discard(key)

    @rule(now=MOMENTS, most=st.integers(1, 4))
    def the_first_are_asked_for(self, now: float, most: int) -> None:
        due = self.deadlines.due(now, most)
        assert len(set(due)) == len(due)
        moments = sorted(moment for moment in self.model.values() if moment <= now)
        assert [self.model[key] for key in due] == moments[:most]

    @invariant()
    def the_earliest_is_known(self) -> None:
        assert self.deadlines.earliest() == min(self.model.values(), default=math.inf)
        assert len(self.deadlines) == len(self.model)
        assert {key: self.deadlines.at(key) for key in self.model} == self.model


DeadlinesMachine.TestCase.settings = settings(
    max_examples=examples(100), stateful_step_count=40, deadline=None
)
TestDeadlines = DeadlinesMachine.TestCase


def test_members_that_come_and_go_leave_nothing_behind() -> None:
    """Their entries would reach the top only when their sessions would have ended."""
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("first", 0.0)
    for i in range(10_000):
        deadlines.set(f"member-{i}", 300.0 + i)
        deadlines.discard(f"member-{i}")
    assert deadlines.entries() < 200
    assert deadlines.earliest() == 0.0
